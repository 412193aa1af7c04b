package client_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/client"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// TestConversation is a life of a session, by way of every route.
func TestConversation(t *testing.T) {
	t.Parallel()
	s := serve(t, nil, echo())
	ctx := t.Context()
	const id = "team/alice:1"
	run, err := s.Start(ctx, wire.Start{
		SessionID: id, AgentType: "echo", Message: wire.Text("hello <world>"), Tags: []string{"a b"}, Metadata: map[string]string{"k&": "v=1"},
		RequestID: "r1",
	})
	if err != nil {
		t.Fatal(err)
	}
	if again, err := s.Start(ctx, wire.Start{SessionID: id, AgentType: "echo", Message: wire.Text("hello <world>"), RequestID: "r1"}); err != nil || *again != *run {
		t.Errorf("a repeat gives %+v, %v", again, err)
	}
	items := all(t, s.Client, run.SessionID, run.StartSequence)
	if end := items[len(items)-1]; end.End == nil || end.End.Status != stream.EndCompleted {
		t.Errorf("it ends with %+v", end)
	}
	if status, err := s.Status(ctx, id); err != nil || status.Text != "You said: hello <world>" || status.RunID != run.RunID {
		t.Errorf("the status is %+v, %v", status, err)
	}
	if state, err := s.Session(ctx, id); err != nil || state.ID != id || state.UserID != "alice" || state.Agent != "echo" {
		t.Errorf("the session is %+v, %v", state, err)
	}
	put, err := s.db.Blobs().Put(ctx, &blob.Put{SessionID: id, Data: []byte("<b>bytes</b>")})
	if err != nil {
		t.Fatal(err)
	}
	if data, err := s.Blob(ctx, id, put.Ref); err != nil || string(data) != "<b>bytes</b>" {
		t.Errorf("the blob is %q, %v", data, err)
	}
	for _, ref := range []string{blob.RefOf(nil), "sha256:x"} { // the session has neither
		if data, err := s.Blob(ctx, id, ref); data != nil || !errors.Is(err, session.ErrNotFound) && !errors.Is(err, session.ErrInvalid) {
			t.Errorf("a blob that the session does not have: %q, %v", data, err)
		}
	}
	if snapshot, err := s.Snapshot(ctx, id); err != nil || len(snapshot.Messages) != 2 || snapshot.Sequence == 0 {
		t.Errorf("the snapshot is %+v, %v", snapshot, err)
	}
	messages, err := s.Messages(ctx, id, session.PageRequest{Limit: 1, Total: true})
	if err != nil || len(messages.Items) != 1 || !messages.HasMore || messages.Total == nil || *messages.Total != 2 {
		t.Fatalf("the messages are %+v, %v", messages, err)
	}
	if rest, err := s.Messages(ctx, id, session.PageRequest{Cursor: messages.Next}); err != nil || len(rest.Items) != 1 || rest.Items[0].Content() != "You said: hello <world>" {
		t.Errorf("the next page is %+v, %v", rest, err)
	}
	if view, err := s.ModelView(ctx, id, session.PageRequest{Limit: 1}); err != nil || len(view.Items) != 1 || !view.HasMore || view.Items[0].Content() != "hello <world>" {
		t.Errorf("what the model is sent is %+v, %v", view, err)
	}
	if runs, err := s.Runs(ctx, id, session.PageRequest{}); err != nil || len(runs.Items) != 1 || runs.Items[0].ID != run.RunID {
		t.Errorf("the runs are %+v, %v", runs, err)
	}
	checkpoints, err := s.Checkpoints(ctx, id, session.PageRequest{})
	if err != nil || len(checkpoints.Items) == 0 {
		t.Fatalf("the checkpoints are %+v, %v", checkpoints, err)
	}
	branch, err := s.Branch(ctx, id, wire.Branch{SessionID: "copy", CheckpointID: checkpoints.Items[0].ID, Message: wire.Text("and you?")})
	if err != nil {
		t.Fatal(err)
	}
	all(t, s.Client, branch.SessionID, branch.StartSequence)
	if page, err := s.Sessions(ctx, session.Query{
		Agent: "echo", Statuses: []session.Status{session.Completed}, Tags: []string{"a b"}, Metadata: map[string]string{"k&": "v=1"}, RootsOnly: true,
		CreatedAfter: time.Now().Add(-time.Hour), CreatedBefore: time.Now().Add(time.Hour), PageRequest: session.PageRequest{Limit: 10, Total: true},
	}); err != nil || !slices.ContainsFunc(page.Items, func(s session.Summary) bool { return s.ID == id }) {
		t.Errorf("the sessions are %+v, %v", page, err)
	}
	if paused, err := s.Pause(ctx, "copy", wire.Pause{Reason: "wait"}); err != nil || paused.Status != session.Paused {
		t.Errorf("pausing gives %+v, %v", paused, err)
	}
	resumed, err := s.Resume(ctx, wire.Resume{SessionID: "copy", Message: wire.Text("continue")})
	if err != nil {
		t.Fatal(err)
	}
	all(t, s.Client, "copy", resumed.StartSequence)
	if gone, err := s.Delete(ctx, id); err != nil || !slices.Equal(gone.Sessions, []string{id}) {
		t.Errorf("deleting gives %+v, %v", gone, err)
	}
	if _, err := s.Session(ctx, id); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("a deleted session gives %v", err)
	}
}

