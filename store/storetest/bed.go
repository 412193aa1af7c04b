package storetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/helixagents/helix/session"
)

// noon is a time for documents that need one, in whole microseconds, which every
// store can keep.
var noon = time.Date(2026, 3, 4, 12, 0, 0, 123456000, time.UTC)

// raw returns JSON that is written in a test.
func raw(s string) json.RawMessage { return json.RawMessage(s) }

// ok ends the case if err is not nil.
func (t *bed) ok(err error, what string) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// refused ends the case unless err is of want's code.
func (t *bed) refused(err error, want *session.Error, what string) {
	t.Helper()
	_ = t.refusal(err, want, what)
}

// refusal is refused for a case that examines the error.
func (t *bed) refusal(err error, want *session.Error, what string) *session.Error {
	t.Helper()
	if err == nil {
		t.Fatalf("%s: succeeded, want %s", what, want.Code)
	}
	e, ok := errors.AsType[*session.Error](err)
	if !ok {
		t.Fatalf("%s: got %T (%v), want a *session.Error with code %s", what, err, err, want.Code)
	}
	if !errors.Is(err, want) {
		t.Fatalf("%s: got %s (%v), want %s", what, e.Code, err, want.Code)
	}
	return e
}

// conflict requires an error that also carries the state of the session.
func (t *bed) conflict(err error, want *session.Error, holds *session.State, what string) {
	t.Helper()
	e := t.refusal(err, want, what)
	if e.Saw == nil {
		t.Fatalf("%s: the error does not carry the state of the session: %v", what, err)
	}
	if *e.Saw != holds.Saw() {
		t.Fatalf("%s: the error carries the state %+v, the session is %+v", what, *e.Saw, holds.Saw())
	}
}

// equal compares what a case got with what it wants.
func equal[V any](t *bed, what string, got, want V) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s: got %s, want %s", what, show(got), show(want))
	}
}

// sameTime compares instants, regardless of their zone.
func sameTime(t *bed, what string, got, want time.Time) {
	t.Helper()
	if !got.Equal(want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// between requires that the store has noted a time between two times of its clock.
func (t *bed) between(what string, at, from, to time.Time) {
	t.Helper()
	if at.Before(from.Truncate(time.Microsecond)) || at.After(to) {
		t.Fatalf("%s %v, want a time from %v to %v", what, at, from, to)
	}
}

// sameJSON compares persisted forms.
func sameJSON(t *bed, what string, got, want any) {
	t.Helper()
	if g, w := show(got), show(want); g != w {
		t.Fatalf("%s:\n got %s\nwant %s", what, g, w)
	}
}

// show returns a value's persisted form, or its form in fmt.
func show(v any) string {
	switch v.(type) {
	case string, error, bool, int, int64:
		return fmt.Sprintf("%v", v)
	}
	out, err := session.Encode(v)
	if err != nil {
		return fmt.Sprintf("%+v", v)
	}
	return clip(string(out))
}

func clip(s string) string {
	if len(s) > 4000 {
		return s[:2000] + " … " + s[len(s)-2000:]
	}
	return s
}

// blank returns a new session's document.
func blank(id string) *session.State {
	return &session.State{ID: id, Agent: "tester", Status: session.Active, StreamID: id}
}

// create creates a session, with changes to the blank document.
func (t *bed) create(id string, change ...func(*session.State)) *session.State {
	t.Helper()
	state := blank(id)
	for _, f := range change {
		f(state)
	}
	t.ok(session.Create(t.Context(), t.store(), state), "create "+id)
	return t.load(id)
}

// custom sets a document's custom state.
func custom(object string) func(*session.State) {
	return func(s *session.State) { s.Custom = document(object) }
}

func document(object string) session.CustomState {
	d, err := session.ParseCustomState(raw(object))
	if err != nil {
		panic("storetest: " + object + ": " + err.Error())
	}
	return d
}

func (t *bed) load(id string) *session.State {
	t.Helper()
	state, err := t.store().Load(t.Context(), id)
	t.ok(err, "load "+id)
	return state
}

// customIs checks custom state as JSON, keys in order.
func (t *bed) customIs(id, want string) {
	t.Helper()
	state := t.load(id)
	t.documentIs("custom state of "+id, &state.Custom, want)
}

func (t *bed) documentIs(what string, d *session.CustomState, want string) {
	t.Helper()
	got, err := d.MarshalJSON()
	t.ok(err, what)
	if compact(string(got)) != compact(want) {
		t.Fatalf("%s: got %s, want %s", what, clip(string(got)), clip(want))
	}
}

func compact(s string) string {
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(s)); err != nil {
		return s
	}
	return b.String()
}

// delete deletes a session.
func (t *bed) delete(id string) error {
	_, err := t.store().Delete(t.Context(), id)
	return err
}

// exists checks whether a session exists.
func (t *bed) exists(id string, want bool) {
	t.Helper()
	got, err := t.store().Exists(t.Context(), id)
	t.ok(err, "Exists "+id)
	if got != want {
		t.Fatalf("session %s: exists is %v, want %v", id, got, want)
	}
}

// user returns a message from the user.
func user(id, text string) session.Message {
	m := session.UserText(text)
	m.ID = id
	return m
}

// reply returns an assistant message that makes calls.
func reply(id string, callIDs ...string) session.Message {
	m := session.Message{ID: id, Role: session.RoleAssistant, Parts: []session.Part{session.Text("reply " + id)}}
	for _, call := range callIDs {
		m.Parts = append(m.Parts, session.Part{
			Kind: session.PartToolCall, CallID: call, Tool: "tool", Input: raw(`{"a":1}`),
		})
	}
	return m
}

// result returns the message that answers a call.
func result(callID, output string) session.Message {
	return session.ToolResult(session.Part{CallID: callID, Tool: "tool"}, raw(output))
}

// call returns an open call's row.
func call(messageID, callID string, index int) session.Call {
	return session.Call{
		MessageID: messageID, ID: callID, Index: index, Tool: "tool", Kind: session.CallServer, Status: session.CallOpen,
	}
}

// settled returns a call with its result.
func settled(c session.Call, output string) session.Call {
	m := result(c.ID, output)
	c.Status, c.Result = session.CallSettled, &m
	return c
}

// waiting returns a pending entry.
func waiting(callID string) session.Pending {
	return session.Pending{
		CallID: callID, Tool: "ask", Kind: session.PendingClientTool, State: session.PendingWaiting, Input: raw(`{"q":1}`),
	}
}

// answer returns a submission with a client tool's result.
func answer(callID, result string) session.Submission {
	return session.Submission{
		CallID:   callID,
		Response: session.Response{Kind: session.PendingClientTool, Result: raw(result), By: "someone"},
	}
}

// texts lists the texts of the messages of a session.
func (t *bed) texts(id string) []string {
	t.Helper()
	messages, err := t.store().AllMessages(t.Context(), id)
	t.ok(err, "AllMessages "+id)
	out := make([]string, len(messages))
	for i := range messages {
		out[i] = messages[i].ID
	}
	return out
}

// messagesAre checks a transcript by message ids.
func (t *bed) messagesAre(id string, want ...string) {
	t.Helper()
	if got := t.texts(id); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Fatalf("messages of %s: got %v, want %v", id, got, want)
	}
	n, err := session.MessageCount(t.Context(), t.store(), id)
	t.ok(err, "MessageCount")
	equal(t, "message count of "+id, n, len(want))
	equal(t, "message count in the document of "+id, t.load(id).MessageCount, len(want))
}

