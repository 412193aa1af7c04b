package aisdk

import (
	"encoding/json"
	"strings"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

func (e *Encoder) startInput(c *stream.Chunk) {
	if e.calls[c.CallID] != nil {
		return
	}
	e.endText()
	k := e.remember(c.CallID, c.Tool)
	e.step.calls = append(e.step.calls, k)
	k.shown = true
	if !k.hidden {
		e.emitFor(k, Chunk{Type: TypeInputStart, CallID: k.id, Tool: k.tool, Dynamic: true})
	}
}

func (e *Encoder) remember(id, tool string) *call {
	k := &call{id: id, tool: tool, agent: e.cfg.SessionID, hidden: tool == session.FinishTool}
	e.calls[id] = k
	return k
}

// announce shows a call with its input, once, because a client runs its own tools when it
// sees them.
func (e *Encoder) announce(id, tool string, input json.RawMessage) *call {
	k := e.calls[id]
	if k == nil {
		e.endText()
		k = e.remember(id, tool)
		e.step.calls = append(e.step.calls, k)
	}
	if !k.available {
		e.available(k, tool, input)
	}
	return k
}

func (e *Encoder) available(k *call, tool string, input json.RawMessage) {
	e.endText()
	streamed := e.done[k.id] && k.shown
	k.available, k.tool, k.input = true, tool, input
	switch {
	case k.hidden:
	case !e.done[k.id]:
		e.emitFor(k, Chunk{Type: TypeInputAvailable, CallID: k.id, Tool: tool, Input: input, Dynamic: true})
	case !streamed:
		e.emitFor(k, Chunk{Type: TypeInputStart, CallID: k.id, Tool: tool, Dynamic: true})
		e.emitFor(k, Chunk{Type: TypeInputDelta, CallID: k.id, InputTextDelta: string(input)})
	}
}

// Known announces the items that follow, so that the client does not run calls that end
// among them.
func (e *Encoder) Known(items []stream.Item) {
	for i := range items {
		if c := items[i].Chunk; c != nil && c.Kind == stream.ToolEnd {
			e.knowDone(c.CallID)
		}
	}
}

func (e *Encoder) knowDone(callID string) {
	if e.done == nil {
		e.done = map[string]bool{}
	}
	e.done[callID] = true
}

// ended returns the call that a chunk ends. If the client has not seen it, ended shows it
// first, because clients refuse the output of an unknown call.
func (e *Encoder) ended(c *stream.Chunk) *call {
	if k := e.calls[c.CallID]; k != nil {
		return k
	}
	if e.past {
		k := e.remember(c.CallID, c.Tool)
		k.available = true
		e.step.calls = append(e.step.calls, k)
		return k
	}
	return e.announce(c.CallID, c.Tool, json.RawMessage("{}"))
}

// endEarlier reports the end of a waiting call of an earlier message that the conversation
// continued without. A client refuses the output of a call that is not in the current
// message, so this is a data part.
func (e *Encoder) endEarlier(c *stream.Chunk) {
	ended := struct {
		MessageID string          `json:"messageId"`
		CallID    string          `json:"toolCallId"`
		Tool      string          `json:"toolName"`
		Output    json.RawMessage `json:"output,omitempty"`
		Whole     *Whole          `json:"evicted,omitempty"`
		Error     string          `json:"errorText,omitempty"`
	}{MessageID: c.MessageID, CallID: c.CallID, Tool: c.Tool, Output: e.cfg.result(c.Result)}
	if c.Error != nil {
		ended.Error = c.Error.Message
	}
	if of := c.Evicted(); of != nil && !e.cfg.OmitToolResults {
		ended.Whole = newWhole(c.CallID, of)
	}
	e.data(Chunk{Type: DataPrefix + "tool-end", Data: encoded(ended), Transient: true})
}

// Continue tells the encoder that the client has everything before the first chunk,
// including these waiting calls.
func (e *Encoder) Continue(waiting []session.Pending) {
	e.past = true
	for i := range waiting {
		p := &waiting[i]
		k := e.remember(p.Call(), p.Tool)
		k.available, k.input, k.approval = true, p.Input, p.ApprovalID
		if p.Kind == session.PendingQuestion {
			k.question, k.questionState, k.approval = questionOf(p), questionWaiting, p.CallID
		}
		if p.SessionID == e.cfg.SessionID {
			e.step.calls = append(e.step.calls, k)
		} else {
			k.agent = p.SessionID
			e.step.nested = append(e.step.nested, k)
		}
	}
}

func (e *Encoder) requestApproval(k *call, approvalID string) {
	if k.hidden || k.final || k.approval == approvalID || approvalID == "" {
		return
	}
	k.approval = approvalID
	if e.cfg.Version == V5 {
		e.emitAbout(k, Chunk{Type: DataPrefix + "approval", ID: approvalID, Data: k.approvalData("requested")})
		return
	}
	e.emitFor(k, Chunk{Type: TypeApprovalRequest, CallID: k.id, ApprovalID: approvalID})
}

// emitAbout emits a data part about a call, unless the part or the call is omitted.
func (e *Encoder) emitAbout(k *call, c Chunk) {
	if e.cfg.shows(&c) {
		e.emitFor(k, c)
	}
}

// approvalData returns the data part about an approval for a client of version 5.
func (k *call) approvalData(state string) json.RawMessage {
	return encoded(map[string]any{
		"approvalId": k.approval, "toolCallId": k.id, "toolName": k.tool, "input": orNull(k.input), "state": state,
	})
}

// end sets the final state of a call.
func (e *Encoder) end(k *call, result json.RawMessage, failure *session.Error) {
	if k.final {
		return
	}
	e.endQuestion(k)
	k.final = true
	if k.hidden {
		if failure == nil && k.input != nil {
			e.endText()
			e.data(Chunk{Type: DataPrefix + "output", ID: "output", Data: k.input})
		}
		return
	}
	if !k.available { // its input was cut off
		if failure == nil {
			failure = errLeftOpen
		}
		e.emitFor(k, Chunk{
			Type: TypeInputError, CallID: k.id, Tool: k.tool, Input: json.RawMessage("{}"), Dynamic: true, ErrorText: textOf(failure),
		})
		return
	}
	denied := failure != nil && failure.Code == session.CodeToolDenied
	if k.approval != "" && e.cfg.Version == V5 {
		state := "done"
		if denied {
			state = "denied"
		}
		e.emitAbout(k, Chunk{Type: DataPrefix + "approval", ID: k.approval, Data: k.approvalData(state)})
	}
	switch {
	case denied && e.cfg.Version != V5:
		if e.cfg.Version == V7 && k.approval != "" && !k.answered {
			no := false
			e.emitFor(k, Chunk{Type: TypeApprovalResponse, ApprovalID: k.approval, Approved: &no})
		}
		e.emitFor(k, Chunk{Type: TypeOutputDenied, CallID: k.id})
	case failure != nil:
		e.emitFor(k, Chunk{Type: TypeOutputError, CallID: k.id, ErrorText: textOf(failure), Dynamic: true})
	default:
		k.output = orNull(e.cfg.result(result))
		e.emitFor(k, Chunk{Type: TypeOutputAvailable, CallID: k.id, Output: k.output, Dynamic: true})
	}
}

// waitingOutput is the output of a call whose agent waits.
var waitingOutput = json.RawMessage(`{"status":"waiting"}`)

// suspended shows the calls that the run waits for, at any depth.
func (e *Encoder) suspended(c *stream.Chunk) {
	var told struct {
		Pending []session.Pending `json:"pending"`
	}
	if json.Unmarshal(c.Data, &told) != nil {
		return // it was too large; the calls were announced before
	}
	own := map[string]bool{}
	for i := range told.Pending {
		p := &told.Pending[i]
		own[p.Call()] = true
		if c.AgentID == e.cfg.SessionID || p.SessionID != e.cfg.SessionID { // only the session itself may report its own calls
			e.await(p)
		}
	}
	if c.AgentID != e.cfg.SessionID {
		return
	}
	if e.nobody = len(told.Pending) == 0; !e.nobody {
		e.emitWaiting(own)
	}
}

// emitWaiting marks the calls of the step that wait for an agent, not for a person.
func (e *Encoder) emitWaiting(forPerson map[string]bool) {
	for _, k := range e.step.calls {
		if !k.final && !k.hidden && k.available && !forPerson[k.id] && k.output == nil {
			k.output = waitingOutput
			e.emitFor(k, Chunk{Type: TypeOutputAvailable, CallID: k.id, Output: waitingOutput, Dynamic: true})
		}
	}
}

// await shows a call that waits for a person.
func (e *Encoder) await(p *session.Pending) {
	k := e.calls[p.Call()]
	switch {
	case k != nil && k.final:
		return
	case p.SessionID == e.cfg.SessionID:
		k = e.announce(p.Call(), p.Tool, orNull(p.Input))
	case k == nil:
		k = e.nest(p.Call(), p.Tool, p.SessionID, orNull(p.Input))
	case !k.isOf(e, p.SessionID):
		return
	}
	switch p.Kind {
	case session.PendingApproval:
		e.requestApproval(k, p.ApprovalID)
	case session.PendingQuestion:
		e.ask(k, questionOf(p), questionWaiting)
	}
}

// isOf reports whether an agent below the session may say that a call waits: it made the
// call, or one of them works for the other on another server. A remote agent's waiting calls
// are listed as its own, at any depth.
func (k *call) isOf(e *Encoder, agent string) bool {
	return k.agent != e.cfg.SessionID && (k.agent == agent || relayedBy(agent, k.agent) || relayedBy(k.agent, agent))
}

// relayedBy reports whether an agent works on another server, for the remote agent that the
// session standIn relays; see [session.NewPeerID].
func relayedBy(agent, standIn string) bool { return strings.HasPrefix(agent, standIn+"@peer") }

// nest shows a call of a sub-agent that waits, as a part of the session's message.
func (e *Encoder) nest(id, tool, agent string, input json.RawMessage) *call {
	k := e.remember(id, tool)
	k.hidden, k.agent = false, agent
	e.step.nested = append(e.step.nested, k)
	e.available(k, tool, input)
	return k
}