func TestWaitingForPeople(t *testing.T) {
	t.Parallel()
	s := serve(t, nil, asker())
	ctx := t.Context()
	run, err := s.Start(ctx, wire.Start{AgentType: "asker", Message: wire.Text("hello")})
	if err != nil {
		t.Fatal(err)
	}
	id := run.SessionID
	items := all(t, s.Client, id, 0)
	if end := items[len(items)-1]; end.End == nil || end.End.Status != stream.EndPaused {
		t.Fatalf("it ends with %+v", end)
	}
	pending, err := s.Pending(ctx, id)
	if err != nil || len(pending) != 2 {
		t.Fatalf("pending are %+v, %v", pending, err)
	}
	var waiting []string
	for item, err := range s.AllWaiting(ctx, session.WaitingQuery{NewestFirst: true, PageRequest: session.PageRequest{Limit: 1}}) {
		if err != nil || item.RootID != id || item.Agent != "asker" {
			t.Errorf("what waits is %+v, %v", item, err)
		}
		waiting = append(waiting, item.Call.CallID)
	}
	if len(waiting) != 2 || waiting[0] != pending[1].CallID || waiting[1] != pending[0].CallID {
		t.Errorf("the calls %q wait", waiting)
	}
	if page, err := s.Waiting(ctx, session.WaitingQuery{UserID: "nobody"}); err != nil || len(page.Items) != 0 {
		t.Errorf("nobody is waited for by %+v, %v", page, err)
	}
	if page, err := s.Sessions(ctx, session.Query{Activity: session.ActivityWaiting}); err != nil || len(page.Items) != 1 || page.Items[0].ID != id {
		t.Errorf("the waiting sessions are %+v, %v", page, err)
	}
	if _, err := s.Start(ctx, wire.Start{SessionID: id, AgentType: "asker", Message: wire.Text("hello?")}); !errors.Is(err, session.ErrAwaitingInput) || len(session.AsError(err).Calls) != 2 {
		t.Errorf("a session that waits gives %v", err)
	}
	for _, p := range pending {
		submit := wire.Submit{SessionID: id, ToolCallID: p.CallID, Result: json.RawMessage(`"because"`), Resume: true}
		if p.Kind == session.PendingApproval {
			submit.Result, submit.Approval = nil, &wire.Approval{ApprovalID: p.ApprovalID, Approved: true}
		}
		if done, err := s.Submit(ctx, submit); err != nil || done.Outcome != session.SubmitAccepted {
			t.Fatalf("the answer to %s is %+v, %v", p.Tool, done, err)
		}
		if done, err := s.Submit(ctx, submit); err != nil || done.Outcome != session.SubmitAlreadyCompleted {
			t.Errorf("a second answer is %+v, %v", done, err)
		}
	}
	unknown, err := s.Submit(ctx, wire.Submit{SessionID: id, ToolCallID: "nothing", Result: json.RawMessage(`1`)})
	if err != nil || unknown.Outcome != session.SubmitUnknownCall {
		t.Errorf("an answer to nothing is %+v, %v", unknown, err)
	}
	if _, err := s.Submit(ctx, wire.Submit{SessionID: "nobody", ToolCallID: "x", Result: json.RawMessage(`1`)}); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("an answer to a session that is not there gives %v", err)
	}
	agents, err := s.Agents(ctx)
	if err != nil || len(agents) != 1 || len(agents[0].Tools) != 2 || agents[0].Tools[0].Kind != wire.ToolClient || agents[0].Tools[1].Kind != wire.ToolApproval {
		t.Errorf("the agents are %+v, %v", agents, err)
	}
}