// turn is a run in progress, as the holder of its lease sees it.
type turn struct {
	t       *bed
	id, run string
	fence   session.Fence
	version int64
	commits int
}

// startOf returns the request that starts a run on a session in its current state.
func (t *bed) startOf(id, run string) *session.StartRun {
	t.Helper()
	state := t.load(id)
	return &session.StartRun{
		SessionID: id, ExpectVersion: state.Version, ExpectRun: state.CurrentRunID,
		Run: newRun(run), Owner: "owner-" + run, TTL: time.Hour,
	}
}

// createAndStart returns the request that starts a run on a session it creates.
func createAndStart(state *session.State, run string) *session.StartRun {
	return &session.StartRun{SessionID: state.ID, Create: state, Run: newRun(run), Owner: "owner-" + run, TTL: time.Hour}
}

func newRun(id string) session.Run {
	return session.Run{ID: id, Kind: session.RunExecute, Status: session.RunRunning, Agent: "tester", Runtime: "test"}
}

// begin starts a run.
func (t *bed) begin(start *session.StartRun) *turn {
	t.Helper()
	started, err := t.store().StartRun(t.Context(), start)
	t.ok(err, "start run "+start.Run.ID)
	return &turn{t: t, id: start.SessionID, run: start.Run.ID, fence: started.Lease.Fence(), version: started.Version}
}

// start starts a run on a session that exists.
func (t *bed) start(id, run string) *turn {
	t.Helper()
	return t.begin(t.startOf(id, run))
}

// running creates a session with a run in progress.
func (t *bed) running(id string) *turn {
	t.Helper()
	t.create(id)
	return t.start(id, "run-1")
}

// request returns the turn's next commit.
func (r *turn) request(change session.Change) *session.Commit {
	return &session.Commit{
		SessionID: r.id, RunID: r.run, Key: fmt.Sprintf("%s/%d", r.run, r.commits+1),
		Version: r.version, Fence: r.fence, Change: change,
	}
}

// commit makes the next commit, which must succeed.
func (r *turn) commit(change session.Change) *session.Committed {
	r.t.Helper()
	out, err := r.t.store().Commit(r.t.Context(), r.request(change))
	r.t.ok(err, "commit")
	equal(r.t, "version after the commit", out.Version, r.version+1)
	r.version = out.Version
	r.commits++
	return out
}

