package aisdk

import (
	"encoding/json"
	"slices"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// Wait is a call that waits, or waited, for a person.
type Wait struct {
	session.Pending
	// Under is the session's own call that led to it; empty if it is the session's own call.
	Under string
	// Agent is the agent that made it, if it is not the session's own call.
	Agent string
	// Result is the result of a sub-agent's call, from that agent's transcript.
	Result *session.Message
}

// Transcript is the input of [History].
type Transcript struct {
	SessionID string
	Messages  []session.Message
	Waits     []Wait
	// Suspended is set if the last step waits.
	Suspended bool
	// Running is set while a run is in progress. Its reply is omitted, because a client that
	// resumes the stream receives it from the beginning. With Begun it is included, and the
	// client continues the stream from there.
	Running bool
	Begun   bool
	// Metadata is the metadata of the last run.
	Metadata *Metadata
	// GenerateID, if set, returns the id of a UI message, given its index in the chat. By
	// default the ids are those with which pages ask the server to regenerate a reply or
	// replace a message.
	GenerateID func(index int, m *Message) string
	// First is the index in the chat of the first UI message; see [Transcript.Page].
	First int
}

// History converts a transcript to UI messages.
func History(cfg Config, t *Transcript) []Message {
	groups := Groups(t.SessionID, t.Messages)
	out := []Message{}
	for i := range groups {
		g := &groups[i]
		if g.User != nil {
			out = append(out, userMessage(g.User))
		}
		last := i == len(groups)-1
		if !t.replies(g, last) {
			continue
		}
		cfg.SessionID, cfg.MessageID, cfg.RunID = t.SessionID, g.ID, g.run()
		e := NewEncoder(cfg)
		e.history = true
		m := Message{Role: string(session.RoleAssistant), Parts: []Part{}}
		m.applyAll(e.Start())
		m.applyAll(e.Replay(g.Reply, t.Waits))
		if !last || !t.Running {
			m.applyAll(e.rest(last && t.Suspended, t.Waits))
		}
		m.merge(&Metadata{FinishReason: g.finishReason()})
		if last && t.Metadata != nil {
			meta := *t.Metadata
			meta.FinishReason = m.Metadata.FinishReason
			meta.add(cfg.FinishMetadata)
			m.merge(&meta)
		}
		out = append(out, m)
	}
	if t.GenerateID != nil {
		for i := range out {
			out[i].ID = t.GenerateID(t.First+i, &out[i])
		}
	}
	return out
}

// replies reports whether a part of the transcript has a UI message of the assistant.
func (t *Transcript) replies(g *Group, last bool) bool {
	failed := last && t.Metadata != nil && t.Metadata.Error != ""
	return (len(g.Reply) > 0 || failed) && (!last || !t.Running || t.Begun)
}

// Page returns the part of a transcript with limit UI messages from offset on, and the
// total number of UI messages. Of the UI messages that [History] makes of it, the first
// skip come before offset, and those past skip+limit after the page.
func (t *Transcript) Page(offset, limit int) (page *Transcript, skip, total int) {
	page = &Transcript{SessionID: t.SessionID, GenerateID: t.GenerateID}
	groups := Groups(t.SessionID, t.Messages)
	first, end, at := -1, 0, 0 // messages of the transcript
	for i := range groups {
		g := &groups[i]
		last := i == len(groups)-1
		from, size := total, 0
		if g.User != nil {
			total++
			size++
		}
		if t.replies(g, last) {
			total++
		}
		size += len(g.Reply)
		if total > offset && from-offset < limit && total > from {
			if first < 0 {
				first, skip, page.First = at, max(offset-from, 0), from
			}
			if end = at + size; last {
				page.Suspended, page.Running, page.Begun, page.Metadata = t.Suspended, t.Running, t.Begun, t.Metadata
			}
		}
		at += size
	}
	if first >= 0 {
		page.Messages = t.Messages[first:end]
	}
	return page, skip, total
}

func (m *Message) applyAll(chunks []Chunk) {
	for i := range chunks {
		m.Apply(&chunks[i])
	}
}

// run returns the last run of the reply.
func (g *Group) run() string {
	for _, m := range slices.Backward(g.Reply) {
		if m.RunID != "" {
			return m.RunID
		}
	}
	return ""
}

// finishReason returns why the last message of the reply ended early, if it did.
func (g *Group) finishReason() string {
	for _, m := range slices.Backward(g.Reply) {
		if m.Role == session.RoleAssistant {
			return m.FinishReason()
		}
	}
	return ""
}

// rest ends the encoding of the committed part.
func (e *Encoder) rest(suspended bool, waits []Wait) []Chunk {
	e.out = nil
	forPerson := map[string]bool{}
	for i := range waits {
		if waits[i].Open() {
			forPerson[waits[i].Call()] = true
		}
	}
	switch {
	case suspended && len(forPerson) > 0:
		e.emitWaiting(forPerson)
	case suspended:
		e.seal()
	default:
		e.settleRest()
		e.seal()
	}
	e.closeStep()
	return e.out
}

// Replay encodes committed messages of a reply, each part as a whole.
func (e *Encoder) Replay(messages []session.Message, waits []Wait) []Chunk {
	e.out = nil
	results := map[string]*session.Message{}
	for i := range messages {
		if m := &messages[i]; m.Role == session.RoleTool && len(m.Parts) > 0 {
			results[m.Parts[0].CallID] = m
			if !e.history {
				e.knowDone(m.Parts[0].CallID)
			}
		}
	}
	byCall := map[string][]*Wait{}
	for i := range waits {
		byCall[waits[i].Call()] = append(byCall[waits[i].Call()], &waits[i])
	}
	var before *session.Message
	for i := range messages {
		m := &messages[i]
		if m.Role != session.RoleAssistant {
			e.divide(m)
			e.showSkill(m)
			continue
		}
		if before != nil && before.RunID != m.RunID && !resumed(before, results) {
			e.seal()
		}
		before = m
		e.startStep(&stream.Chunk{MessageID: m.ID, RunID: m.RunID, Step: m.Step})
		e.replyParts(m)
		e.replyResults(m, results, byCall)
		e.replyNested(m, waits)
	}
	return e.out
}

// resumed reports whether another run ended the step of a reply, because its own run
// suspended in it.
func resumed(reply *session.Message, results map[string]*session.Message) bool {
	for _, call := range reply.Calls() {
		if r := results[call.CallID]; r != nil && r.RunID != reply.RunID {
			return true
		}
	}
	return false
}

func (e *Encoder) replyParts(m *session.Message) {
	for i := range m.Parts {
		switch p := &m.Parts[i]; {
		case p.Kind == session.PartText && p.Text != "":
			e.addText(PartText, p.Text)
		case p.Kind == session.PartReasoning && p.Text != "":
			e.addText(PartReasoning, p.Text)
		case p.Kind == session.PartFile:
			e.file(p.URL, p.MediaType)
		case p.Kind == session.PartToolCall:
			e.announce(p.CallID, p.Tool, orNull(p.Input))
		}
	}
	e.endText()
}

func (e *Encoder) replyResults(m *session.Message, results map[string]*session.Message, waits map[string][]*Wait) {
	for _, part := range m.Calls() {
		k := e.calls[part.CallID]
		for _, wait := range waits[part.CallID] {
			e.asked(k, wait)
		}
		if r := results[part.CallID]; r != nil {
			e.endWith(k, r)
		}
	}
}

// replyNested shows the calls of sub-agents that waited.
func (e *Encoder) replyNested(m *session.Message, waits []Wait) {
	made := map[string]bool{}
	for _, part := range m.Calls() {
		made[part.CallID] = true
	}
	for i := range waits {
		w := &waits[i]
		if w.Under == "" || !made[w.Under] || e.calls[w.Call()] != nil {
			continue
		}
		if !e.history && (w.Result != nil || !w.Open()) {
			e.knowDone(w.Call())
		}
		e.childOf(w.SessionID, w.Agent)
		k := e.nest(w.Call(), w.Tool, w.SessionID, orNull(w.Input))
		for j := i; j < len(waits); j++ { // it may have asked several questions
			if waits[j].Call() == w.Call() && waits[j].SessionID == w.SessionID {
				e.asked(k, &waits[j])
				w = &waits[j]
			}
		}
		switch {
		case w.Result != nil:
			e.endWith(k, w.Result)
		case !w.Open():
			e.end(w.outcome(k))
		}
	}
}

// doneElsewhere is the output of a call that was approved, or got its answer, here and ran
// on another server, which has its result.
var doneElsewhere = json.RawMessage(`{"status":"done"}`)

// outcome returns the outcome of a call, as far as its answer determines it.
func (w *Wait) outcome(k *call) (*call, json.RawMessage, *session.Error) {
	r := w.Response
	switch {
	case w.State != session.PendingConsumed || r == nil:
		return k, nil, errLeftOpen
	case r.Kind == session.PendingApproval && !r.Approved:
		return k, nil, &session.Error{Code: session.CodeToolDenied, Message: "the call was not approved by the user"}
	case r.Kind == session.PendingApproval, r.Kind == session.PendingQuestion:
		return k, doneElsewhere, nil
	case r.Error != "":
		return k, nil, &session.Error{Code: session.CodeToolFailed, Message: r.Error}
	}
	return k, r.Result, nil
}

// asked shows the approval, or the question, of a call.
func (e *Encoder) asked(k *call, w *Wait) {
	if w.Kind == session.PendingQuestion {
		e.askedQuestion(k, w)
		return
	}
	if w.Kind != session.PendingApproval || (!w.Open() && w.Response == nil) {
		return
	}
	e.requestApproval(k, w.ApprovalID)
	if r := w.Response; r != nil && r.Kind == session.PendingApproval && (e.history || e.cfg.Version == V7) && e.cfg.Version != V5 {
		k.answered = true
		e.emitFor(k, Chunk{Type: TypeApprovalResponse, ApprovalID: w.ApprovalID, Approved: &r.Approved, Reason: r.Reason})
	}
}

func (e *Encoder) endWith(k *call, m *session.Message) {
	p := &m.Parts[0]
	var result json.RawMessage
	if p.Error == nil {
		result = p.ResultJSON()
		e.locate(k, m.Evicted())
	}
	e.end(k, result, p.Error)
}
