package server_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
)

// A stop is aimed at a run: one that is over, or another's, is not touched.
func TestStops(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		s := staffed(t, db, nil)
		for _, c := range []struct {
			path   string
			stop   session.StopKind
			status session.Status
		}{{"/interrupt", session.StopInterrupt, session.Interrupted}, {"/abort", session.StopAbort, session.Failed}} {
			started := call[wire.Started](s, http.StatusOK, http.MethodPost, "/start", wire.Start{AgentType: "slow", Message: wire.Text("go")})
			id := started.SessionID
			s.untilChunk(id, "text_delta")
			s.refused(http.StatusConflict, session.CodeStale, http.MethodPost, c.path, wire.Stop{SessionID: id, RunID: "run_other"})
			stopping := call[wire.Stopping](s, http.StatusAccepted, http.MethodPost, c.path,
				wire.Stop{SessionID: id, RunID: started.RunID, Reason: "enough"})
			if stopping != (wire.Stopping{SessionID: id, RunID: started.RunID, Stop: c.stop}) {
				t.Errorf("%s answers %+v", c.path, stopping)
			}
			s.settle(id)
			if status := call[wire.Status](s, http.StatusOK, http.MethodGet, "/status?sessionId="+id, nil); status.Status != c.status {
				t.Errorf("after %s the session is %s", c.path, status.Status)
			}
			s.refused(http.StatusConflict, session.CodeStale, http.MethodPost, c.path, wire.Stop{SessionID: id})
		}
	})
}

// An answer to a call below is given to the conversation, which continues with it.
func TestSubmit(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		s := staffed(t, db, nil)
		f := s.fill("s-")
		status := call[wire.Status](s, http.StatusOK, http.MethodGet, "/status?sessionId="+f.waiting, nil)
		if !status.AwaitingClientTool || len(status.Pending) != 1 || status.Pending[0].SessionID != f.child || len(status.AwaitingChildren) != 1 {
			t.Errorf("status: %+v", status)
		}
		unknown := call[wire.Submitted](s, http.StatusNotFound, http.MethodPost, "/submit-tool-result",
			wire.Submit{SessionID: f.waiting, ToolCallID: "call_none", Error: "x"})
		if unknown.Outcome != session.SubmitUnknownCall || unknown.Code != wire.CodeUnknownCall || unknown.Message == "" {
			t.Errorf("an unknown call is answered with %+v", unknown)
		}
		s.refused(http.StatusBadRequest, session.CodeSubmission, http.MethodPost, "/submit-tool-result",
			wire.Submit{SessionID: f.waiting, ToolCallID: f.call, Result: []byte(`1`)})
		in := wire.Submit{
			SessionID: f.waiting, ToolCallID: f.call, Approval: &wire.Approval{ApprovalID: f.approval, Approved: true},
			Seen: &wire.Seen{ToolName: "publish", Input: []byte(`{"text":"something else"}`)}, Resume: true,
		}
		s.refused(http.StatusBadRequest, session.CodeSubmission, http.MethodPost, "/submit-tool-result", in)
		in.Seen = nil
		done := call[wire.Submitted](s, http.StatusOK, http.MethodPost, "/submit-tool-result", in)
		if done.Outcome != session.SubmitAccepted || done.Continuation != string(helix.CallerResumes) || done.SessionID != f.child ||
			done.RootSessionID != f.waiting || done.RunID == "" {
			t.Errorf("submitted: %+v", done)
		}
		s.settle(f.waiting)
		again := call[wire.Submitted](s, http.StatusOK, http.MethodPost, "/submit-tool-result", in)
		if again.Outcome != session.SubmitAlreadyCompleted || again.RunID != "" {
			t.Errorf("submitted again: %+v", again)
		}
		status = call[wire.Status](s, http.StatusOK, http.MethodGet, "/status?sessionId="+f.waiting, nil)
		if status.Status != session.Completed || !strings.Contains(string(status.Output), "published "+secret) || status.RunID != done.RunID {
			t.Errorf("status: %+v", status)
		}
		entries, err := db.Sessions().Tenant("north").PendingCalls(t.Context(), f.child, true)
		if err != nil || entries[0].Response.By != "alice" {
			t.Errorf("the answer is %+v, %v", entries, err)
		}
	})
}