func TestFailedTurn(t *testing.T) {
	t.Parallel()
	s := serve(t, nil, echo())
	ctx := t.Context()
	run, err := s.Start(ctx, wire.Start{SessionID: "s1", AgentType: "echo", Message: wire.Text("fail")})
	if err != nil {
		t.Fatal(err)
	}
	items := all(t, s.Client, "s1", 0)
	if end := items[len(items)-1]; end.Frame != stream.FrameFail || end.Error.Code != session.CodeBadRequest {
		t.Errorf("it ends with %+v", end)
	}
	if status, err := s.Status(ctx, "s1"); err != nil || status.Error == nil || status.Error.Code != session.CodeBadRequest {
		t.Errorf("the status is %+v, %v", status, err)
	}
	again, err := s.Retry(ctx, "s1", wire.Retry{RequestID: "r2"})
	if err != nil || again.RunID == run.RunID {
		t.Fatalf("a retry gives %+v, %v", again, err)
	}
	all(t, s.Client, "s1", again.StartSequence)
	for name, stop := range map[string]func() (*wire.Stopping, error){
		"interrupt": func() (*wire.Stopping, error) { return s.Interrupt(ctx, wire.Stop{SessionID: "s1", RunID: "another"}) },
		"abort":     func() (*wire.Stopping, error) { return s.Abort(ctx, wire.Stop{SessionID: "s1", RunID: "another"}) },
	} {
		if _, err := stop(); !errors.Is(err, session.ErrStale) || session.AsError(err).StatusCode != http.StatusConflict {
			t.Errorf("%s of a run that is not the current one gives %v", name, err)
		}
	}
}

func TestAllSessions(t *testing.T) {
	t.Parallel()
	s := serve(t, nil, echo())
	for i := range 7 {
		run, err := s.Start(t.Context(), wire.Start{SessionID: fmt.Sprintf("s%d", i), AgentType: "echo", Message: wire.Text("hello")})
		if err != nil {
			t.Fatal(err)
		}
		all(t, s.Client, run.SessionID, 0)
	}
	var got []string
	for summary, err := range s.AllSessions(t.Context(), session.Query{PageRequest: session.PageRequest{Limit: 3}}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, summary.ID)
	}
	slices.Sort(got)
	if !slices.Equal(got, []string{"s0", "s1", "s2", "s3", "s4", "s5", "s6"}) {
		t.Errorf("got %v", got)
	}
	for range s.AllSessions(t.Context(), session.Query{}) {
		break
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	s := serve(t, nil, echo())
	ctx := t.Context()
	_, err := s.Start(ctx, wire.Start{AgentType: "nobody", Message: wire.Text("hello")})
	if e := session.AsError(err); e == nil || e.Code != session.CodeUnknownAgent || e.Field != "agentType" || e.StatusCode != http.StatusNotFound || e.Retryable {
		t.Errorf("an unknown agent gives %+v", e)
	}
	for _, id := range []string{"", "..", "a/../b", "/a", "a b"} {
		if _, err := s.Session(ctx, id); !errors.Is(err, session.ErrInvalid) || session.AsError(err).Field != "sessionId" {
			t.Errorf("the id %q gives %v", id, err)
		}
	}
	stranger := s.open(t, func(cfg *client.Config) { cfg.Token = "wrong" })
	if _, err := stranger.Status(ctx, "s1"); session.AsError(err).Code != wire.CodeUnauthorized {
		t.Errorf("a wrong token gives %v", err)
	}
	for _, err := range stranger.Read(ctx, "s1", 0) {
		if session.AsError(err).Code != wire.CodeUnauthorized {
			t.Errorf("reading with a wrong token gives %v", err)
		}
	}
	for field, cfg := range map[string]client.Config{
		"URL":   {URL: "https://user:secret@example.com"},
		"Token": {URL: "https://example.com", Token: "a\nb"},
	} {
		if _, err := client.New(cfg); session.AsError(err) == nil || session.AsError(err).Field != field || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s gives %v", field, err)
		}
	}
	for _, address := range []string{"", "example.com", "ftp://example.com", "https://", "https://example.com?x=1", "http://[::1"} {
		if _, err := client.New(client.Config{URL: address}); !errors.Is(err, session.ErrInvalid) {
			t.Errorf("the address %q gives %v", address, err)
		}
	}
}

