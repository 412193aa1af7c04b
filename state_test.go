package helix_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/access"
	"github.com/helixagents/helix/internal/userstate"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
)

type tally struct {
	Names []string       `json:"names"`
	Total int            `json:"total"`
	Notes map[string]any `json:"notes,omitempty"`
}

// bench is an environment around one draft.
type bench struct{ draft *userstate.Draft }

func (b bench) Draft() *userstate.Draft                      { return b.draft }
func (b bench) Emit(string, json.RawMessage)                 {}
func (b bench) EmitOwn(string, json.RawMessage)              {}
func (b bench) RecordUsage(string, float64, json.RawMessage) {}
func (b bench) View() []session.Message                      { return nil }
func (b bench) PutBlob(context.Context, []byte) (string, error) {
	return "", session.ErrNotSupported
}
func (b bench) Blob(context.Context, string) ([]byte, error) { return nil, session.ErrNotSupported }

func onDraft(d *userstate.Draft) *helix.Call {
	call := &helix.Call{}
	access.BindScope(&call.Scope, bench{d})
	return call
}

func stateDoc(t *testing.T, object string) *session.CustomState {
	t.Helper()
	doc, err := session.ParseCustomState(json.RawMessage(object))
	if err != nil {
		t.Fatal(err)
	}
	return &doc
}

func closeDraft(t *testing.T, d *userstate.Draft) string {
	t.Helper()
	writes, err := d.Close()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(writes.Ops)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestUpdateBecomesOperations(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, state, want string
		update            func(*tally)
	}{
		{
			"a list that grows", `{"names":["a"],"total":1}`, `[{"kind":"append","key":"names","items":["b"]}]`,
			func(s *tally) { s.Names = append(s.Names, "b") },
		},
		{
			"a list that is changed", `{"names":["a","b"],"total":1}`, `[{"kind":"replace","key":"names","value":["x","b"]}]`,
			func(s *tally) { s.Names[0] = "x" },
		},
		{
			"a number", `{"names":[],"total":1}`, `[{"kind":"replace","key":"total","value":2}]`,
			func(s *tally) { s.Total++ },
		},
		{"nothing", `{"names":["a"],"total":1}`, `null`, func(*tally) {}},
		{
			"a key that is dropped", `{"names":[],"total":1,"notes":{"a":1}}`, `[{"kind":"delete","key":"notes"}]`,
			func(s *tally) { s.Notes = nil },
		},
		{
			"keys the type does not know", `{"names":[],"total":1,"other":"kept"}`, `[{"kind":"replace","key":"total","value":5}]`,
			func(s *tally) { s.Total = 5 },
		},
		{
			"a list that was never set", `{}`, `[{"kind":"append","key":"names","items":["a"]}]`,
			func(s *tally) { s.Names = append(s.Names, "a") },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := userstate.New(stateDoc(t, c.state))
			helix.Update(onDraft(d), c.update)
			if got := closeDraft(t, d); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestDraftSeesItsOwnAndEarlierWrites(t *testing.T) {
	t.Parallel()
	earlier := session.Writes{Ops: []session.Op{{Kind: session.OpAppend, Key: "names", Items: []json.RawMessage{json.RawMessage(`"b"`)}}}}
	d := userstate.New(stateDoc(t, `{"names":["a"],"total":1}`), earlier)
	call := onDraft(d)
	helix.Append(call, "names", "c")
	helix.Update(call, func(s *tally) { s.Total = len(s.Names) })
	if got := helix.State[tally](call); strings.Join(got.Names, "") != "abc" || got.Total != 3 {
		t.Errorf("the draft sees %+v", got)
	}
	if got := closeDraft(t, d); got != `[{"kind":"append","key":"names","items":["c"]},{"kind":"replace","key":"total","value":3}]` {
		t.Errorf("the draft's own writes are %s", got)
	}
}

func TestDraftIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	d := userstate.New(stateDoc(t, `{"names":[],"total":0}`))
	call := onDraft(d)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { helix.Append(call, "names", "x") })
		wg.Go(func() { helix.Update(call, func(s *tally) { s.Total++ }) })
		wg.Go(func() { _ = helix.State[tally](call) })
	}
	wg.Wait()
	if got := helix.State[tally](call); len(got.Names) != 20 || got.Total != 20 {
		t.Errorf("got %d names and a total of %d", len(got.Names), got.Total)
	}
}

func TestDraftRefusals(t *testing.T) {
	t.Parallel()
	t.Run("an append to something else", func(t *testing.T) {
		d := userstate.New(stateDoc(t, `{"total":1}`))
		helix.Append(onDraft(d), "total", 1)
		if _, err := d.Close(); !errors.Is(err, helix.ErrInvalid) || !strings.Contains(err.Error(), `"total"`) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a state that does not fit the type", func(t *testing.T) {
		d := userstate.New(stateDoc(t, `{"total":"many"}`))
		helix.Update(onDraft(d), func(s *tally) { s.Total++ })
		if _, err := d.Close(); err == nil || !strings.Contains(err.Error(), "total") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a use after the call has ended", func(t *testing.T) {
		d := userstate.New(stateDoc(t, `{"total":1}`))
		closeDraft(t, d)
		helix.Update(onDraft(d), func(s *tally) { s.Total++ })
		helix.Append(onDraft(d), "names", "x")
		if got := closeDraft(t, d); got != "null" {
			t.Errorf("it wrote %s", got)
		}
	})
}