func TestOperating(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		s := staffed(t, db, nil)
		f := s.fill("o/")
		path := func(id, rest string) string { return "/sessions/" + url.PathEscape(id) + rest }

		// A session that is held does not run, until it is resumed.
		more := wire.Start{SessionID: f.paused, AgentType: "echo", Message: wire.Text("more")}
		s.refused(http.StatusConflict, session.CodePaused, http.MethodPost, "/start", more)
		if paused := call[wire.Paused](s, http.StatusOK, http.MethodPost, path(f.paused, "/pause"), nil); paused.Was != session.Paused {
			t.Errorf("paused again: %+v", paused)
		}
		s.refused(http.StatusConflict, session.CodeRunning, http.MethodPost, path(f.running, "/pause"), wire.Pause{})
		call[wire.Started](s, http.StatusOK, http.MethodPost, "/resume", wire.Resume{SessionID: f.paused, Message: wire.Text("more")})
		s.settle(f.paused)

		// A failed turn runs again, once per request.
		first := call[wire.Started](s, http.StatusOK, http.MethodPost, path(f.failed, "/retry"), wire.Retry{RequestID: "r"})
		s.settle(f.failed)
		if again := call[wire.Started](s, http.StatusOK, http.MethodPost, path(f.failed, "/retry"), wire.Retry{RequestID: "r"}); again != first {
			t.Errorf("a repeat is %+v, not %+v", again, first)
		}
		s.refused(http.StatusConflict, session.CodeNotResumable, http.MethodPost, path(f.done, "/retry"), wire.Retry{})

		// A copy, with a turn or without.
		branch := call[wire.Branched](s, http.StatusOK, http.MethodPost, path(f.done, "/branch"), wire.Branch{Message: wire.Text("else")})
		s.settle(branch.SessionID)
		one := 1
		quiet := call[wire.Branched](s, http.StatusOK, http.MethodPost, path(f.done, "/branch"), wire.Branch{SessionID: "o/copy", MessageIndex: &one})
		if quiet != (wire.Branched{SessionID: "o/copy", StreamID: "o/copy"}) {
			t.Errorf("a copy is %+v", quiet)
		}
		s.refused(http.StatusConflict, session.CodeExists, http.MethodPost, path(f.done, "/branch"), wire.Branch{SessionID: "o/copy"})
		for id, want := range map[string]int{f.done: 2, branch.SessionID: 4, "o/copy": 1} {
			page := call[wire.MessagePage](s, http.StatusOK, http.MethodGet, path(id, "/messages?total=true&limit=1"), nil)
			if page.Total == nil || *page.Total != want || len(page.Items) != 1 || page.HasMore != (want > 1) {
				t.Errorf("the messages of %s are %+v", id, page)
			}
		}
		s.start(wire.Start{SessionID: "o/copy", AgentType: "echo", Message: wire.Text("continue")}) // it is a session like others

		// A session goes with those below it.
		deleted := call[wire.Deleted](s, http.StatusOK, http.MethodDelete, path(f.waiting, ""), nil)
		slices.Sort(deleted.Sessions)
		if !slices.Equal(deleted.Sessions, []string{f.waiting, f.child}) {
			t.Errorf("deleted: %q", deleted.Sessions)
		}
		for _, id := range deleted.Sessions {
			s.refused(http.StatusNotFound, session.CodeNotFound, http.MethodGet, path(id, ""), nil)
		}
		if runs := call[wire.RunPage](s, http.StatusOK, http.MethodGet, path(f.failed, "/runs"), nil); len(runs.Items) != 2 {
			t.Errorf("the runs are %+v", runs)
		}
		state := call[session.State](s, http.StatusOK, http.MethodGet, path(f.done, ""), nil)
		if state.ID != f.done || state.UserID != "alice" || state.Metadata["topic"] != secret {
			t.Errorf("the session is %+v", state)
		}
	})
}

