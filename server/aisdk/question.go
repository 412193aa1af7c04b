package aisdk

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// The states of a question, as its data part has them.
const (
	questionWaiting = "waiting"
	questionDone    = "done"
)

// questionData is the data of a part "data-question".
type questionData struct {
	stream.Question
	// Agent is the sub-agent that asks; empty if it is the chat's own agent.
	Agent string `json:"agent,omitempty"`
	State string `json:"state"`
}

// ask shows a question of a call, as a data part under the question's id and, if it is
// answered with yes or no, also as a request for approval: pages that know only those can
// answer it.
func (e *Encoder) ask(k *call, q *stream.Question, state string) {
	if k.hidden || k.final || (k.question != nil && k.question.ID == q.ID && k.questionState == state) {
		return
	}
	if k.question != nil && k.question.ID != q.ID {
		e.endQuestion(k)
	}
	k.question, k.questionState = q, state
	e.endText()
	e.emitQuestion(k)
	if _, ok := yesOrNo(q.Schema); ok {
		e.requestApproval(k, q.ID)
	}
}

// endQuestion shows that the latest question of a call no longer waits.
func (e *Encoder) endQuestion(k *call) {
	if k.question != nil && k.questionState != questionDone {
		k.questionState = questionDone
		e.emitQuestion(k)
	}
}

// emitQuestion emits the data part about the latest question of a call, unless it or the
// call is omitted.
func (e *Encoder) emitQuestion(k *call) {
	data := questionData{Question: *k.question, State: k.questionState}
	if below := e.children[k.agent]; below != nil {
		data.Agent = below.Agent
	}
	e.emitAbout(k, Chunk{Type: DataPrefix + stream.QuestionName, ID: k.question.ID, Data: encoded(data)})
}

// asksHere shows a question that a chunk of the session, or of an agent below it, has.
func (e *Encoder) asksHere(c *stream.Chunk, q *stream.Question) {
	k := e.calls[c.CallID]
	switch {
	case c.AgentID == e.cfg.SessionID:
		k = e.announce(c.CallID, c.Tool, given(c))
	case k == nil:
		k = e.nest(c.CallID, c.Tool, c.AgentID, given(c))
	case !k.isOf(e, c.AgentID): // an agent must not ask in the name of another
		return
	}
	e.ask(k, q, questionWaiting)
}

// questionOf is what people are shown of an entry.
func questionOf(p *session.Pending) *stream.Question {
	c := stream.NewQuestion(p)
	return c.AsQuestion()
}

// askedQuestion shows a question of a reply that is replayed.
func (e *Encoder) askedQuestion(k *call, w *Wait) {
	state := questionDone
	if w.State == session.PendingWaiting {
		state = questionWaiting
	}
	e.ask(k, questionOf(&w.Pending), state)
	field, ok := yesOrNo(w.Schema)
	if !ok || w.Response == nil || w.Response.Answer == nil || e.cfg.Version == V5 || !(e.history || e.cfg.Version == V7) {
		return
	}
	said, ok := readYesOrNo(field, w.Response.Answer)
	if ok {
		k.answered = true
		e.emitFor(k, Chunk{Type: TypeApprovalResponse, ApprovalID: w.CallID, Approved: &said})
	}
}

// yesOrNo reports whether a schema asks for one boolean: the answer itself, or its only
// field, whose name it returns.
func yesOrNo(schema json.RawMessage) (field string, ok bool) {
	type typed struct {
		Type       string           `json:"type"`
		Properties map[string]typed `json:"properties"`
	}
	var s typed
	if schema == nil || json.Unmarshal(schema, &s) != nil {
		return "", false
	}
	if s.Type == "boolean" {
		return "", true
	}
	names := slices.Collect(maps.Keys(s.Properties))
	if s.Type == "object" && len(names) == 1 && s.Properties[names[0]].Type == "boolean" {
		return names[0], true
	}
	return "", false
}

func readYesOrNo(field string, answer json.RawMessage) (said, ok bool) {
	if field == "" {
		return said, json.Unmarshal(answer, &said) == nil
	}
	var fields map[string]bool
	if json.Unmarshal(answer, &fields) != nil {
		return false, false
	}
	said, ok = fields[field]
	return said, ok
}

// Answer returns the answer that a tool part gives to a question of its call: the decision
// of a page that knows only approvals, or the output. It reports whether there is one.
func (p *Part) Answer(q *session.Pending) (helix.Submission, bool) {
	decision := p.decided()
	if p.State == StateApprovalResponded {
		decision = p.Approval
	}
	field, ok := yesOrNo(q.Schema)
	switch {
	case ok && decision != nil && decision.ID == q.CallID && decision.Approved != nil:
		var answer any = *decision.Approved
		if field != "" {
			answer = map[string]any{field: answer}
		}
		return helix.Reply(*q, answer, helix.User{}), true
	case p.State == StateOutputError:
		return helix.ToolError(q.CallID, p.ErrorText), true
	case p.State == StateOutputAvailable:
		return helix.Reply(*q, orNull(p.Output), helix.User{}), true
	}
	return helix.Submission{}, false
}
