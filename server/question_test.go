package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/server/aisdk"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// inquirer is an agent whose tool asks whether to wrap something up, and then how. The
// tool of its sub-agent does the same.
func inquirer() *helix.Agent {
	wrap := helix.Tool{
		Name: "wrap", Asks: true,
		Execute: helix.Func(func(_ context.Context, call *helix.Call, _ item) (string, error) {
			said := call.Answers()
			switch len(said) {
			case 0:
				return "", helix.Ask(helix.Question{
					Prompt: "Wrap it?", Schema: json.RawMessage(`{"type":"object","required":["wrap"],"properties":{"wrap":{"type":"boolean"}}}`), Memo: "hush",
				})
			case 1:
				return "", helix.Ask(helix.Question{Prompt: "In which colour?", Schema: json.RawMessage(`{"type":"string","minLength":3}`)})
			}
			return fmt.Sprintf("%s %s %t", said[0].Answer, said[1].Answer, said[1].Declined), nil
		}),
	}
	packer := &helix.Agent{Name: "packer", Tools: []helix.Tool{wrap}, Model: speaker(func(r *llm.Request) scripted.Step {
		if strings.HasPrefix(lastText(r), "result ") {
			return scripted.Text("packed: " + lastText(r))
		}
		return scripted.Call("wrap", item{2})
	})}
	return &helix.Agent{
		Name: "shop", Tools: []helix.Tool{wrap}, SubAgents: []helix.SubAgent{{Agent: packer}},
		Model: speaker(func(r *llm.Request) scripted.Step {
			switch lastText(r) {
			case "wrap":
				return scripted.Call("wrap", item{1})
			case "pack":
				return scripted.Call("subagent__packer", map[string]string{"task": "pack"})
			}
			return scripted.Text("So: " + lastText(r))
		}),
	}
}

// asked finds the data part of the question that waits.
func (p *page) asked() map[string]any {
	p.t.Helper()
	last := &p.messages[len(p.messages)-1]
	for _, part := range last.Parts {
		var data map[string]any
		if part.Type == "data-question" && json.Unmarshal(part.Data, &data) == nil && data["state"] == "waiting" {
			return data
		}
	}
	p.t.Fatalf("no question waits in\n%s", shown(p.messages))
	return nil
}

// A stock page answers a question of yes or no as an approval, and another one as the
// output of its call.
func TestChatQuestions(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		s := serve(t, db, []*helix.Agent{inquirer()}, nil)
		for i, say := range []string{"wrap", "pack"} {
			p := s.page(fmt.Sprint("chat-", i+1))
			p.say(say)
			if p.asked()["prompt"] != "Wrap it?" || strings.Contains(shown(p.messages), "hush") {
				t.Errorf("the page shows %s", shown(p.messages))
			}
			if agent := p.asked()["agent"]; agent != map[string]any{"wrap": nil, "pack": "packer"}[say] {
				t.Errorf("%s: the question is said to be of %v", say, agent)
			}
			p.same()
			p.approve(p.tool("wrap", 0), true)
			p.send(aisdk.TriggerSubmit, "")
			if p.asked()["prompt"] != "In which colour?" {
				t.Errorf("after the first answer the page shows %s", shown(p.messages))
			}
			part := p.tool("wrap", 0)
			part.State, part.Output = aisdk.StateOutputAvailable, json.RawMessage(`"blue"`)
			p.send(aisdk.TriggerSubmit, "")
			if text := shown(p.messages); !strings.Contains(text, `{\"wrap\":true} \"blue\" false`) || strings.Contains(text, `"state":"waiting"`) {
				t.Errorf("after the answers the page shows %s", text)
			}
		}
	})
}

func TestSubmitAnswers(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		s := serve(t, db, []*helix.Agent{inquirer()}, nil)
		s.page("chat-1").say("wrap")
		question := func() session.Pending {
			t.Helper()
			waiting := call[wire.Status](s, http.StatusOK, http.MethodGet, "/status?sessionId=chat-1", nil).Pending
			if len(waiting) != 1 || waiting[0].Kind != session.PendingQuestion || waiting[0].For == "" {
				t.Fatalf("what waits is %+v", waiting)
			}
			return waiting[0]
		}
		first := question()
		send := func(p session.Pending, change map[string]any) map[string]any {
			body := map[string]any{"sessionId": "chat-1", "toolCallId": p.CallID, "resume": true}
			maps.Copy(body, change)
			return body
		}
		for name, c := range map[string]struct {
			status int
			body   map[string]any
			code   session.Code
			field  string
		}{
			"a misfit":            {400, map[string]any{"answer": map[string]any{"wrap": "yes"}}, session.CodeInvalid, "answer"},
			"another field":       {400, map[string]any{"answer": map[string]any{"unwrap": true}}, session.CodeInvalid, "answer"},
			"an answer and none":  {400, map[string]any{"answer": true, "declined": true}, session.CodeInvalid, "answer"},
			"a result beside it":  {400, map[string]any{"answer": true, "result": 1}, session.CodeInvalid, "result"},
			"of another kind":     {400, map[string]any{"kind": "approval-response", "answer": true}, session.CodeInvalid, "kind"},
			"a reason for an yes": {400, map[string]any{"answer": true, "reason": "why not"}, session.CodeInvalid, "reason"},
			"nothing":             {400, map[string]any{"kind": "question"}, session.CodeSubmission, ""},
			"a result":            {400, map[string]any{"result": 1}, session.CodeSubmission, ""},
		} {
			if got := s.refused(c.status, c.code, http.MethodPost, "/submit-tool-result", send(first, c.body)); got.Field != c.field {
				t.Errorf("%s: the error names %q: %+v", name, got.Field, got)
			}
		}
		done := call[wire.Submitted](s, http.StatusOK, http.MethodPost, "/submit-tool-result", send(first, map[string]any{"answer": map[string]any{"wrap": false}}))
		if done.Outcome != session.SubmitAccepted || done.RunID == "" {
			t.Fatalf("the answer was %+v", done)
		}
		s.settle("chat-1")
		again := call[wire.Submitted](s, http.StatusOK, http.MethodPost, "/submit-tool-result", send(first, map[string]any{"answer": map[string]any{"wrap": true}}))
		if again.Outcome != session.SubmitAlreadyCompleted {
			t.Errorf("the answer, given again, was %s", again.Outcome)
		}
		second := question()
		call[wire.Submitted](s, http.StatusOK, http.MethodPost, "/chat/chat-1/submit-tool-result",
			map[string]any{"kind": "question", "toolCallId": second.CallID, "declined": true, "reason": "no idea", "resume": true})
		s.settle("chat-1")
		if text := shown(s.page("chat-1").history().Messages); !strings.Contains(text, `{\"wrap\":false}  true`) {
			t.Errorf("the chat is %s", text)
		}
	})
}