func TestListing(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		s := staffed(t, db, nil)
		f := s.fill("l-")
		other := s.as("bob-token").fill("b-")
		ids := func(s *service, query string) []string {
			t.Helper()
			var out []string
			for next := ""; ; {
				page := call[wire.Sessions](s, http.StatusOK, http.MethodGet, "/sessions?limit=2"+query+next, nil)
				for _, item := range page.Items {
					out = append(out, item.ID)
				}
				if !page.HasMore {
					slices.Sort(out)
					return out
				}
				next = "&cursor=" + url.QueryEscape(page.Next)
			}
		}
		sorted := func(all ...string) []string { slices.Sort(all); return all }
		operator := s.as("operator-token")
		for _, c := range []struct {
			who   *service
			query string
			want  []string
		}{
			{s, "", sorted(f.sessions()...)},
			{operator, "", sorted(append(f.sessions(), other.sessions()...)...)},
			{operator, "&user=bob", sorted(other.sessions()...)},
			{s, "&user=bob", nil},
			{s, "&roots=true", sorted(f.done, f.paused, f.failed, f.waiting, f.running)},
			{s, "&parent=" + f.waiting, []string{f.child}},
			{s, "&status=failed&status=paused", sorted(f.failed, f.paused)},
			{s, "&activity=running", []string{f.running}},
			{s, "&activity=waiting", sorted(f.waiting, f.child)},
			{s, "&activity=waiting&roots=true", []string{f.waiting}},
			{s, "&activity=stopped", []string{f.paused}},
			{s, "&activity=failed", []string{f.failed}},
			{s, "&activity=done", []string{f.done}},
			{s, "&activity=new", nil},
			{operator, "&activity=stopped", sorted(f.paused, other.paused)},
			{operator, "&activity=stopped&user=bob", []string{other.paused}},
			{s, "&agent=slow", []string{f.running}},
			{s, "&metadata.topic=" + secret + "&agent=echo", sorted(f.done, f.paused)},
			{s, "&metadata.topic=other", nil},
			{s, "&tag=" + secret + "&agent=boss", []string{f.waiting}},
			{s, "&tag=" + secret + "&tag=other", nil},
			{s, "&createdBefore=2020-01-01T00:00:00Z", nil},
		} {
			if got := ids(c.who, c.query); !slices.Equal(got, c.want) {
				t.Errorf("GET /sessions?%s lists %q, not %q", c.query, got, c.want)
			}
		}
		for id, want := range map[string]session.Activity{
			f.running: session.ActivityRunning, f.waiting: session.ActivityWaiting, f.child: session.ActivityWaiting,
			f.paused: session.ActivityStopped, f.failed: session.ActivityFailed, f.done: session.ActivityDone,
		} {
			state := call[session.State](s, http.StatusOK, http.MethodGet, "/sessions/"+url.PathEscape(id), nil)
			status := call[wire.Status](s, http.StatusOK, http.MethodGet, "/status?sessionId="+url.QueryEscape(id), nil)
			if state.Activity != want || status.Activity != want {
				t.Errorf("%s is %s in its document and %s in its status, not %s", id, state.Activity, status.Activity, want)
			}
		}
		for _, c := range []struct {
			who   *service
			query string
			want  []string
		}{
			{s, "", []string{f.call}},
			{s, "?user=alice", []string{f.call}},
			{s, "?user=bob", nil},
			{s.as("bob-token"), "", []string{other.call}},
			{operator, "", []string{f.call, other.call}},
			{operator, "?order=newest", []string{other.call, f.call}},
			{operator, "?order=oldest&limit=1", []string{f.call}},
			{operator, "?user=bob", []string{other.call}},
			{operator, "?user=eve", nil},
		} {
			page := call[wire.Waiting](c.who, http.StatusOK, http.MethodGet, "/waiting"+c.query, nil)
			var got []string
			for _, item := range page.Items {
				got = append(got, item.Call.CallID)
				if item.RootID == item.SessionID || item.Agent != "clerk" || item.Call.Tool == "" || len(item.Call.Input) == 0 || item.Call.CreatedAt.IsZero() {
					t.Errorf("GET /waiting lists %+v", item)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("GET /waiting%s lists %q, not %q", c.query, got, c.want)
			}
		}
		waits := call[wire.Waiting](s, http.StatusOK, http.MethodGet, "/waiting", nil).Items[0]
		if waits.RootID != f.waiting || waits.SessionID != f.child || waits.UserID != "alice" {
			t.Errorf("what waits is %+v", waits)
		}
		for _, query := range []string{"?order=best", "?limit=0", "?cursor=x", "?agent=echo", "?user=%00"} {
			s.refused(http.StatusBadRequest, session.CodeInvalid, http.MethodGet, "/waiting"+query, nil)
		}
		s.refused(http.StatusBadRequest, session.CodeInvalid, http.MethodGet, "/sessions?activity=busy", nil)
		s.refused(http.StatusBadRequest, session.CodeInvalid, http.MethodGet, "/sessions?activity=", nil)
	})
}

func TestAgents(t *testing.T) {
	t.Parallel()
	s := staffed(t, inMemory(t), nil)
	items := call[wire.Agents](s, http.StatusOK, http.MethodGet, "/agents", nil).Items
	if len(items) != 5 || items[0].Name != "echo" {
		t.Fatalf("the agents are %+v", items)
	}
	clerk, boss := items[1], items[2]
	if clerk.Tools[0].Kind != wire.ToolApproval || clerk.Tools[1].Kind != wire.ToolClient || !strings.Contains(string(clerk.Tools[1].InputSchema), `"text"`) {
		t.Errorf("the clerk is %+v", clerk)
	}
	if !slices.Equal(boss.SubAgents, []string{"clerk"}) || !slices.Equal(boss.Companions, []string{"clerk"}) || boss.OutputSchema == nil {
		t.Errorf("the boss is %+v", boss)
	}
}

