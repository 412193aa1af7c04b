package server_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/server"
	"github.com/helixagents/helix/server/aisdk"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// limited expects a request to be refused because of a limit, which the answer and the
// metrics name.
func (s *service) limited(status int, limit, method, path string, body any) wire.Error {
	s.t.Helper()
	answer := s.request(method, path, body)
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	out := decodeAs[wire.Error](s.t, string(raw))
	if answer.StatusCode != status || out.Limit != limit {
		s.t.Fatalf("%s %s is %d: %s, want %d because of %s", method, path, answer.StatusCode, raw, status, limit)
	}
	metrics := s.as("process-token").request(http.MethodGet, "/metrics", nil)
	defer metrics.Body.Close()
	if counted, err := io.ReadAll(metrics.Body); err != nil || (metrics.StatusCode == http.StatusOK && !strings.Contains(string(counted), `helix_limited_total{limit="`+limit+`"} `)) {
		s.t.Errorf("the metrics do not count %s: %v", limit, err)
	}
	if status == http.StatusTooManyRequests && (answer.Header.Get("Retry-After") == "" || !out.Retryable) {
		s.t.Errorf("%s %s does not say when to try again: %s", method, path, raw)
	}
	return out
}

func TestRunsPerUser(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		const most, tries = 3, 20
		gate := make(chan struct{})
		s := serve(t, db, staff(gate), func(c *server.Config) { c.Limits.RunsPerUser = most })
		begin := func(s *service, id string) (int, string) {
			return s.try(http.MethodPost, "/start", map[string]any{"sessionId": id, "agentType": "slow", "message": "go", "requestId": id})
		}
		// However many are asked for at the same moment, no more begin.
		var begun atomic.Int64
		var taken sync.Map
		var all sync.WaitGroup
		for i := range tries {
			all.Go(func() {
				id := fmt.Sprintf("run-%d", i)
				switch status, raw := begin(s, id); status {
				case http.StatusOK:
					begun.Add(1)
					taken.Store(id, true)
				case http.StatusTooManyRequests:
				default:
					t.Errorf("a start is %d: %s", status, raw)
				}
			})
		}
		all.Wait()
		for i := 0; begun.Load() < most && i < tries; i++ { // those refused only because of others that were refused, too
			if status, _ := begin(s, fmt.Sprintf("more-%d", i)); status == http.StatusOK {
				begun.Add(1)
			}
		}
		if begun.Load() != most {
			t.Fatalf("%d runs have begun, want %d", begun.Load(), most)
		}
		slow := map[string]any{"agentType": "slow", "message": "go"}
		s.limited(http.StatusTooManyRequests, "runsPerUser", http.MethodPost, "/start", slow)
		s.limited(http.StatusTooManyRequests, "runsPerUser", http.MethodPost, "/chat", map[string]any{
			"id": "chat", "agent": "slow", "messages": []any{map[string]any{"id": "m1", "role": "user", "parts": []any{map[string]any{"type": "text", "text": "go"}}}},
		})
		// Who asks again for what has begun is not refused, nor is anybody else.
		taken.Range(func(id, _ any) bool {
			if status, raw := begin(s, id.(string)); status != http.StatusOK {
				t.Errorf("the start made again is %d: %s", status, raw)
			}
			return true
		})
		if status, raw := begin(s.as("bob-token"), "bobs"); status != http.StatusOK {
			t.Errorf("another user's start is %d: %s", status, raw)
		}
		close(gate)
		taken.Range(func(id, _ any) bool {
			s.settle(id.(string))
			return true
		})
		call[wire.Started](s, http.StatusOK, http.MethodPost, "/start", map[string]any{"agentType": "echo", "message": "go"})
	})
}

