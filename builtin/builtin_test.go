package builtin_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/builtin"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/memory"
)

func TestNamed(t *testing.T) {
	t.Parallel()
	for _, name := range builtin.Names() {
		tool, ok := builtin.Named(name)
		if !ok || tool.Name != name || tool.Description == "" {
			t.Errorf("%s: %+v, %t", name, tool, ok)
		}
		if tool.ReadOnly == tool.Idempotent {
			t.Errorf("%s is not marked either read-only or idempotent", name)
		}
	}
	if _, ok := builtin.Named("unknown"); ok {
		t.Error("an unknown tool was found")
	}
}

func call(t *testing.T, tool helix.Tool, input string) (string, error) {
	t.Helper()
	raw, err := tool.Execute.Call(t.Context(), &helix.Call{Tool: tool.Name}, json.RawMessage(input))
	return string(raw), err
}

func TestTime(t *testing.T) {
	t.Parallel()
	got, err := call(t, builtin.Time(), `{"zone":"UTC"}`)
	if err != nil || !strings.Contains(got, "UTC") || !strings.Contains(got, time.Now().UTC().Format("2006")) {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := call(t, builtin.Time(), `{"zone":"Nowhere/Land"}`); err == nil || !strings.Contains(err.Error(), "Nowhere/Land") {
		t.Errorf("an unknown zone: %v", err)
	}
}

func TestCalculator(t *testing.T) {
	t.Parallel()
	if got, err := call(t, builtin.Calculator(), `{"expression":"2 * (3 + 4)"}`); err != nil || got != "14" {
		t.Errorf("%s, %v", got, err)
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	got, err := call(t, builtin.Wait(), `{"task":"knead","seconds":0.01}`)
	var out struct{ Task, From, Until string }
	if err != nil || json.Unmarshal([]byte(got), &out) != nil || out.Task != "knead" || out.From == "" || out.Until == "" {
		t.Errorf("%s, %v", got, err)
	}
	for _, seconds := range []string{"-1", "60.5", "1e300"} {
		if _, err := call(t, builtin.Wait(), `{"seconds":`+seconds+`}`); err == nil || !strings.Contains(err.Error(), "between 0 and 60") {
			t.Errorf("%s seconds: %v", seconds, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := builtin.Wait().Execute.Call(ctx, &helix.Call{}, json.RawMessage(`{"seconds":60}`)); err == nil {
		t.Error("a cancelled wait continued")
	}
}

// Notes need no declared state: they begin with none, and parallel ones compose.
func TestNotes(t *testing.T) {
	t.Parallel()
	model := scripted.New(
		scripted.Reply(scripted.Calling("recall", nil)),
		scripted.Reply(
			scripted.Calling("remember", map[string]string{"note": "a"}), scripted.Calling("remember", map[string]string{"note": "b"}),
		),
		scripted.Reply(scripted.Calling("recall", nil)),
		scripted.Reply(scripted.Calling("forget", nil)),
		scripted.Text("done"),
	)
	forget := builtin.Forget()
	forget.Approval = nil
	agent := &helix.Agent{Name: "a", Model: model, Tools: []helix.Tool{builtin.Remember(), builtin.Recall(), forget}}
	rt, err := local.New(local.Config{Backend: memory.New(memory.Config{})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Shutdown(context.Background()) })
	run, err := rt.Execute(t.Context(), agent, helix.Input{Message: helix.UserText("go")})
	if err != nil {
		t.Fatal(err)
	}
	if result, err := run.Result(t.Context()); err != nil || result.Status != helix.Completed {
		t.Fatalf("%+v, %v", result, err)
	}
	requests := model.Requests()
	var results []string
	for _, m := range requests[len(requests)-1].Messages {
		if m.Role == session.RoleTool {
			results = append(results, string(m.Parts[0].ResultJSON()))
		}
	}
	want := `[] "noted" "noted" ["a","b"] "forgotten"`
	if got := strings.Join(results, " "); got != want {
		t.Errorf("results %s, want %s", got, want)
	}
}