// A snapshot and what the stream shows after it are the whole session, at any
// moment: nothing twice, nothing missing.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		s := staffed(t, db, nil)
		f := s.fill("n/")
		for _, id := range []string{f.done, f.waiting, f.running, f.failed} {
			snapshot := call[wire.Snapshot](s, http.StatusOK, http.MethodGet, "/sessions/"+url.PathEscape(id)+"/snapshot", nil)
			stored, err := db.Sessions().Tenant("north").AllMessages(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			items, err := db.Streams().Tenant("north").Chunks(t.Context(), id, snapshot.Sequence, 1000)
			if err != nil {
				t.Fatal(err)
			}
			var rest []stream.Chunk
			for _, item := range items {
				rest = append(rest, *item.Chunk)
			}
			folded := stream.FoldOnto(id, snapshot.Messages, rest)
			if id == f.running { // its reply is shown and not yet stored
				folded = folded[:len(folded)-1]
			}
			if len(folded) != len(stored) {
				t.Fatalf("%s: the snapshot and its stream are %d messages, not %d", id, len(folded), len(stored))
			}
			for i := range stored {
				if folded[i].ID != stored[i].ID || folded[i].Content() != stored[i].Content() {
					t.Errorf("%s: message %d is %+v, not %+v", id, i, folded[i], stored[i])
				}
			}
		}
	})
}

// What a provider says of a failure, which may hold a key, is for operators.
func TestProvidersErrorsAreNotShown(t *testing.T) {
	t.Parallel()
	const key = "sk-123"
	onBackends(t, func(t *testing.T, db store.Backend) {
		asked := 0
		agent := &helix.Agent{Name: "desk", Model: speaker(func(*llm.Request) scripted.Step {
			if asked++; asked == 1 {
				return scripted.Fail(session.CodeOverloaded, true, "the key "+key+" is asked for too much")
			}
			return scripted.Fail(session.CodeAuth, false, "the key "+key+" is wrong")
		})}
		s := serve(t, db, []*helix.Agent{agent}, nil)
		id := s.start(wire.Start{AgentType: "desk", Message: wire.Text("go")}).SessionID
		var streamed string
		for _, path := range []string{"/sse?sessionId=" + id, "/sessions/" + id, "/sessions/" + id + "/runs", "/status?sessionId=" + id} {
			_, raw := s.try(http.MethodGet, path, nil)
			if strings.Contains(raw, key) || !strings.Contains(raw, string(session.CodeAuth)) {
				t.Errorf("GET %s shows a user %s", path, raw)
			}
			streamed += raw
			if path[1:4] == "sta" { // it is for pages
				continue
			}
			if _, raw := s.as("operator-token").try(http.MethodGet, path, nil); !strings.Contains(raw, key) {
				t.Errorf("GET %s shows an operator %s", path, raw)
			}
		}
		for _, kind := range []stream.Kind{stream.Failure, stream.StepDiscarded} {
			if !strings.Contains(streamed, `"type":"`+string(kind)+`"`) {
				t.Errorf("the stream has no chunk %s: %s", kind, streamed)
			}
		}
	})
}

// A user can neither delete a sub-agent that is at work nor put a session in its place.
func TestChildAtWorkStays(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		gate := make(chan struct{})
		slow := staff(gate)[4]
		boss := &helix.Agent{
			Name: "boss", SubAgents: []helix.SubAgent{{Agent: slow}},
			Model: scripted.New(scripted.Call("subagent__slow", map[string]string{"task": "work"}), scripted.Text("Thanks.")).ByPosition(),
		}
		s := serve(t, db, []*helix.Agent{boss, slow}, nil)
		open := sync.OnceFunc(func() { close(gate) })
		t.Cleanup(open)
		root := strings.Repeat("r", 200)
		call[wire.Started](s, http.StatusOK, http.MethodPost, "/start", wire.Start{SessionID: root, AgentType: "boss", Message: wire.Text("Go!")})
		s.untilChunk(root, "text_delta")
		child := call[wire.Sessions](s, http.StatusOK, http.MethodGet, "/sessions?parent="+root, nil).Items[0].ID
		at := "/sessions/" + url.PathEscape(child)
		s.refused(http.StatusConflict, session.CodeRunning, http.MethodDelete, at, nil)
		s.refused(http.StatusBadRequest, session.CodeInvalid, http.MethodPost, "/start", wire.Start{SessionID: child, AgentType: "slow", Message: wire.Text("approved")})
		open()
		s.settle(root)
		call[wire.Deleted](s, http.StatusOK, http.MethodDelete, at, nil)
		s.refused(http.StatusBadRequest, session.CodeInvalid, http.MethodPost, "/start", wire.Start{SessionID: child, AgentType: "slow", Message: wire.Text("approved")})
	})
}
