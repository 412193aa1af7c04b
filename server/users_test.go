package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// dump writes down everything that a tenant has, but for leases, which their
// holders renew.
func dump(t testing.TB, db store.Backend, tenant string) string {
	t.Helper()
	ctx := t.Context()
	sessions, streams := db.Sessions().Tenant(tenant), db.Streams().Tenant(tenant)
	var b strings.Builder
	note := func(what string, value any, err error) {
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		raw, err := session.Encode(value)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		fmt.Fprintf(&b, "%s %s\n", what, raw)
	}
	for _, id := range tenantSessions(t, db, tenant) {
		state := closed(t, sessions, id)
		state.Lease = session.Lease{}
		note("session", state, nil)
		messages, err := sessions.AllMessages(ctx, id)
		note("messages", messages, err)
		runs, err := sessions.Runs(ctx, id, session.PageRequest{Limit: session.MaxPageSize})
		note("runs", runs, err)
		checkpoints, err := sessions.Checkpoints(ctx, id, session.PageRequest{Limit: session.MaxPageSize})
		note("checkpoints", checkpoints, err)
		pending, err := sessions.PendingCalls(ctx, id, true)
		note("pending", pending, err)
		children, err := sessions.Children(ctx, id)
		note("children", children, err)
		inbox, err := sessions.Inbox(ctx, id)
		note("inbox", inbox, err)
		stop, err := sessions.StopRequest(ctx, id, state.CurrentRunID)
		note("stop", stop, err)
		if state.StreamID == id {
			info, err := streams.Info(ctx, id)
			note("stream", info, err)
			chunks, err := streams.Chunks(ctx, id, 0, 10_000)
			note("chunks", chunks, err)
		}
	}
	return b.String()
}

// closed loads a session once its run, if it has ended, has given its lease back: the
// stream, which tests wait for, ends a moment before that.
func closed(t testing.TB, sessions session.Store, id string) *session.State {
	t.Helper()
	var state *session.State
	eventually.Poll(t, "the run of session "+id+", which has ended, gives its lease back", func() bool {
		var err error
		if state, err = sessions.Load(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		run, err := sessions.CurrentRun(t.Context(), id)
		if err != nil && !errors.Is(err, session.ErrNotFound) {
			t.Fatal(err)
		}
		return run == nil || !run.Status.Ended() || state.Lease.Owner == ""
	})
	return state
}

func tenantSessions(t testing.TB, db store.Backend, tenant string) []string {
	t.Helper()
	page, err := db.Sessions().Tenant(tenant).List(context.WithoutCancel(t.Context()), session.Query{
		PageRequest: session.PageRequest{Limit: session.MaxPageSize},
	})
	if err != nil {
		t.Fatal(err)
	}
	if page.HasMore {
		t.Fatal("too many sessions to compare")
	}
	var ids []string
	for _, s := range page.Items {
		ids = append(ids, s.ID)
	}
	slices.Sort(ids)
	return ids
}

// No route reads or changes what is another user's, of the same tenant or of
// another. That it is there does not show.
func TestUsersAndTenants(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		alice := staffed(t, db, nil)
		f := alice.fill("a/")
		before := dump(t, db, "north")
		all := operations(alice)
		// Last, for where the id is free they make a session.
		for _, id := range []string{"post-chat", "post-start"} {
			at := slices.IndexFunc(all, func(o operation) bool { return o.id == id })
			all = append(slices.Delete(slices.Clone(all), at, at+1), all[at])
		}
		for _, token := range []string{"bob-token", "bob-south-token", "alice-south-token"} {
			intruder := alice.as(token)
			for _, o := range all {
				for _, id := range f.sessions() {
					intrude(t, intruder, o, f, id)
				}
			}
			intruder.sneak(f)
		}
		after := dump(t, db, "north")
		was, is := ownRows(before, f), ownRows(after, f)
		if len(was) != len(is) {
			t.Fatalf("alice had %d rows and has %d", len(was), len(is))
		}
		for i := range was {
			if was[i] != is[i] {
				t.Errorf("alice's data has changed from\n%s\nto\n%s", was[i], is[i])
			}
		}
		for _, tenant := range []string{"north", "south"} {
			for _, id := range tenantSessions(t, db, tenant) {
				state, err := db.Sessions().Tenant(tenant).Load(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				own := slices.Contains(f.sessions(), id) && tenant == "north"
				if own != (state.UserID == "alice" && tenant == "north") {
					t.Errorf("session %s of %s belongs to %q", id, tenant, state.UserID)
				}
			}
		}
		// Alice herself, and an operator of her tenant, reach all of it.
		for _, token := range []string{"alice-token", "operator-token"} {
			for _, id := range f.sessions() {
				call[wire.Status](alice.as(token), http.StatusOK, http.MethodGet, "/status?sessionId="+id, nil)
			}
		}
	})
}

