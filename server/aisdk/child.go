package aisdk

import (
	"github.com/helixagents/helix/stream"
)

// Limits of what is shown of a sub-agent.
const (
	maxChildText  = 16 << 10
	maxChildTools = 100
)

// child is a sub-agent of the session, at any depth.
type child struct {
	SessionID string `json:"sessionId"`
	Agent     string `json:"agent"`
	// CallID is the call that the agent runs for.
	CallID string `json:"toolCallId,omitempty"`
	// Status is running, waiting, completed, interrupted or failed.
	Status string `json:"status"`
	// Text is the text of its current reply.
	Text  string       `json:"text,omitempty"`
	Tools []*childTool `json:"tools,omitempty"`
}

// childTool is a call of a sub-agent. A waiting one is a tool part, too, and is answered
// under the same id.
type childTool struct {
	CallID string `json:"toolCallId"`
	Tool   string `json:"toolName"`
	// State is running, waiting, done or failed.
	State string `json:"state"`
}

// child handles the start and end of an agent's chunks.
func (e *Encoder) child(c *stream.Chunk) {
	k := e.childOf(c.Child, c.Tool)
	k.CallID = c.CallID
	switch {
	case c.Kind == stream.SubAgentStart:
		k.Status = "running"
	case c.Success:
		k.Status = "completed"
	case k.Status == "running" || k.Status == "waiting":
		k.Status = "failed"
	}
	e.emitChild(k)
}

func (e *Encoder) childOf(sessionID, agent string) *child {
	k := e.children[sessionID]
	if k == nil {
		k = &child{SessionID: sessionID, Agent: agent, Status: "running"}
		e.children[sessionID] = k
	}
	return k
}

func (e *Encoder) emitChild(k *child) {
	e.endText()
	e.data(Chunk{Type: DataPrefix + "subagent", ID: k.SessionID, Data: encoded(k)})
}

// below encodes a chunk of a sub-agent.
func (e *Encoder) below(c *stream.Chunk) {
	k := e.childOf(c.AgentID, c.AgentType)
	k.Agent = c.AgentType
	switch c.Kind {
	case stream.StepStarted:
		k.Text = ""
	case stream.StepDiscarded:
		if c.Scope != stream.ScopeResults {
			k.Text = ""
		}
	case stream.TextDelta:
		if len(k.Text) < maxChildText {
			k.Text += c.Delta
		}
		e.data(Chunk{
			Type: DataPrefix + "subagent-text", Transient: true,
			Data: encoded(map[string]string{"sessionId": k.SessionID, "delta": c.Delta}),
		})
	case stream.ToolStart:
		e.childTool(k, c, "running")
	case stream.ApprovalRequest:
		e.childTool(k, c, "waiting")
		if e.calls[c.CallID] == nil {
			e.nest(c.CallID, c.Tool, c.AgentID, given(c))
		}
		if nested := e.nested(c.CallID); nested != nil && nested.isOf(e, c.AgentID) {
			e.requestApproval(nested, c.ApprovalID)
		}
	case stream.ToolEnd:
		state := "done"
		if c.Error != nil {
			state = "failed"
		}
		e.childTool(k, c, state)
		if nested := e.nested(c.CallID); nested != nil {
			e.locate(nested, c.Evicted())
			e.end(nested, c.Result, c.Error)
		}
	case stream.Custom:
		if q := c.AsQuestion(); q != nil {
			e.childTool(k, c, "waiting")
			e.asksHere(c, q)
		}
	case stream.SubAgentStart, stream.SubAgentEnd:
		e.child(c)
	case stream.Suspended:
		k.Status = "waiting"
		e.suspended(c)
		e.emitChild(k)
	case stream.RunResumed:
		k.Status = "running"
		e.emitChild(k)
	case stream.RunCompleted:
		e.childEnds(k, "completed")
	case stream.RunInterrupted:
		e.childEnds(k, "interrupted")
	case stream.Failure:
		e.childEnds(k, "failed")
	}
}

// nested returns a sub-agent's call that the client has seen. A remote agent must not send
// chunks about calls of the session itself.
func (e *Encoder) nested(callID string) *call {
	if k := e.calls[callID]; k != nil && k.agent != e.cfg.SessionID {
		return k
	}
	return nil
}

func (e *Encoder) childEnds(k *child, status string) {
	k.Status = status
	e.emitChild(k)
}

func (e *Encoder) childTool(k *child, c *stream.Chunk, state string) {
	for _, t := range k.Tools {
		if t.CallID == c.CallID {
			if t.State != state {
				t.State = state
				e.emitChild(k)
			}
			return
		}
	}
	if len(k.Tools) < maxChildTools {
		k.Tools = append(k.Tools, &childTool{CallID: c.CallID, Tool: c.Tool, State: state})
		e.emitChild(k)
	}
}
