package server_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/server"
	"github.com/helixagents/helix/server/aisdk"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// summarised is an agent that says much. Its summaries are made by a function.
func summarised(summary speaker) *helix.Agent {
	return &helix.Agent{
		Name: "teller", Context: &helix.ContextPolicy{KeepMessages: 1, Model: summary},
		Model: speaker(func(request *llm.Request) scripted.Step {
			return scripted.Text("You said: " + lastText(request) + strings.Repeat(" and so on", 50))
		}),
	}
}

func briefly(*llm.Request) scripted.Step { return scripted.Text("They talked.") }

// talked makes a session of two turns.
func (s *service) talked(id string) {
	s.t.Helper()
	for _, text := range []string{"one", "two"} {
		s.start(wire.Start{SessionID: id, AgentType: "teller", Message: wire.Text(text)})
		closed(s.t, s.db.Sessions().Tenant("north"), id)
	}
}

// view lists what the model is sent, by roles and kinds of markers.
func (s *service) view(id string) string {
	s.t.Helper()
	var out []string
	for _, m := range call[wire.MessagePage](s, http.StatusOK, http.MethodGet, "/sessions/"+url.PathEscape(id)+"/messages?view=model", nil).Items {
		if what := m.Compaction(); what != nil {
			out = append(out, string(what.Kind))
		} else {
			out = append(out, string(m.Role))
		}
	}
	return strings.Join(out, " ")
}

func (s *service) count(id string) int {
	s.t.Helper()
	return *call[wire.MessagePage](s, http.StatusOK, http.MethodGet, "/sessions/"+url.PathEscape(id)+"/messages?total=true", nil).Total
}

// A conversation becomes shorter for the model, and stays whole for people.
func TestCompact(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		s := serve(t, db, []*helix.Agent{summarised(briefly)}, nil)
		s.talked("a/b")
		compact := func(what string, body any) wire.Compacted {
			t.Helper()
			return call[wire.Compacted](s, http.StatusOK, http.MethodPost, "/sessions/a%2Fb/"+what, body)
		}
		done := compact("compact", nil)
		if done.SessionID != "a/b" || !done.Done || done.Kind != session.CompactionSummary || done.MarkerID == "" || done.Kept != 2 ||
			done.TokensAfter <= 0 || done.TokensAfter >= done.TokensBefore || done.Reason != "" {
			t.Errorf("compacted: %+v", done)
		}
		if view, n := s.view("a/b"), s.count("a/b"); view != "summary user assistant" || n != 5 {
			t.Errorf("of %d messages the model is sent %s", n, view)
		}
		// A repeated request changes nothing.
		if again := compact("compact", wire.Compact{}); again.Done || again.Reason == "" || again.MarkerID != "" || s.count("a/b") != 5 {
			t.Errorf("compacted again: %+v", again)
		}
		cleared := compact("clear", nil)
		if !cleared.Done || cleared.Kind != session.CompactionClear || cleared.MarkerID == "" || cleared.Kept != 0 {
			t.Errorf("cleared: %+v", cleared)
		}
		if again := compact("clear", nil); again.Done || again.Reason == "" {
			t.Errorf("cleared again: %+v", again)
		}
		if view, n := s.view("a/b"), s.count("a/b"); view != "clear" || n != 6 {
			t.Errorf("of %d messages the model is sent %s", n, view)
		}
		// The conversation continues, from nothing, and people see all of it.
		s.start(wire.Start{SessionID: "a/b", AgentType: "teller", Message: wire.Text("three")})
		if view := s.view("a/b"); view != "clear user assistant" {
			t.Errorf("the model is sent %s", view)
		}
		if text := shown(s.page("a%2Fb").history().Messages); !strings.Contains(text, `"one"`) || strings.Count(text, `"data-compacted"`) != 2 || strings.Contains(text, "They talked.") {
			t.Errorf("the page shows %s", text)
		}
	})
}

