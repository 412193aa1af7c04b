package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

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

// A run that failed is told everywhere with its code and a sentence of its own, and its
// cause to operators alone.
func TestFailureReachesThePerson(t *testing.T) {
	t.Parallel()
	sentences := map[string]session.Code{}
	for _, code := range []session.Code{
		session.CodeAuth, session.CodeQuota, session.CodeRateLimited, session.CodeOverloaded, session.CodeProviderDown, session.CodeModelTimeout,
		session.CodeMalformed, session.CodeBadReply, session.CodeBadRequest, session.CodeContextLength, session.CodeContentFilter,
		session.CodeProvider, session.CodeMaxSteps, session.CodeNoOutput, session.CodeCrashLoop, session.CodeHook, session.CodeUnknownAgent,
		session.CodeRemote, session.CodeInternal, session.CodeUnavailable, session.CodeCorrupt, session.CodeTooLarge,
	} {
		sentence := wire.Explain(code)
		if other, ok := sentences[sentence]; ok {
			t.Errorf("%s and %s are told alike: %s", code, other, sentence)
		}
		sentences[sentence] = code
		if code != session.CodeInternal && sentence == wire.Explain(session.CodeInternal) {
			t.Errorf("%s has no sentence", code)
		}
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			tellsOf(t, code, sentence)
		})
	}
}

func tellsOf(t *testing.T, code session.Code, sentence string) {
	t.Helper()
	const cause = "upstream 10.0.0.7 said no"
	agent := &helix.Agent{Name: "failing", Model: speaker(func(*llm.Request) scripted.Step {
		return scripted.Reply(scripted.Failing(llm.Error(code, false, cause)))
	})}
	s := serve(t, inMemory(t), []*helix.Agent{agent}, nil)
	operator := s.as("operator-token")
	p := s.page("s-1")
	live := p.say("Hi!")
	if p.failed != sentence || live.Metadata.Code != code || live.Metadata.Error != sentence {
		t.Errorf("the chat says %q, with %+v", p.failed, live.Metadata)
	}
	status := call[wire.Status](s, http.StatusOK, http.MethodGet, "/status?sessionId=s-1", nil)
	if e := status.Error; e == nil || e.Code != code || e.Message != sentence || e.Detail != "" {
		t.Errorf("the status says %+v", e)
	}
	status = call[wire.Status](operator, http.StatusOK, http.MethodGet, "/status?sessionId=s-1", nil)
	if e := status.Error; e == nil || e.Code != code || e.Message != sentence || !strings.Contains(e.Detail, cause) {
		t.Errorf("an operator's status says %+v", e)
	}
	chat := p.history() // a reload shows what the page showed
	if e := chat.Error; e == nil || e.Code != code || e.Message != sentence || e.Detail != "" {
		t.Errorf("the chat that is loaded has the error %+v", e)
	}
	if len(chat.Messages) != 2 {
		t.Fatalf("the chat that is loaded has %s", shown(chat.Messages))
	}
	if m := chat.Messages[1]; m.ID != live.ID || m.Metadata.Code != code || m.Metadata.Error != sentence || m.Metadata.Status != "failed" {
		t.Errorf("the failed reply is %s with %+v", shown(chat.Messages[1:]), m.Metadata)
	}
	for _, e := range s.settle("s-1") {
		if strings.Contains(e.data, cause) {
			t.Errorf("a user's stream has the cause: %s", e.data)
		}
	}
}

