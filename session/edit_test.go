package session_test

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/helixagents/helix/session"
)

// TestEditAllowedDuringRun sets every field of an edit on its own, so that a field added
// later is covered.
func TestEditAllowedDuringRun(t *testing.T) {
	t.Parallel()
	allowed := map[string]bool{"SessionID": true, "Metadata": true, "Children": true}
	set := func(field reflect.Value) {
		switch field.Kind() {
		case reflect.Pointer:
			field.Set(reflect.New(field.Type().Elem()))
		case reflect.Slice:
			field.Set(reflect.MakeSlice(field.Type(), 1, 1))
		case reflect.String:
			field.SetString("x")
		case reflect.Int, reflect.Int64:
			field.SetInt(1)
		case reflect.Map:
			field.Set(reflect.MakeMap(field.Type()))
		default:
			t.Fatalf("%s: a field of a kind that the test does not know", field.Type())
		}
	}
	check := func(name string, e *session.Edit) {
		e.Metadata = map[string]*string{}
		if got := e.AllowedDuringRun(); got != allowed[name] {
			t.Errorf("an edit of metadata and %s: allowed during a run is %v", name, got)
		}
	}
	for field := range reflect.TypeFor[session.Edit]().Fields() {
		if field.Anonymous {
			continue
		}
		e := &session.Edit{}
		set(reflect.ValueOf(e).Elem().FieldByIndex(field.Index))
		check(field.Name, e)
	}
	for field := range reflect.TypeFor[session.Change]().Fields() {
		e := &session.Edit{}
		if field.Name == "Writes" {
			e.Writes = session.Writes{Ops: []session.Op{{}}}
		} else {
			set(reflect.ValueOf(&e.Change).Elem().FieldByIndex(field.Index))
		}
		check(field.Name, e)
	}
	if (&session.Edit{}).AllowedDuringRun() {
		t.Error("an empty edit raises the version and must not be allowed during a run")
	}
}

func TestEditGuard(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	idle := session.State{ID: "a", Version: 3, Status: session.Completed}
	idle.CreatedAt, idle.CurrentRunID, idle.Lease.Epoch = now, "r", 7
	read, created, ran, epoch := idle, idle, idle, idle
	created.CreatedAt, ran.CurrentRunID, epoch.Lease.Epoch = now.Add(1), "q", 6
	held := idle
	held.Lease = session.Lease{Owner: "o", ExpiresAt: now.Add(time.Second)}
	running := &session.Run{ID: "r", Status: session.RunRunning}
	patch := map[string]*string{}
	doc := func(status session.Status) *session.State { return &session.State{ID: "a", Status: status} }
	for _, test := range []struct {
		name  string
		edit  session.Edit
		state *session.State
		run   *session.Run
		want  error
	}{
		{"any", session.Edit{}, &idle, nil, nil},
		{"of nothing", session.Edit{}, nil, nil, session.ErrNotFound},
		{"beside, of nothing", session.Edit{Metadata: patch}, nil, nil, session.ErrNotFound},
		{"creates", session.Edit{Create: doc(session.Active)}, nil, nil, nil},
		{"creates what exists", session.Edit{Create: doc(session.Active)}, &idle, nil, session.ErrExists},
		{"creates with an impossible status", session.Edit{Create: doc(session.Failed), Change: session.Change{Status: session.Interrupted}}, nil, nil, session.ErrTransition},
		{"under a lease", session.Edit{}, &held, nil, session.ErrAlreadyRunning},
		{"during a run", session.Edit{}, &idle, running, session.ErrAlreadyRunning},
		{"beside, during a run", session.Edit{Metadata: patch}, &held, running, nil},
		{"version", session.Edit{Version: 3}, &idle, nil, nil},
		{"other version", session.Edit{Version: 2}, &idle, nil, session.ErrStale},
		{"of the session that was read", session.Edit{Version: 3, Read: &read}, &idle, nil, nil},
		{"of another session: created", session.Edit{Version: 3, Read: &created}, &idle, nil, session.ErrStale},
		{"of another session: run", session.Edit{Version: 3, Read: &ran}, &idle, nil, session.ErrStale},
		{"of another session: epoch", session.Edit{Version: 3, Read: &epoch}, &idle, nil, session.ErrStale},
		{"of another session, during a run", session.Edit{Metadata: patch, Read: &epoch}, &idle, running, session.ErrAlreadyRunning},
		{"document without a version", session.Edit{Document: doc(session.Active)}, &idle, nil, session.ErrStale},
		{"document", session.Edit{Version: 3, Document: doc(session.Active)}, &idle, nil, nil},
		{"document with an impossible status", session.Edit{Version: 3, Document: doc(session.Interrupted)}, &idle, nil, session.ErrTransition},
		{"status", session.Edit{Change: session.Change{Status: session.Paused}}, &idle, nil, nil},
		{"impossible status", session.Edit{Change: session.Change{Status: session.Interrupted}}, &idle, nil, session.ErrTransition},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if err := test.edit.Guard(test.state, test.run, now); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

func TestEditApply(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	state := session.State{ID: "a", Version: 3, Turn: 2, StepCount: 4, LastCommit: "c", UserID: "old", Metadata: map[string]string{"k": "1"}}
	edit := session.Edit{
		Document: &session.State{ID: "a", Version: 9, Turn: 9, StepCount: 9, UserID: "new", Tags: []string{"t", "t"}, Metadata: map[string]string{"l": "2"}},
		Metadata: map[string]*string{"l": nil, "m": new("3")}, Steps: 1, Resumes: 2,
	}
	if err := edit.Apply(&state, now); err != nil {
		t.Fatal(err)
	}
	want := session.State{
		ID: "a", Version: 3, Turn: 2, StepCount: 5, ResumeCount: 2, UserID: "new", Tags: []string{"t"},
		Metadata: map[string]string{"m": "3"}, UpdatedAt: now,
	}
	if string(encode(&state)) != string(encode(&want)) {
		t.Errorf("got %+v\nwant %+v", state, want)
	}
	beside := session.State{LastCommit: "c"}
	if err := (&session.Edit{Change: session.Change{Children: []session.ChildRef{}}}).Apply(&beside, now); err != nil || beside.LastCommit != "c" || !beside.UpdatedAt.IsZero() {
		t.Errorf("an edit of children alone leaves %+v, %v", beside, err)
	}
}