// Of two users who take one id at the same moment, one has it.
func TestUsersRace(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		s := serve(t, db, []*helix.Agent{echo()}, nil)
		for i := range 25 {
			id := fmt.Sprintf("race-%d", i)
			var both sync.WaitGroup
			for _, user := range []string{"alice", "bob"} {
				both.Go(func() {
					status, raw := s.as(user+"-token").try(http.MethodPost, "/start", map[string]any{
						"sessionId": id, "agentType": "echo", "message": "I am " + user, "requestId": "the same",
					})
					if status != http.StatusOK && status != http.StatusNotFound {
						t.Errorf("%s is answered %d: %s", user, status, raw)
					}
				})
			}
			both.Wait()
			state, err := db.Sessions().Tenant("north").Load(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			s.as(state.UserID + "-token").settle(id)
			messages, err := db.Sessions().Tenant("north").AllMessages(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if len(messages) != 2 || messages[0].Content() != "I am "+state.UserID {
				t.Errorf("%s has a session with %+v", state.UserID, messages)
			}
		}
	})
}

// ownRows leaves out the lines of a dump that are about other users' sessions.
func ownRows(dump string, f *files) []string {
	var out []string
	own := false
	for line := range strings.Lines(dump) {
		if strings.HasPrefix(line, "session ") {
			own = slices.ContainsFunc(f.sessions(), func(id string) bool { return strings.Contains(line, `"sessionId":"`+id+`",`) })
		}
		if own {
			out = append(out, line)
		}
	}
	return out
}

// intrude makes an operation's request on a session of somebody else's.
func intrude(t *testing.T, s *service, o operation, f *files, id string) {
	t.Helper()
	e := aimed(examples(t, o, f), id)
	status, raw := s.try(o.method, e.on(o), e.body)
	if strings.Contains(raw, secret) || (!strings.Contains(raw, id) && slices.ContainsFunc(f.sessions(), func(other string) bool {
		return strings.Contains(raw, `"`+other+`"`)
	})) {
		t.Errorf("%s %s tells %s what is somebody else's: %s", o.method, e.on(o), s.token, raw)
	}
	addressed := strings.Contains(e.on(o), url.PathEscape(id)) || strings.Contains(e.on(o), id) || (e.body != nil && (e.body["sessionId"] == id || e.body["id"] == id))
	if o.id == "get-workspace" {
		return
	}
	if !addressed {
		if status == http.StatusNotFound {
			t.Errorf("%s %s is not about a session, and still 404", o.method, e.on(o))
		}
		return
	}
	makes := o.id == "post-start" || o.id == "post-chat"
	if makes && session.CheckChosenID(id) != nil { // nobody may choose it, whether it is there or not
		if status != http.StatusBadRequest || !strings.Contains(raw, "is reserved for sub-agents' sessions") {
			t.Errorf("%s %s is %d for an id of the framework's: %s", o.method, e.on(o), status, raw)
		}
		return
	}
	if makes && !strings.HasPrefix(s.token, "bob-token") {
		// In another tenant the id is free, or somebody else's there.
		if status != http.StatusOK && status != http.StatusNotFound {
			t.Errorf("%s %s in another tenant is %d: %s", o.method, e.on(o), status, raw)
		}
		return
	}
	want := http.StatusNotFound
	if o.id == "get-chat-id-stream" { // a page may ask before anything was said
		want = http.StatusNoContent
	}
	if o.id == "post-tasks-retry" || o.id == "post-tasks-drop" { // for operators, whatever is there
		want = http.StatusForbidden
	}
	if status != want {
		t.Errorf("%s %s is %d for %s, not 404: %s", o.method, e.on(o), status, s.token, raw)
		return
	}
	if makes {
		return
	}
	// The same as if it were not there.
	missing := aimed(examples(t, o, f), "no/such")
	if _, other := s.try(o.method, missing.on(o), missing.body); strings.ReplaceAll(other, "no/such", id) != raw {
		t.Errorf("%s %s is answered with %s, but what is not there with %s", o.method, e.on(o), raw, other)
	}
}

// aimed is an example about another session.
func aimed(e example, id string) example {
	if e.target != "" {
		e.target = id
	}
	if e.body != nil {
		e.body = maps.Clone(e.body)
		for _, field := range []string{"sessionId", "id"} {
			if _, ok := e.body[field]; ok && e.target == "" {
				e.body[field] = id
			}
		}
	}
	if before, after, ok := strings.Cut(e.query, "sessionId="); ok {
		_, rest, more := strings.Cut(after, "&")
		e.query = before + "sessionId=" + id
		if more {
			e.query += "&" + rest
		}
	}
	return e
}