// Where nobody signs in, the cause is told: whoever looks runs the server.
func TestLocalServerTellsTheCause(t *testing.T) {
	t.Parallel()
	agent := &helix.Agent{Name: "failing", Model: scripted.New(scripted.Fail(session.CodeAuth, false, "openai answered 401"))}
	s := serve(t, inMemory(t), []*helix.Agent{agent}, func(c *server.Config) { c.Authenticate, c.AllowUnauthenticated = nil, true })
	s.token = ""
	p := s.page("s-1")
	p.say("Hi!")
	if want := wire.Explain(session.CodeAuth) + " (openai answered 401)"; p.failed != want {
		t.Errorf("the chat says %q, not %q", p.failed, want)
	}
	status := call[wire.Status](s, http.StatusOK, http.MethodGet, "/status?sessionId=s-1", nil)
	if status.Error == nil || status.Error.Detail != "openai answered 401" {
		t.Errorf("the status says %+v", status.Error)
	}
}

// The AI SDK shows the body of a refused request to the user as it is.
func TestChatErrorsAreSentences(t *testing.T) {
	t.Parallel()
	model := &gated{pieces: []string{"x"}, gate: make(chan struct{})}
	s := serve(t, inMemory(t), []*helix.Agent{{Name: "slow", Model: model}}, nil)
	p := s.page("s-1")
	p.messages = []aisdk.Message{{ID: "u1", Role: "user", Parts: []aisdk.Part{{Type: aisdk.PartText, Text: "x"}}}}
	wait := p.open(http.MethodPost, "/chat", p.body(aisdk.TriggerSubmit, ""), false)
	again := map[string]any{"id": "s-1", "messages": []aisdk.Message{{ID: "u2", Role: "user", Parts: p.messages[0].Parts}}}
	for _, c := range []struct {
		status       int
		code         session.Code
		method, path string
		body         any
		field, text  string
	}{
		{http.StatusConflict, session.CodeRunning, http.MethodPost, "/chat", again, "", wire.Explain(session.CodeRunning)},
		{http.StatusBadRequest, session.CodeInvalid, http.MethodPost, "/chat", map[string]any{"id": "s-2"}, "messages", "The request was not accepted: messages must not be empty."},
		{http.StatusBadRequest, session.CodeInvalid, http.MethodGet, "/chat/s-1/stream?sdk=9", nil, "sdk", `The request was not accepted: sdk "9" is not one of 5, 6, 7.`},
		{http.StatusNotFound, session.CodeUnknownAgent, http.MethodPost, "/chat", map[string]any{"id": "s-3", "agent": "y", "messages": p.messages}, "agent", `There is no agent named "y".`},
	} {
		answer := s.request(c.method, c.path, c.body, "Accept", "*/*")
		raw, err := io.ReadAll(answer.Body)
		if err != nil || answer.Body.Close() != nil {
			t.Fatal(err)
		}
		if answer.StatusCode != c.status || string(raw) != c.text || answer.Header.Get("Content-Type") != wire.ContentText ||
			answer.Header.Get(wire.HeaderErrorCode) != string(c.code) || answer.Header.Get(wire.HeaderErrorField) != c.field {
			t.Errorf("%s %s is %d %q with %v", c.method, c.path, answer.StatusCode, raw, answer.Header)
		}
		if got := s.refused(c.status, c.code, c.method, c.path, c.body); got.Field != c.field || strings.Contains(got.Message, "run_") {
			t.Errorf("as JSON the error is %+v", got)
		}
	}
	model.gate <- struct{}{}
	wait()
}