// TestStrangeServers asks what is no agent server, or stands before one.
func TestStrangeServers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handler   http.HandlerFunc
		timeout   time.Duration
		code      session.Code
		retryable bool
		after     time.Duration
	}{
		"another version": {handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(wire.HeaderVersion, "2")
			_, _ = io.WriteString(w, "{}")
		}, code: wire.CodeVersion},
		"a web page": {handler: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }, code: wire.CodeVersion},
		"a proxy": {handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusBadGateway)
		}, code: session.CodeUnavailable, retryable: true, after: 7 * time.Second},
		"a redirection": {handler: func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/status" {
				t.Errorf("it was followed to %s", r.URL)
			}
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, code: wire.CodeVersion},
		"nonsense": {handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(wire.HeaderVersion, wire.ProtocolVersion)
			_, _ = io.WriteString(w, `{"status":`)
		}, code: session.CodeInternal},
		"too much": {handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(wire.HeaderVersion, wire.ProtocolVersion)
			_, _ = io.WriteString(w, `{"text":"`+strings.Repeat("x", 2000)+`"}`)
		}, code: session.CodeTooLarge},
		"a refusal with a time": {handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(wire.HeaderVersion, wire.ProtocolVersion)
			w.Header().Set("Retry-After", "30")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, `{"error":"slow down","code":"framework_rate_limited","retryable":true}`)
		}, code: wire.CodeRateLimited, retryable: true, after: 30 * time.Second},
		"a body that came too late": {handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(wire.HeaderVersion, wire.ProtocolVersion)
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusRequestTimeout)
			_, _ = io.WriteString(w, `{"error":"the body did not arrive in time","code":"framework_body_timeout","retryable":true}`)
		}, code: wire.CodeBodyTimeout, retryable: true, after: time.Second},
		"a body that came too late for a proxy": {handler: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusRequestTimeout)
		}, code: session.CodeUnavailable, retryable: true},
		"a cut answer": {handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(wire.HeaderVersion, wire.ProtocolVersion)
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"status":`)
		}, code: session.CodeUnavailable, retryable: true},
		"no answer": {handler: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, timeout: 200 * time.Millisecond, code: session.CodeUnavailable, retryable: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			web := httptest.NewServer(c.handler)
			defer web.Close()
			cl, err := client.New(client.Config{URL: web.URL, HTTP: web.Client(), MaxBody: 1000, Timeout: cmp.Or(c.timeout, eventually.Patience)})
			if err != nil {
				t.Fatal(err)
			}
			_, err = cl.Status(t.Context(), "s1")
			e, ok := errors.AsType[*session.Error](err)
			if !ok || e.Code != c.code || e.Retryable != c.retryable {
				t.Fatalf("got %v, want %s, retryable %v", err, c.code, c.retryable)
			}
			if after, ok := client.RetryAfter(err); after != c.after || ok != (c.after > 0) {
				t.Errorf("it says to wait %s, want %s", after, c.after)
			}
		})
	}
	t.Run("nobody", func(t *testing.T) {
		t.Parallel()
		web := httptest.NewServer(http.NotFoundHandler())
		web.Close()
		cl, err := client.New(client.Config{URL: web.URL, Attempts: 1, Backoff: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cl.Agents(t.Context()); !errors.Is(err, session.ErrUnavailable) || !session.IsRetryable(err) {
			t.Errorf("got %v", err)
		}
	})
}

// TestTokenStaysOut asks a server that repeats the token wherever it can.
func TestTokenStaysOut(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(wire.HeaderVersion, wire.ProtocolVersion)
		if r.URL.Path == "/sse" {
			w.Header().Set("Content-Type", wire.ContentEvents)
			fmt.Fprintf(w, "event: fail\ndata: {\"error\":%q,\"code\":\"framework_slow_reader\",\"recoverable\":true}\n\n", r.Header.Get("Authorization"))
			return
		}
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(wire.Error{
			Message: "bad " + r.Header.Get("Authorization"), Code: session.CodeInvalid, Detail: "very " + r.Header.Get("Authorization"),
		})
	}))
	defer web.Close()
	var log bytes.Buffer
	c, err := client.New(client.Config{
		URL: web.URL, Token: token, HTTP: web.Client(), Attempts: 2, Backoff: time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	_, refused := c.Agents(t.Context())
	var dropped error
	for _, err := range c.Read(t.Context(), "s1", 0) {
		dropped = err
	}
	said := fmt.Sprintf("%v %+v %#v %v %+v %v %#v %s", refused, refused, session.AsError(refused), c, c, dropped, session.AsError(dropped), log.String())
	if strings.Contains(said, token) || !strings.Contains(said, "[redacted]") {
		t.Errorf("the token, or nothing, was said: %s", said)
	}
	if !strings.Contains(log.String(), "stream.dropped") {
		t.Errorf("the log is %q", log.String())
	}
}

// A request that came too soon has done nothing: it is made again when the server says
// so, a few times.
func TestTooSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		c := direct(t, client.Config{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(wire.HeaderVersion, wire.ProtocolVersion)
			if asked.Add(1) <= 2 {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusTooManyRequests)
				_, _ = io.WriteString(w, `{"error":"slow down","code":"framework_rate_limited","retryable":true,"limit":"rateLimit"}`)
				return
			}
			_, _ = io.WriteString(w, `{"sessionId":"s-1","status":"completed"}`)
		}))
		began := time.Now()
		status, err := c.Status(t.Context(), "s-1")
		if err != nil || status.Status != session.Completed || asked.Load() != 3 {
			t.Fatalf("the status is %+v after %d requests: %v", status, asked.Load(), err)
		}
		if took := time.Since(began); took < time.Second || took > 3*time.Second { // half of what the server says, to one and a half
			t.Errorf("three requests took %s", took)
		}
		asked.Store(-1000)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second/4, cancel)
		if _, err := c.Status(ctx, "s-1"); !errors.Is(err, context.Canceled) || asked.Load() != -999 {
			t.Fatalf("a request that was given up ended with %v after %d requests", err, asked.Load()+1000)
		}
	})
}

// A conversation is compacted and cleared. A summary may take longer than other requests.
func TestCompact(t *testing.T) {
	t.Parallel()
	agent := &helix.Agent{
		Name: "teller", Model: scripted.New(scripted.Text(strings.Repeat("Once upon a time. ", 40)), scripted.Text("The end.")),
		Context: &helix.ContextPolicy{KeepMessages: 1, Model: scripted.New(scripted.Text("A tale was told."))},
	}
	s := serve(t, func(cfg *client.Config) { cfg.Timeout = 10 * time.Second }, agent)
	ctx := t.Context()
	for _, text := range []string{"tell", "end"} {
		if _, err := s.Start(ctx, wire.Start{SessionID: "s1", AgentType: "teller", Message: wire.Text(text)}); err != nil {
			t.Fatal(err)
		}
		all(t, s.Client, "s1", 0)
	}
	done, err := s.Compact(ctx, "s1", wire.Compact{})
	if err != nil || !done.Done || done.Kind != session.CompactionSummary || done.TokensAfter >= done.TokensBefore {
		t.Fatalf("%+v, %v", done, err)
	}
	if done, err = s.Compact(ctx, "s1", wire.Compact{Force: true}); err != nil || done.Done || done.Reason == "" {
		t.Errorf("%+v, %v", done, err)
	}
	if done, err = s.Clear(ctx, "s1"); err != nil || !done.Done || done.Kind != session.CompactionClear {
		t.Errorf("%+v, %v", done, err)
	}
	for _, refused := range []func(id string) (*wire.Compacted, error){
		func(id string) (*wire.Compacted, error) { return s.Compact(ctx, id, wire.Compact{}) },
		func(id string) (*wire.Compacted, error) { return s.Clear(ctx, id) },
	} {
		if done, err := refused("nobody"); !errors.Is(err, session.ErrNotFound) {
			t.Errorf("%+v, %v", done, err)
		}
		if done, err := refused("a/../b"); !errors.Is(err, session.ErrInvalid) {
			t.Errorf("%+v, %v", done, err)
		}
	}
	// The client waits longer than it does for other requests.
	hasty := s.open(t, func(cfg *client.Config) { cfg.Timeout = time.Millisecond })
	s.through(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/clear") {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done() // the client has lost its patience
			return
		}
		time.Sleep(20 * time.Millisecond) // waits: longer than the usual patience, which must not end this request
		s.handler.ServeHTTP(w, r)
	})
	if _, err := hasty.Clear(ctx, "s1"); err == nil {
		t.Error("the client is patient with all requests")
	}
	if _, err := hasty.Compact(ctx, "s1", wire.Compact{}); err != nil {
		t.Error(err)
	}
}