// try makes a request, whatever it is answered with.
func (s *service) try(method, path string, body map[string]any) (int, string) {
	s.t.Helper()
	var sent any
	if body != nil {
		sent = body
	}
	answer := s.request(method, path, sent)
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.StatusCode, string(raw)
}

// said is a message of the user's with more than it may have.
func said(more map[string]any) map[string]any {
	out := map[string]any{"role": "user", "parts": []any{map[string]any{"kind": "text", "text": "hello"}}}
	maps.Copy(out, more)
	return out
}

// sneak tries ways around the front: things of somebody else's named in requests on
// sessions of one's own.
func (s *service) sneak(f *files) {
	s.t.Helper()
	own := s.fill("own-" + s.token + "/")
	hidden := func(status int, raw, what string) {
		s.t.Helper()
		if status != http.StatusNotFound && status != http.StatusBadRequest {
			s.t.Errorf("%s is %d for %s: %s", what, status, s.token, raw)
		}
	}
	status, raw := s.try(http.MethodPost, "/submit-tool-result", map[string]any{
		"sessionId": own.waiting, "toolCallId": f.call, "approval": map[string]any{"approvalId": f.approval, "approved": true},
	})
	hidden(status, raw, "an answer to somebody else's call")
	status, raw = s.try(http.MethodPost, "/resume", map[string]any{"sessionId": own.paused, "checkpointId": f.checkpoint})
	hidden(status, raw, "a resume from somebody else's checkpoint")
	status, raw = s.try(http.MethodPost, "/sessions/"+url.PathEscape(own.done)+"/branch", map[string]any{
		"checkpointId": f.checkpoint, "message": "hello",
	})
	hidden(status, raw, "a branch from somebody else's checkpoint")
	status, raw = s.try(http.MethodGet, "/sse?sessionId="+own.done+"&run="+f.run, nil)
	hidden(status, raw, "the stream of somebody else's run")
	// What is not for users, on sessions of one's own.
	for what, body := range map[string]map[string]any{
		"an id of the framework's":  {"sessionId": f.waiting + "-sub-call_0123456789abcdef01234567", "agentType": "echo", "message": "hello"},
		"a sub-agent's session":     {"sessionId": own.child, "agentType": "clerk", "message": "hello"},
		"a hidden message":          {"agentType": "echo", "message": []any{said(map[string]any{"metadata": map[string]any{"hidden": true}})}},
		"a message of another time": {"agentType": "echo", "message": []any{said(map[string]any{"at": "1999-01-01T00:00:00Z"})}},
		"a message of a step":       {"agentType": "echo", "message": []any{said(map[string]any{"step": 3})}},
		"a message of a run":        {"agentType": "echo", "message": []any{said(map[string]any{"runId": f.run})}},
		"a reply's id":              {"agentType": "echo", "message": []any{said(map[string]any{"id": f.run + "/1"})}},
		"a field of later":          {"agentType": "echo", "message": []any{said(map[string]any{"later": 1})}},
		"state that is not open":    {"agentType": "boss", "message": "hello", "state": map[string]any{"text": "admin"}},
	} {
		status, raw := s.try(http.MethodPost, "/start", body)
		if status != http.StatusBadRequest {
			s.t.Errorf("%s is %d for %s: %s", what, status, s.token, raw)
		}
	}
	// An internal agent is refused as one that is not there.
	if status, raw := s.try(http.MethodPost, "/start", map[string]any{"agentType": "vault", "message": "hello"}); status != http.StatusNotFound {
		s.t.Errorf("an internal agent is %d for %s: %s", status, s.token, raw)
	}
	for _, path := range []string{"/resume", "/sessions/" + url.PathEscape(own.child) + "/branch"} {
		body := map[string]any{"message": "hello"}
		if path == "/resume" {
			body["sessionId"] = own.child
		}
		status, raw := s.try(http.MethodPost, path, body)
		hidden(status, raw, "words to a sub-agent")
	}
	if s.token == "bob-token" {
		for _, body := range []map[string]any{{"sessionId": f.done}, {"sessionId": f.done, "message": "hello"}} {
			status, raw = s.try(http.MethodPost, "/sessions/"+url.PathEscape(own.done)+"/branch", body)
			hidden(status, raw, "a branch over somebody else's session")
		}
	}
	for _, query := range []string{"?user=alice", "?parent=" + f.waiting, "?metadata.topic=" + secret, "?tag=" + secret, ""} {
		page := call[wire.Sessions](s, http.StatusOK, http.MethodGet, "/sessions"+query, nil)
		for _, item := range page.Items {
			if slices.Contains(f.sessions(), item.ID) && item.Tenant == "north" {
				s.t.Errorf("GET /sessions%s lists %s for %s", query, item.ID, s.token)
			}
		}
	}
}