// A session that runs or waits is not compacted, nor is that of somebody else, and a refused
// request changes nothing.
func TestCompactRefuses(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		s := staffed(t, db, nil)
		f := s.fill("c/")
		path := func(id, what string) string { return "/sessions/" + url.PathEscape(id) + "/" + what }
		before := dump(t, db, "north")
		for _, what := range []string{"compact", "clear"} {
			s.refused(http.StatusConflict, session.CodeRunning, http.MethodPost, path(f.running, what), nil)
			s.refused(http.StatusConflict, session.CodeAwaiting, http.MethodPost, path(f.waiting, what), nil)
			s.refused(http.StatusNotFound, session.CodeNotFound, http.MethodPost, path("nobody", what), nil)
			for _, token := range []string{"bob-token", "alice-south-token"} {
				s.as(token).refused(http.StatusNotFound, session.CodeNotFound, http.MethodPost, path(f.done, what), nil)
			}
			// Users have the front of a conversation, not the agents behind it.
			if refused := s.refused(http.StatusBadRequest, session.CodeInvalid, http.MethodPost, path(f.child, what), nil); refused.Field != "id" {
				t.Errorf("%s of a sub-agent's session is refused as %+v", what, refused)
			}
			s.as("operator-token").refused(http.StatusConflict, session.CodeAwaiting, http.MethodPost, path(f.child, what), nil)
		}
		if refused := s.refused(http.StatusBadRequest, session.CodeInvalid, http.MethodPost, path(f.done, "compact"), `{"force":1}`); refused.Field != "force" {
			t.Errorf("a wrong body is refused as %+v", refused)
		}
		was, is := ownRows(before, f), ownRows(dump(t, db, "north"), f)
		if strings.Join(was, "") != strings.Join(is, "") {
			t.Errorf("the sessions have changed from\n%s\nto\n%s", was, is)
		}
	})
}

// A summary that cannot be made is the provider's fault, and the conversation stays.
func TestCompactWithoutSummary(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		var asked atomic.Int64
		s := serve(t, db, []*helix.Agent{summarised(func(*llm.Request) scripted.Step {
			asked.Add(1)
			return scripted.Fail(session.CodeAuth, false, "the key "+secret+" is wrong")
		})}, nil)
		s.talked("s1")
		s.talked("s2")
		refused := s.refused(http.StatusBadGateway, session.CodeAuth, http.MethodPost, "/sessions/s1/compact", nil)
		if refused.Message != wire.Explain(session.CodeAuth) || refused.Detail != "" {
			t.Errorf("a user is told %+v", refused)
		}
		if refused := s.as("operator-token").refused(http.StatusBadGateway, session.CodeAuth, http.MethodPost, "/sessions/s2/compact", nil); !strings.Contains(refused.Detail, "is wrong") {
			t.Errorf("an operator is told %+v", refused)
		}
		if s.count("s1") != 4 || s.view("s1") != "user assistant user assistant" {
			t.Errorf("the model is sent %s", s.view("s1"))
		}
		// As long as the session stays as it is, nobody pays for it once more.
		again := call[wire.Compacted](s, http.StatusOK, http.MethodPost, "/sessions/s1/compact", nil)
		if again.Done || again.Code != session.CodeAuth || again.Reason != wire.Explain(session.CodeAuth) || asked.Load() != 2 {
			t.Errorf("after %d calls a user is told %+v", asked.Load(), again)
		}
		again = call[wire.Compacted](s.as("operator-token"), http.StatusOK, http.MethodPost, "/sessions/s1/compact", nil)
		if again.Done || !strings.Contains(again.Reason, "is wrong") || asked.Load() != 2 {
			t.Errorf("after %d calls an operator is told %+v", asked.Load(), again)
		}
		s.start(wire.Start{SessionID: "s1", AgentType: "teller", Message: wire.Text("three")})
		s.refused(http.StatusBadGateway, session.CodeAuth, http.MethodPost, "/sessions/s1/compact", nil)
		if asked.Load() != 3 {
			t.Errorf("the model was asked %d times", asked.Load())
		}
	})
}