// An answer with which the session is resumed at once is refused before it is recorded, if the
// user has no run left.
func TestAnswersAtTheRunLimit(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		gate := make(chan struct{})
		s := serve(t, db, staff(gate), func(c *server.Config) { c.Limits.RunsPerUser = 1 })
		t.Cleanup(func() { close(gate) })
		s.start(wire.Start{SessionID: "asks", AgentType: "clerk", Message: wire.Text("publish")})
		pending := call[wire.PendingCalls](s, http.StatusOK, http.MethodGet, "/sessions/asks/pending", nil).Items
		call[wire.Started](s, http.StatusOK, http.MethodPost, "/start", map[string]any{"agentType": "slow", "message": "go"})
		answer := map[string]any{
			"sessionId": "asks", "toolCallId": pending[0].CallID, "resume": true,
			"approval": map[string]any{"approvalId": pending[0].ApprovalID, "approved": true},
		}
		s.limited(http.StatusTooManyRequests, "runsPerUser", http.MethodPost, "/submit-tool-result", answer)
		if left := call[wire.PendingCalls](s, http.StatusOK, http.MethodGet, "/sessions/asks/pending", nil).Items; len(left) != 1 {
			t.Fatalf("after the refusal %+v wait", left)
		}
		answer["resume"] = false
		if done := call[wire.Submitted](s, http.StatusOK, http.MethodPost, "/submit-tool-result", answer); done.Outcome != helix.SubmitAccepted {
			t.Fatalf("the answer is %+v", done)
		}
	})
}

// Without tokens all runs count together.
func TestRunsOfEverybody(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	s := serve(t, inMemory(t), staff(gate), func(c *server.Config) {
		c.Authenticate, c.AllowUnauthenticated, c.Limits.RunsPerUser = nil, true, 2
	})
	t.Cleanup(func() { close(gate) })
	slow := map[string]any{"agentType": "slow", "message": "go"}
	for range 2 {
		call[wire.Started](s, http.StatusOK, http.MethodPost, "/start", slow)
	}
	s.limited(http.StatusTooManyRequests, "runsPerUser", http.MethodPost, "/start", slow)
}

func TestRateLimitByDefault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := serveOnPipes(t, inMemory(t), []*helix.Agent{echo()}, func(c *server.Config) { c.RateLimit = server.RateLimit{} })
		refused := 0
		for range 80 {
			if status, _ := s.try(http.MethodGet, "/agents", nil); status == http.StatusTooManyRequests {
				refused++
			}
		}
		if refused != 30 {
			t.Fatalf("%d of 80 requests at once were refused, want 30", refused)
		}
		time.Sleep(time.Second)
		accepted := 0
		for range 20 {
			if status, _ := s.try(http.MethodGet, "/agents", nil); status == http.StatusOK {
				accepted++
			}
		}
		if accepted != 10 {
			t.Fatalf("%d requests were let through a second later, want 10", accepted)
		}
		if status, raw := s.as("bob-token").try(http.MethodGet, "/agents", nil); status != http.StatusOK {
			t.Fatalf("another user's request is %d: %s", status, raw)
		}
	})
}

// limitedTo is a server whose sessions may only become so large.
func limitedTo(t *testing.T, db store.Backend, bytes int64, agents ...*helix.Agent) *service {
	t.Helper()
	rt, err := local.New(local.Config{Backend: db, Agents: agents, MaxSession: bytes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Shutdown(t.Context()); err != nil && !errors.Is(err, t.Context().Err()) {
			t.Error(err)
		}
	})
	return serve(t, db, agents, func(c *server.Config) { c.Executor = rt })
}

func TestSessionBytes(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		s := limitedTo(t, db, 100_000, echo())
		s.start(wire.Start{SessionID: "s-1", AgentType: "echo", Message: wire.Text("a little")})
		status := 0
		for i := 0; i < 20 && status != http.StatusRequestEntityTooLarge; i++ {
			status, _ = s.try(http.MethodPost, "/start", map[string]any{
				"sessionId": "s-1", "agentType": "echo", "message": strings.Repeat("x", 10_000),
			})
			if status == http.StatusOK {
				s.settle("s-1")
			}
		}
		s.limited(http.StatusRequestEntityTooLarge, "sessionBytes", http.MethodPost, "/start", map[string]any{
			"sessionId": "s-1", "agentType": "echo", "message": "one more",
		})
		s.start(wire.Start{SessionID: "s-2", AgentType: "echo", Message: wire.Text("a new one")})
	})
}