// A page shows the sentence of an error to its user: it speaks of what the page sent or
// of the conversation, never of ids, checkpoints and calls, which operators find in the
// detail.
func TestChatRefusalsSayNothingOfTheInside(t *testing.T) {
	t.Parallel()
	approver := desk(map[string]scripted.Step{"erase": scripted.Call("delete", item{3})})
	for i := range approver.Tools {
		if approver.Tools[i].Name == "delete" {
			approver.Tools[i].Approver = func(context.Context, *helix.Answer) error { return errors.New("only the boss") }
		}
	}
	s := serve(t, inMemory(t), []*helix.Agent{approver}, nil)
	waits := s.page("waits")
	waits.say("where")
	call1 := waits.tool("locate", 0).CallID
	guarded := s.page("guarded")
	guarded.say("erase")
	pending := guarded.history().Waiting[0]
	done := s.page("done")
	done.say("hello")
	done.say("one")
	paused := s.page("paused")
	paused.say("hello")
	// A run holds its session for a moment after its stream has ended.
	eventually.Poll(t, "the session can be paused", func() bool {
		answer := s.as("operator-token").request(http.MethodPost, "/sessions/paused/pause", nil)
		return answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
	})
	said := func(id, message string) map[string]any {
		return map[string]any{"id": id, "messages": []aisdk.Message{{ID: message, Role: "user", Parts: []aisdk.Part{{Type: aisdk.PartText, Text: "x"}}}}}
	}
	with := func(body map[string]any, name string, value any) map[string]any { body[name] = value; return body }
	inside := regexp.MustCompile(`call_|cpv1|run_|\bcheckpoint|\bcalls?\b|%!`)
	for _, c := range []struct {
		status int
		code   session.Code
		path   string
		body   map[string]any
		text   string
	}{
		{409, session.CodeAwaiting, "/chat", said("waits", "u9"), wire.Explain(session.CodeAwaiting)},
		{409, session.CodePaused, "/chat", said("paused", "u9"), wire.Explain(session.CodePaused)},
		{409, session.CodeNotResumable, "/chat", with(said("done", "u1"), "messageId", "u1"), "The first message of a chat cannot be replaced. Start a new chat."},
		{404, session.CodeNotFound, "/chat", with(with(said("done", "u1"), "trigger", "regenerate-message"), "messageId", "u8"), wire.Explain(session.CodeNotFound)},
		{404, session.CodeNotFound, "/chat", map[string]any{"id": "nobody", "messages": []any{map[string]any{"role": "assistant", "parts": []any{}}}}, wire.Explain(session.CodeNotFound)},
		{409, session.CodeNotResumable, "/chat", map[string]any{"id": "done", "messages": []any{map[string]any{"role": "assistant", "parts": []any{}}}}, wire.Explain(session.CodeNotResumable)},
		{400, session.CodeInvalid, "/chat", said("a-sub-call_0123456789abcdef01234567", "u1"), `The request was not accepted: id "a-sub-call_0123456789abcdef01234567" is reserved for sub-agents' sessions.`},
		{400, session.CodeInvalid, "/chat", said("a b", "u1"), `The request was not accepted: id "a b" may contain only letters, digits and ._:@/-.`},
		{400, session.CodeInvalid, "/chat", with(said("new", "u1"), "trigger", "dance"), `The request was not accepted: trigger "dance" is neither submit-message nor regenerate-message.`},
		{400, session.CodeInvalid, "/chat", said("new", "u\n"), `The request was not accepted: messages[0].id "u\n" has a control or invalid character.`},
		{400, session.CodeSubmission, "/chat/waits/submit-tool-result", map[string]any{"toolCallId": call1, "approval": map[string]any{"approvalId": "apr_1", "approved": true}}, wire.Explain(session.CodeSubmission)},
		{403, session.CodeNotAllowed, "/chat/guarded/submit-tool-result", map[string]any{"toolCallId": pending.CallID, "approval": map[string]any{"approvalId": pending.ApprovalID, "approved": true}}, wire.Explain(session.CodeNotAllowed)},
		{404, session.CodeNotFound, "/chat/nobody/interrupt", map[string]any{}, wire.Explain(session.CodeNotFound)},
		{413, session.CodeTooLarge, "/chat/waits/submit-tool-result", map[string]any{"toolCallId": call1, "error": strings.Repeat("x", 8193)}, "error has 8193 bytes, at most 8192 are allowed"},
	} {
		answer := s.request(http.MethodPost, c.path, c.body, "Accept", "*/*")
		raw, err := io.ReadAll(answer.Body)
		if err != nil || answer.Body.Close() != nil {
			t.Fatal(err)
		}
		text := string(raw)
		if c.path != "/chat" { // whose answers are JSON for everybody
			var body wire.Error
			if err := json.Unmarshal(raw, &body); err != nil || body.Detail != "" {
				t.Fatalf("%s: %v", raw, err)
			}
			text = body.Message
		}
		if answer.StatusCode != c.status || text != c.text {
			t.Errorf("%s with %.100v is %d %q, not %d %q", c.path, c.body, answer.StatusCode, text, c.status, c.text)
		}
		if plain := regexp.MustCompile(`"[^"]*"`).ReplaceAllString(text, ""); inside.MatchString(plain) {
			t.Errorf("%s with %.100v says %q", c.path, c.body, text)
		}
	}
	got := s.as("operator-token").refused(http.StatusBadRequest, session.CodeSubmission, http.MethodPost, "/chat/waits/submit-tool-result",
		map[string]any{"toolCallId": call1, "approval": map[string]any{"approvalId": "apr_1", "approved": true}})
	if !strings.Contains(got.Detail, call1) {
		t.Errorf("an operator is told %+v", got)
	}
}