// A hook that refuses a summary refuses the compaction. What one wrote about a summary that was
// paid for is kept, also if the summary is not used.
func TestCompactRefusedByHook(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		var asked atomic.Int64
		agent := summarised(func(*llm.Request) scripted.Step {
			asked.Add(1)
			return scripted.Text(strings.Repeat("This is much longer than what was said. ", 100))
		})
		agent.Hooks = helix.Hooks{BeforeLLMCall: func(_ context.Context, h *helix.HookContext, e helix.BeforeLLMCallEvent) error {
			if !e.Summary {
				return nil
			}
			if strings.HasSuffix(h.SessionID, "refused") {
				return errors.New("over budget: " + secret)
			}
			helix.Append(h, "summaries", "one")
			return nil
		}}
		s := serve(t, db, []*helix.Agent{agent}, nil)
		s.talked("refused")
		refused := s.refused(http.StatusConflict, session.CodeHook, http.MethodPost, "/sessions/refused/compact", nil)
		if refused.Message != wire.Explain(session.CodeHook) || strings.Contains(refused.Detail, secret) {
			t.Errorf("a user is told %+v", refused)
		}
		again := call[wire.Compacted](s, http.StatusOK, http.MethodPost, "/sessions/refused/compact", nil)
		if again.Done || again.Code != session.CodeHook || asked.Load() != 0 {
			t.Errorf("after %d calls a user is told %+v", asked.Load(), again)
		}
		s.talked("long")
		for range 2 { // the second time nobody is asked
			if long := call[wire.Compacted](s, http.StatusOK, http.MethodPost, "/sessions/long/compact", nil); long.Done || long.Code != "" || asked.Load() != 1 {
				t.Errorf("after %d calls a user is told %+v", asked.Load(), long)
			}
		}
		state, err := db.Sessions().Tenant("north").Load(t.Context(), "long")
		if err != nil {
			t.Fatal(err)
		}
		if value := state.Custom.Get("summaries"); string(value) != `["one"]` {
			t.Errorf("of what the hook wrote there is %s", value)
		}
	})
}

// What the model's provider said about a summary is for operators, wherever it is shown.
func TestCompactionCauses(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		agent := summarised(func(*llm.Request) scripted.Step {
			return scripted.Fail(session.CodeAuth, false, "the key "+secret+" is wrong")
		})
		agent.Context.TriggerMessages = 5
		s := serve(t, db, []*helix.Agent{agent}, nil)
		s.talked("s1")
		p := s.page("s1")
		status, _, raw := p.fetch(http.MethodPost, "/chat?sdk=7", map[string]any{"id": "s1", "messages": []aisdk.Message{
			{ID: "u3", Role: "user", Parts: []aisdk.Part{{Type: aisdk.PartText, Text: "three"}}},
		}})
		told := `"reason":"` + wire.Explain(session.CodeAuth) + `","code":"` + string(session.CodeAuth) + `"`
		if status != http.StatusOK || !strings.Contains(string(raw), told) || strings.Contains(string(raw), secret) {
			t.Errorf("the page is told, with status %d, %s", status, raw)
		}
		for _, token := range []string{s.token, "operator-token"} {
			text := ""
			for _, e := range s.as(token).settle("s1") {
				text += e.data
			}
			if isOperator := token != s.token; !strings.Contains(text, `"code":"`+string(session.CodeAuth)+`"`) || strings.Contains(text, secret) != isOperator || strings.Contains(text, told) == isOperator {
				t.Errorf("%s is told %s", token, text)
			}
		}
		if raw := shown(p.history().Messages); strings.Contains(raw, secret) {
			t.Errorf("the history has %s", raw)
		}
		if status, raw := s.try(http.MethodGet, "/sessions/s1/messages", nil); status != http.StatusOK || strings.Contains(raw, secret) {
			t.Errorf("the messages are, with status %d, %s", status, raw)
		}
	})
}

// A compaction ends when its client leaves, and changes nothing.
func TestCompactLeft(t *testing.T) {
	t.Parallel()
	asked, left := make(chan struct{}), make(chan error, 1)
	agent := summarised(nil)
	agent.Context.Model = modelFunc(func(ctx context.Context) error {
		close(asked)
		<-ctx.Done()
		left <- context.Cause(ctx)
		return ctx.Err()
	})
	s := serve(t, inMemory(t), []*helix.Agent{agent}, nil)
	s.talked("s1")
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/sessions/s1/compact", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if answer, err := s.client.Do(request); err == nil {
			t.Errorf("the status is %d", answer.StatusCode)
			_ = answer.Body.Close()
		}
	}()
	<-asked
	cancel()
	<-ended
	_ = eventually.Receive(t, "the summary is no longer made", left)
	if s.count("s1") != 4 {
		t.Errorf("there are %d messages", s.count("s1"))
	}
}

// modelFunc is a model that only fails.
type modelFunc func(ctx context.Context) error

func (m modelFunc) Generate(ctx context.Context, _ *llm.Request, _ func(llm.Delta)) (*llm.Response, error) {
	return nil, m(ctx)
}