// Users set what the state declares as open, and nothing else is open.
func TestOpenState(t *testing.T) {
	t.Parallel()
	closed := helix.StateOf(tally{})
	open := closed.Open("names").Open("total")
	for key, want := range map[string]bool{"names": true, "total": true, "notes": false, "other": false, "": false} {
		if open.IsOpen(key) != want {
			t.Errorf("%q is open: %v", key, !want)
		}
		if closed.IsOpen(key) {
			t.Errorf("%q became open in the state that was not to change", key)
		}
	}
	var none *helix.StateType
	if none.IsOpen("names") {
		t.Error("no state has an open key")
	}
	if free := helix.StateOf(map[string]int{"a": 1}).Open("b"); !free.IsOpen("b") || free.IsOpen("a") {
		t.Error("a map opens other keys than those it was told")
	}
	for _, key := range []string{"nmaes", "Names", ""} {
		agent := &helix.Agent{Name: "clerk", Model: scripted.New(), State: closed.Open("total", key)}
		if err := agent.Check(); !errors.Is(err, session.ErrInvalid) || !strings.Contains(err.Error(), "open state key") {
			t.Errorf("the key %q can be opened: %v", key, err)
		}
	}
}

func TestInitialState(t *testing.T) {
	t.Parallel()
	s := helix.StateOf(tally{Total: 7})
	doc, err := access.InitialState(s, json.RawMessage(`{"names":["a"]}`))
	if err != nil {
		t.Fatal(err)
	}
	if raw, _ := json.Marshal(doc); string(raw) != `{"names":["a"],"total":7}` {
		t.Errorf("got %s", raw)
	}
	if _, err := access.InitialState(s, json.RawMessage(`{"naems":[]}`)); !errors.Is(err, helix.ErrInvalid) || !strings.Contains(err.Error(), "state.naems") {
		t.Errorf("an unknown field: %v", err)
	}
	if _, err := access.InitialState(s, json.RawMessage(`[]`)); !errors.Is(err, helix.ErrInvalid) {
		t.Errorf("a list: %v", err)
	}
}

func TestReservedKeysAreHiddenFromApplications(t *testing.T) {
	t.Parallel()
	d := userstate.New(stateDoc(t, `{"names":[],"total":3,"helix:mine":{"a":1}}`))
	call := onDraft(d)
	if got := helix.State[map[string]any](call); len(got) != 2 {
		t.Errorf("the application sees %v", got)
	}
	if err := access.DraftOf(call).SetReserved("helix:other", json.RawMessage("7")); err != nil {
		t.Fatal(err)
	}
	if err := d.SetReserved("helix:mine", nil); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"helix:other": "7", "helix:mine": "", "helix:none": ""} {
		if got, err := d.Reserved(key); err != nil || string(got) != want {
			t.Errorf("%s is %s (%v), want %s", key, got, err, want)
		}
	}
	if err := d.SetReserved("total", json.RawMessage("1")); err == nil {
		t.Error("a key of the application was set as one of the framework")
	}
	if err := d.SetReserved("helix:bad", json.RawMessage("{")); err == nil {
		t.Error("a value that is not JSON was set")
	}
	helix.Update(call, func(m *map[string]any) { (*m)["total"] = 4 }) // deletes nothing that it does not see
	want := `[{"kind":"replace","key":"helix:other","value":7},{"kind":"delete","key":"helix:mine"},{"kind":"replace","key":"total","value":4}]`
	if got := closeDraft(t, d); got != want {
		t.Errorf("the writes are %s, want %s", got, want)
	}
	if _, err := d.Reserved("helix:other"); !errors.Is(err, session.ErrClosed) {
		t.Errorf("reading a closed draft: %v", err)
	}
}

func TestReservedKeysAreRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*helix.Call){
		"append": func(c *helix.Call) { helix.Append(c, "helix:list", 1) },
		"update": func(c *helix.Call) { helix.Update(c, func(m *map[string]any) { (*m)["helix:list"] = 1 }) },
	} {
		d := userstate.New(stateDoc(t, `{}`))
		change(onDraft(d))
		if _, err := d.Close(); !errors.Is(err, session.ErrInvalid) || !strings.Contains(err.Error(), "helix:list") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, state := range map[string]*helix.StateType{
		"defaults": helix.StateOf(map[string]int{"helix:x": 1}),
		"open":     helix.StateOf(map[string]int{}).Open("helix:x"),
	} {
		agent := &helix.Agent{Name: "a", Model: scripted.New(), State: state}
		if err := agent.Check(); err == nil || !strings.Contains(err.Error(), "helix:x") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