// What had been said when a run was stopped is told by its status.
func TestStatusHasThePartialText(t *testing.T) {
	t.Parallel()
	for _, stop := range []string{"interrupt", "abort"} {
		t.Run(stop, func(t *testing.T) {
			t.Parallel()
			onBackends(t, func(t *testing.T, db store.Backend) {
				agent := &helix.Agent{Name: "slow", Model: scripted.New(scripted.Reply(scripted.Say("Once upon"), scripted.Until(nil)))}
				s := serve(t, db, []*helix.Agent{agent}, nil)
				call[wire.Started](s, http.StatusOK, http.MethodPost, "/start", wire.Start{SessionID: "s-1", AgentType: "slow", Message: wire.Text("Hi!")})
				s.untilText("s-1", "upon")
				call[wire.Stopping](s, http.StatusAccepted, http.MethodPost, "/"+stop, wire.Stop{SessionID: "s-1", Reason: "enough"})
				s.settle("s-1")
				status := call[wire.Status](s, http.StatusOK, http.MethodGet, "/status?sessionId=s-1", nil)
				if status.Text != "Once upon" {
					t.Errorf("the text is %q", status.Text)
				}
				if e := status.Error; stop == "abort" && (e == nil || e.Code != session.CodeCancelled || e.Detail != "enough") {
					t.Errorf("the error is %+v", e)
				}
			})
		})
	}
}

// A reply that the model did not end by itself says why, live and after a reload.
func TestFinishReasonIsTold(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		for _, finish := range []llm.FinishReason{llm.FinishLength, llm.FinishContentFilter} {
			agent := &helix.Agent{Name: "cut", Model: speaker(func(*llm.Request) scripted.Step {
				return scripted.Text("Once upon").WithFinish(finish)
			})}
			s := serve(t, db, []*helix.Agent{agent}, nil)
			p := s.page("s-" + string(finish))
			p.messages = []aisdk.Message{{ID: "u1", Role: "user", Parts: []aisdk.Part{{Type: aisdk.PartText, Text: "Hi!"}}}}
			status, header, raw := p.fetch(http.MethodPost, "/chat", p.body(aisdk.TriggerSubmit, ""))
			live := p.take(status, header, raw, false)
			if want := `"finishReason":"` + string(finish) + `"}`; !strings.Contains(string(raw), want) {
				t.Errorf("the stream has no %s: %s", want, raw)
			}
			if live.Metadata.FinishReason != string(finish) || p.history().Messages[1].Metadata.FinishReason != string(finish) {
				t.Errorf("the message has %+v, and after a reload %+v", live.Metadata, p.history().Messages[1].Metadata)
			}
			told := call[wire.Status](s, http.StatusOK, http.MethodGet, "/status?sessionId="+p.id, nil)
			if told.FinishReason != string(finish) {
				t.Errorf("the status is %+v", told)
			}
		}
	})
}