// Of several that compact at the same time one does, and the others see that.
func TestCompactRace(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		var asked atomic.Int64
		s := serve(t, db, []*helix.Agent{summarised(func(r *llm.Request) scripted.Step {
			asked.Add(1)
			return briefly(r)
		})}, nil)
		s.talked("s1")
		var mu sync.Mutex
		made := 0
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				status, raw := s.try(http.MethodPost, "/sessions/s1/compact", nil)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case status == http.StatusOK && strings.Contains(raw, `"done":true`):
					made++
				case status == http.StatusOK && strings.Contains(raw, `"reason":`):
				case status == http.StatusConflict && strings.Contains(raw, string(session.CodeRunning)):
				default:
					t.Errorf("%d: %s", status, raw)
				}
			})
		}
		all.Wait()
		if made != 1 || s.count("s1") != 5 || asked.Load() != 1 {
			t.Errorf("%d were made with %d calls, and there are %d messages", made, asked.Load(), s.count("s1"))
		}
	})
}

// A compaction counts as a run of the user while it is made, and ends with the server.
func TestCompactInProgress(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{})
	gate := make(chan struct{})
	begun := sync.OnceFunc(func() { close(asked) })
	agent := summarised(func(*llm.Request) scripted.Step {
		begun()
		return scripted.Reply(scripted.Until(gate), scripted.Say("They talked."))
	})
	defer close(gate)
	s := serve(t, inMemory(t), []*helix.Agent{agent}, func(cfg *server.Config) { cfg.Limits.RunsPerUser = 1 })
	s.talked("s1")
	s.talked("s2")
	refused := make(chan string, 1)
	go func() {
		status, raw := s.try(http.MethodPost, "/sessions/s1/compact", nil)
		refused <- http.StatusText(status) + " " + raw
	}()
	<-asked
	if limited := s.refused(http.StatusTooManyRequests, wire.CodeRateLimited, http.MethodPost, "/sessions/s2/compact", nil); limited.Limit != "runsPerUser" {
		t.Errorf("refused as %+v", limited)
	}
	ctx := eventually.Context(t)
	if err := s.server.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if got := <-refused; !strings.HasPrefix(got, "Service Unavailable") || !strings.Contains(got, string(wire.CodeShuttingDown)) {
		t.Errorf("the request is answered with %s", got)
	}
}

// A user has few transcripts in memory at a time for compactions, which take long, and they
// keep nobody from reading transcripts.
func TestCompactsShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked, gate := make(chan struct{}, 2), make(chan struct{})
		agent := summarised(func(*llm.Request) scripted.Step {
			asked <- struct{}{}
			return scripted.Reply(scripted.Until(gate), scripted.Say("They talked."))
		})
		s, _ := serveOnPipes(t, inMemory(t), []*helix.Agent{agent}, func(cfg *server.Config) { cfg.Limits.ReadTimeout = 200 * time.Millisecond })
		var all sync.WaitGroup
		for _, id := range []string{"s1", "s2", "s3"} {
			s.talked(id)
		}
		for _, id := range []string{"s1", "s2"} {
			all.Go(func() {
				if status, raw := s.try(http.MethodPost, "/sessions/"+id+"/compact", nil); status != http.StatusOK {
					t.Errorf("%s: %d: %s", id, status, raw)
				}
			})
			<-asked
		}
		s.refused(http.StatusServiceUnavailable, session.CodeUnavailable, http.MethodPost, "/sessions/s3/compact", nil)
		if n := len(s.page("s1").history().Messages); n != 4 {
			t.Errorf("the page has %d messages", n)
		}
		close(gate)
		all.Wait()
	})
}

// Whoever watches a chat, from the beginning or from the middle of a compaction, is told that
// a summary is being made.
func TestCompactingIsShown(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		gate := make(chan struct{})
		agent := summarised(func(*llm.Request) scripted.Step {
			return scripted.Reply(scripted.Until(gate), scripted.Say("They talked."))
		})
		agent.Context.TriggerMessages = 5
		s := serve(t, db, []*helix.Agent{agent}, nil)
		open := sync.OnceFunc(func() { close(gate) })
		defer open()
		s.talked("s1")
		call[wire.Started](s, http.StatusOK, http.MethodPost, "/start", wire.Start{SessionID: "s1", AgentType: "teller", Message: wire.Text("three")})
		for range 2 {
			s.untilOn("/chat/s1/stream?sdk=7", `{"type":"data-compacting","data":{"kind":"summary","tokensBefore":`)
		}
		open()
		s.settle("s1")
		if text := shown(s.page("s1").history().Messages); !strings.Contains(text, `"data-compacted"`) || strings.Contains(text, "data-compacting") {
			t.Errorf("the page shows %s", text)
		}
	})
}