func TestPageBytes(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		const page, turns = 64 << 10, 8
		s := serve(t, db, []*helix.Agent{echo()}, func(c *server.Config) { c.Limits.PageBytes = page })
		for i := range turns { // some 40 KB each
			s.start(wire.Start{SessionID: "s-1", AgentType: "echo", Message: wire.Text(fmt.Sprintf("%d %s", i, strings.Repeat("x", 20_000)))})
		}
		var got []session.Message
		path, pages := "/sessions/s-1/messages?limit=100", 0
		for cursor := ""; ; pages++ {
			answer := s.request(http.MethodGet, path+cursor, nil)
			raw, err := io.ReadAll(answer.Body)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if len(raw) > page+25_000 {
				t.Fatalf("a page has %d bytes", len(raw))
			}
			found := decodeAs[wire.MessagePage](t, string(raw))
			if got = append(got, found.Items...); !found.HasMore {
				break
			}
			cursor = "&cursor=" + url.QueryEscape(found.Next)
		}
		if len(got) != 2*turns || pages < 3 {
			t.Fatalf("%d messages came in %d pages", len(got), pages+1)
		}
		chat := call[aisdk.Chat](s, http.StatusOK, http.MethodGet, "/chat/s-1/messages", nil)
		if n := len(chat.Messages); n != 2 || chat.Earlier+n != 2*turns || chat.Messages[0].Role != "user" {
			t.Fatalf("the chat has %d messages, the first of %s, and %d before them", n, chat.Messages[0].Role, chat.Earlier)
		}
		if last := chat.Messages[len(chat.Messages)-1]; !strings.HasPrefix(last.Parts[len(last.Parts)-1].Text, "You said: 7 ") {
			t.Fatalf("the chat ends in %.40q", last.Parts[len(last.Parts)-1].Text)
		}
		shot := call[wire.Snapshot](s, http.StatusOK, http.MethodGet, "/sessions/s-1/snapshot", nil)
		if n := len(shot.Messages); n != 3 || n+shot.Earlier != 2*turns {
			t.Fatalf("the snapshot has %d messages and %d before them", n, shot.Earlier)
		}
	})
}