// refuse makes a commit that must be refused and change nothing.
func (r *turn) refuse(c *session.Commit, want *session.Error) {
	r.t.Helper()
	before := r.t.snapshot(r.id)
	_, err := r.t.store().Commit(r.t.Context(), c)
	r.t.refused(err, want, "commit")
	r.t.sameSnapshot(r.id, before)
}

// finish ends the run and releases the lease.
func (r *turn) finish(status session.RunStatus) {
	r.t.Helper()
	r.commit(outcome(status))
	r.t.ok(r.t.store().CloseRun(r.t.Context(), r.id, r.fence, true), "close run")
}

// outcome returns the change that ends a run.
func outcome(status session.RunStatus) session.Change {
	return session.Change{Status: status.SessionStatus(), Outcome: &session.Outcome{Status: status}}
}

// step returns the change of a step that writes a checkpoint.
func step(n int, checkpointID string, messages ...session.Message) session.Change {
	return session.Change{
		Messages: messages, StepCount: new(n),
		Checkpoint: &session.NewCheckpoint{ID: checkpointID, Step: n, Source: session.FromStep},
	}
}

// put replaces a key of custom state, push appends to one, drop deletes one.
func put(key, value string) session.Writes {
	return session.Writes{Ops: []session.Op{{Kind: session.OpReplace, Key: key, Value: raw(value)}}}
}

func push(key string, items ...string) session.Writes {
	op := session.Op{Kind: session.OpAppend, Key: key}
	for _, item := range items {
		op.Items = append(op.Items, raw(item))
	}
	return session.Writes{Ops: []session.Op{op}}
}

func drop(key string) session.Writes {
	return session.Writes{Ops: []session.Op{{Kind: session.OpDelete, Key: key}}}
}

// snapshot returns everything that a store returns about a session, so that a case
// can check that a refused operation has changed nothing.
func (t *bed) snapshot(id string) string {
	t.Helper()
	return t.snapshotOf(t.store(), id)
}

func (t *bed) snapshotOf(s session.Store, id string) string {
	t.Helper()
	ctx := t.Context()
	state, err := s.Load(ctx, id)
	if errors.Is(err, session.ErrNotFound) {
		return "no session " + id
	}
	t.ok(err, "snapshot: Load")
	var b strings.Builder
	add := func(what string, v any, err error) {
		t.Helper()
		if errors.Is(err, session.ErrNotFound) {
			v = "none"
		} else {
			t.ok(err, "snapshot: "+what)
		}
		out, err := session.Encode(v)
		t.ok(err, "snapshot: encode "+what)
		fmt.Fprintf(&b, "%s: %s\n", what, out)
	}
	add("document", state, nil)
	messages, err := s.AllMessages(ctx, id)
	add("messages", pointers(messages), err)
	runs, err := s.Runs(ctx, id, session.PageRequest{Limit: session.MaxPageSize})
	add("runs", pointers(runs.Items), err)
	checkpoints, err := s.Checkpoints(ctx, id, session.PageRequest{Limit: session.MaxPageSize})
	add("checkpoints", pointers(checkpoints.Items), err)
	latest, err := s.LatestCheckpoint(ctx, id)
	add("latest checkpoint", latest, err)
	pending, err := s.PendingCalls(ctx, id, true)
	add("pending", pointers(pending), err)
	children, err := s.Children(ctx, id)
	add("children", pointers(children), err)
	inbox, err := s.Inbox(ctx, id)
	add("inbox", inbox, err)
	own := []session.Task{}
	for _, task := range t.tasks(s) {
		if task.SessionID == id {
			own = append(own, task)
		}
	}
	add("tasks", own, nil)
	if state.CurrentRunID != "" {
		stop, err := s.StopRequest(ctx, id, state.CurrentRunID)
		add("stop", stop, err)
	}
	for i := range messages {
		if calls := messages[i].Calls(); len(calls) > 0 {
			rows, err := s.Calls(ctx, id, messages[i].ID)
			add("calls of "+messages[i].ID, pointers(rows), err)
			for _, c := range calls {
				owner, err := s.Owner(ctx, id, c.CallID)
				add("owner of "+c.CallID, owner, err)
			}
		}
	}
	return b.String()
}

// pointers returns pointers to the items, so that MarshalJSON methods of pointer
// receivers apply.
func pointers[V any](items []V) []*V {
	out := make([]*V, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}

// sameSnapshot checks that nothing has changed.
func (t *bed) sameSnapshot(id, before string) {
	t.Helper()
	if after := t.snapshot(id); after != before {
		t.Fatalf("something changed:\nbefore:\n%s\nafter:\n%s", clip(before), clip(after))
	}
}

// unchanged checks that f, which must be refused, changes nothing.
func (t *bed) unchanged(id string, f func()) {
	t.Helper()
	before := t.snapshot(id)
	f()
	t.sameSnapshot(id, before)
}

// together runs n functions at once and returns when all have returned. They start
// from one gate, so that they really overlap.
func together(n int, f func(i int)) {
	gate := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-gate
			f(i)
		})
	}
	close(gate)
	wg.Wait()
}