// Agents that are internal, and sessions of agents that work for others, are not
// spoken to by users, whatever the route.
func TestInternalAgents(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		var told sync.Map
		admin := &helix.Agent{Name: "admin", Internal: true, Model: speaker(func(request *llm.Request) scripted.Step {
			told.Store(lastText(request), true)
			return scripted.Text("done")
		})}
		front := &helix.Agent{
			Name: "front", SubAgents: []helix.SubAgent{{Agent: admin}}, Companions: []helix.Companion{{Agent: admin, Mode: helix.NonBlocking}},
			Model: speaker(func(request *llm.Request) scripted.Step {
				if len(request.Messages) > 1 {
					return scripted.Text("Thanks.")
				}
				return scripted.Reply(scripted.Calling("subagent__admin", map[string]string{"task": "tidy"}),
					scripted.Calling(helix.SpawnAgentTool, map[string]string{"agent": "admin", "name": "al", "initialMessage": "tidy"}))
			}),
		}
		s := serve(t, db, []*helix.Agent{admin, front}, nil)
		s.start(wire.Start{SessionID: "s-1", AgentType: "front", Message: wire.Text("go")})
		var children []string
		for _, item := range call[wire.Sessions](s, http.StatusOK, http.MethodGet, "/sessions?parent=s-1", nil).Items {
			s.settle(item.ID)
			children = append(children, item.ID)
		}
		if len(children) != 2 {
			t.Fatalf("the children are %q", children)
		}
		const evil = "drop all tables"
		for _, agent := range call[wire.Agents](s, http.StatusOK, http.MethodGet, "/agents", nil).Items {
			if agent.Name == "admin" {
				t.Error("the internal agent is listed")
			}
		}
		chat := func(id string) map[string]any {
			return map[string]any{
				"id": id, "agent": "admin", "messages": []any{map[string]any{"id": "m-9", "role": "user", "parts": []any{map[string]any{"type": "text", "text": evil}}}},
			}
		}
		try := func(s *service, path string, body map[string]any) {
			t.Helper()
			if status, raw := s.try(http.MethodPost, path, body); status < 400 || status >= 500 {
				t.Errorf("POST %s is %d for %s: %s", path, status, s.token, raw)
			}
		}
		try(s, "/start", map[string]any{"agentType": "admin", "message": evil})
		try(s.as("operator-token"), "/start", map[string]any{"agentType": "admin", "message": evil})
		try(s, "/chat", chat("new"))
		for _, id := range children {
			checkpoint := call[wire.CheckpointPage](s, http.StatusOK, http.MethodGet, "/sessions/"+url.PathEscape(id)+"/checkpoints", nil).Items[0].ID
			try(s, "/start", map[string]any{"sessionId": id, "agentType": "admin", "message": evil})
			try(s, "/chat", chat(id))
			try(s, "/resume", map[string]any{"sessionId": id, "message": evil})
			try(s, "/resume", map[string]any{"sessionId": id, "checkpointId": checkpoint, "message": evil})
			try(s, "/resume", map[string]any{"sessionId": id, "checkpointId": checkpoint})
			try(s, "/sessions/"+url.PathEscape(id)+"/branch", map[string]any{"message": evil})
			try(s, "/sessions/"+url.PathEscape(id)+"/branch", map[string]any{"sessionId": "copy"})
			try(s, "/sessions/"+url.PathEscape(id)+"/retry", map[string]any{})
		}
		if _, ok := told.Load(evil); ok {
			t.Error("the internal agent was told so")
		}
	})
}

// A stream ends when the token that it was opened with is revoked.
func TestRevokedTokenEndsStreams(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	var revoked, unknown atomic.Bool
	s := serve(t, inMemory(t), staff(gate), func(c *server.Config) {
		inner := c.Authenticate
		c.KeepAlive = 10 * time.Millisecond
		c.Authenticate = func(r *http.Request) (server.Identity, error) {
			switch {
			case revoked.Load():
				return server.Identity{}, errors.New("unknown token")
			case unknown.Load(): // the directory of users is away
				return server.Identity{}, session.ErrUnavailable
			}
			return inner(r)
		}
	})
	t.Cleanup(func() { close(gate) })
	call[wire.Started](s, http.StatusOK, http.MethodPost, "/start", map[string]any{"sessionId": "s-1", "agentType": "slow", "message": "go"})
	answer := s.request(http.MethodGet, "/sse?sessionId=s-1", nil)
	defer answer.Body.Close()
	read := func(times int) {
		t.Helper()
		buf := make([]byte, 4<<10)
		for seen := 0; seen < times; {
			n, err := answer.Body.Read(buf)
			if err != nil {
				t.Fatalf("the stream ended: %v", err)
			}
			seen += strings.Count(string(buf[:n]), ": keep-alive")
		}
	}
	read(2)
	unknown.Store(true)
	read(3) // it continues while the check cannot be made
	revoked.Store(true)
	rest, err := io.ReadAll(answer.Body) // until it ends
	if err != nil {
		t.Fatal(err)
	}
	events, _ := parseEvents(rest)
	for _, e := range events {
		if e.kind == "chunk" {
			t.Errorf("the stream continued with %s", e.data)
		}
	}
}
