package aisdk

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// Config configures an [Encoder].
type Config struct {
	// Version defaults to [Default].
	Version   Version
	SessionID string
	// MessageID is the id of the UI message; see [ReplyID].
	MessageID string
	// RunID is the run whose end ends the stream.
	RunID string
	// ErrorText returns the text for a failed run. Defaults to the error's message, which is
	// also the text for a failed call.
	ErrorText func(*session.Error) string
	Options
}

// Encoder encodes the chunks of one UI message. Its methods return chunks in the order in
// which a client must read them. It is not safe for concurrent use.
type Encoder struct {
	cfg  Config
	out  []Chunk
	step step
	// inStep is set between start-step and finish-step.
	inStep   bool
	calls    map[string]*call
	children map[string]*child
	parts    int  // text and reasoning parts so far
	past     bool // the client has the message's beginning
	history  bool // no client: the chunks become parts here
	// done are calls that are known to end. They are shown in a way that does not make the
	// client run them.
	done   map[string]bool
	abort  *Chunk // set once the run was stopped
	marks  []mark
	nobody bool // the run waits, but not for a person
}

// mark is a marker that is not shown yet. It is on the stream before it is committed, and a
// process that dies in between leaves one that never became part of the conversation. The
// next step starts after the commit.
type mark struct {
	message session.Message
	at      int // how many messages are before it
}

// step is the part of the current step that the client has seen.
type step struct {
	reply string
	run   string
	n     int
	texts []text
	open  bool // whether the last text is open
	calls []*call
	// reset is set if everything was discarded and the step continues.
	reset bool
	// nested are calls of sub-agents.
	nested []*call
}

type text struct {
	id, kind, text string
	omitted        bool
}

// call is a call that the client has seen.
type call struct {
	id, tool  string
	agent     string // the session that made it
	shown     bool   // it is being written
	available bool   // its input is complete
	final     bool
	hidden    bool // it finishes the turn
	decided   bool // whether it is omitted
	omitted   bool
	output    json.RawMessage
	located   bool // the client was told where the whole output is
	approval  string
	answered  bool
	input     json.RawMessage
	// question is the latest question that the call has asked.
	question      *stream.Question
	questionState string
}

// NewEncoder starts a message, or continues one that the client has.
func NewEncoder(cfg Config) *Encoder {
	if cfg.Version == 0 {
		cfg.Version = Default
	}
	if cfg.ErrorText == nil {
		cfg.ErrorText = func(err *session.Error) string { return err.Message }
	}
	return &Encoder{cfg: cfg, calls: map[string]*call{}, children: map[string]*child{}}
}

// Version returns the client's version.
func (e *Encoder) Version() Version { return e.cfg.Version }

// CanDiscard reports whether the client can remove what a step has shown.
func (e *Encoder) CanDiscard() bool { return e.cfg.Version.CanDiscard() && !e.cfg.OmitSteps }

// Start returns the first chunk of every stream.
func (e *Encoder) Start() []Chunk {
	meta := &Metadata{SessionID: e.cfg.SessionID, RunID: e.cfg.RunID}
	meta.add(e.cfg.StartMetadata)
	return []Chunk{{Type: TypeStart, MessageID: e.cfg.MessageID, Metadata: meta}}
}

// Encode returns the chunks for a chunk of the session's stream.
func (e *Encoder) Encode(sequence int64, c *stream.Chunk) []Chunk {
	e.out = nil
	if c.AgentID == e.cfg.SessionID {
		e.own(sequence, c)
	} else {
		e.below(c)
	}
	return e.out
}

// own encodes a chunk of the session itself.
func (e *Encoder) own(sequence int64, c *stream.Chunk) {
	switch c.Kind {
	case stream.InputReceived:
		e.holdMarks(c)
	case stream.StepStarted:
		e.showMarks()
		e.startStep(c)
	case stream.StepDiscarded:
		e.dropMarks(c)
		e.discard(c)
		if c.Attempt > 0 { // the model is asked again, or the run fails
			e.data(Chunk{Type: DataPrefix + "attempt-failed", Data: encoded(map[string]int{"attempt": c.Attempt}), Transient: true})
		}
	case stream.TextDelta:
		e.addText(PartText, c.Delta)
	case stream.Thinking:
		e.addText(PartReasoning, c.Delta)
	case stream.FileOutput:
		var file stream.File
		if json.Unmarshal(c.Data, &file) == nil && file.URL != "" {
			e.file(file.URL, file.MediaType)
		}
	case stream.ToolArgsStart:
		e.startInput(c)
	case stream.ToolArgsDelta:
		if known := e.calls[c.CallID]; known != nil && !known.hidden && !known.available && c.Delta != "" {
			e.emitFor(known, Chunk{Type: TypeInputDelta, CallID: c.CallID, InputTextDelta: c.Delta})
		}
	case stream.ToolStart:
		e.announce(c.CallID, c.Tool, given(c))
	case stream.ToolEnd:
		if c.MessageID != "" && e.calls[c.CallID] == nil {
			e.endEarlier(c)
			return
		}
		k := e.ended(c)
		e.locate(k, c.Evicted())
		e.end(k, c.Result, c.Error)
	case stream.ApprovalRequest:
		e.requestApproval(e.announce(c.CallID, c.Tool, given(c)), c.ApprovalID)
	case stream.SubAgentStart, stream.SubAgentEnd:
		e.child(c)
	case stream.StatePatch:
		if len(c.Patches) > 0 {
			e.data(Chunk{Type: DataPrefix + "state-patch", Data: encoded(c.Patches), Transient: true})
		}
	case stream.Custom:
		if q := c.AsQuestion(); q != nil {
			e.asksHere(c, q)
			return
		}
		if c.Name == stream.CompactingName || c.Name == stream.CompactedName {
			e.compacts(c)
			return
		}
		e.data(Chunk{Type: DataPrefix + c.Name, ID: eventID(sequence), Data: orNull(c.Data)})
	case stream.Suspended:
		e.suspended(c)
	case stream.RunInterrupted:
		if c.RunID == e.cfg.RunID {
			e.abort = &Chunk{Type: TypeAbort, Reason: c.Reason}
		}
	}
}

func eventID(sequence int64) string { return "event-" + strconv.FormatInt(sequence, 10) }

// given returns a call's input. An input that was too large for the stream is in the
// transcript.
func given(c *stream.Chunk) json.RawMessage {
	if c.Omitted {
		return json.RawMessage(`{"omitted":true}`)
	}
	return orNull(c.Arguments)
}

func (e *Encoder) emit(c Chunk) {
	if e.cfg.OmitSteps && (c.Type == TypeStartStep || c.Type == TypeFinishStep) {
		return
	}
	e.out = append(e.out, c)
}

// emitFor emits a chunk of a call, unless the call is omitted.
func (e *Encoder) emitFor(k *call, c Chunk) {
	if !k.decided {
		k.decided = true
		k.omitted = !e.cfg.shows(&Chunk{Type: TypeInputStart, CallID: k.id, Tool: k.tool, Dynamic: true})
	}
	if !k.omitted {
		e.emit(c)
	}
}

// data emits a data part, unless it is omitted.
func (e *Encoder) data(c Chunk) {
	if e.cfg.shows(&c) {
		e.emit(c)
	}
}

func (e *Encoder) holdMarks(c *stream.Chunk) {
	for i := range c.Messages {
		if c.Messages[i].Compaction() != nil && c.MessageCount != nil {
			e.marks = append(e.marks, mark{c.Messages[i], *c.MessageCount + i})
		}
	}
}

func (e *Encoder) showMarks() {
	for i := range e.marks {
		e.divide(&e.marks[i].message)
	}
	e.marks = nil
}

// dropMarks drops the markers that were not committed, if the chunk says how many messages
// were.
func (e *Encoder) dropMarks(c *stream.Chunk) {
	if c.MessageCount != nil {
		e.marks = slices.DeleteFunc(e.marks, func(m mark) bool { return m.at >= *c.MessageCount })
	}
}

// divide emits a data part in the place of a marker. What stands in the place of the
// conversation before it is for the model, not for people.
func (e *Encoder) divide(m *session.Message) {
	what := m.Compaction()
	if what == nil {
		return
	}
	e.endText()
	e.data(Chunk{Type: DataPrefix + "compacted", ID: m.ID, Data: encoded(Compacted{
		Kind: what.Kind, Kept: what.Kept, TokensBefore: what.TokensBefore, TokensAfter: what.TokensAfter,
	})})
}

// compacts tells that a summary is being made, and, if it led to nothing, that it no longer
// is. What it leads to is shown by the divider. None of it is part of the message.
func (e *Encoder) compacts(c *stream.Chunk) {
	var what struct {
		MarkerID     string                 `json:"markerId,omitempty"`
		Kind         session.CompactionKind `json:"kind,omitempty"`
		TokensBefore int64                  `json:"tokensBefore,omitempty"`
		Reason       string                 `json:"reason,omitempty"`
		Code         session.Code           `json:"code,omitempty"`
	}
	if json.Unmarshal(c.Data, &what) != nil || what.MarkerID != "" {
		return
	}
	if what.Code != "" { // the reason may be what the model's provider said
		what.Reason = e.cfg.ErrorText(&session.Error{Code: what.Code, Message: what.Reason})
	}
	e.data(Chunk{Type: DataPrefix + stream.CompactingName, Data: encoded(what), Transient: true})
}

func (e *Encoder) file(url, mediaType string) {
	c := Chunk{Type: TypeFile, URL: url, MediaType: mediaType}
	if e.cfg.shows(&c) {
		e.endText()
		e.emit(c)
	}
}

func (e *Encoder) startStep(c *stream.Chunk) {
	if e.step.reset && e.step.reply == c.MessageID {
		e.step.reset = false // the client is in that step
		return
	}
	e.closeStep()
	e.step = step{reply: c.MessageID, run: c.RunID, n: c.Step}
	e.inStep = true
	e.emit(Chunk{Type: TypeStartStep})
}

// closeStep ends the open parts.
func (e *Encoder) closeStep() {
	e.endText()
	if e.inStep {
		e.inStep = false
		e.emit(Chunk{Type: TypeFinishStep})
	}
}

func (e *Encoder) addText(kind, delta string) {
	if delta == "" { // clients refuse an empty one
		return
	}
	s := &e.step
	if !s.open || s.texts[len(s.texts)-1].kind != kind {
		e.endText()
		e.parts++
		first := Chunk{Type: kind + "-start", ID: kind + "-" + strconv.Itoa(e.parts) + "@" + s.reply}
		shown := e.cfg.shows(&first)
		s.texts = append(s.texts, text{id: first.ID, kind: kind, omitted: !shown})
		s.open = true
		if shown {
			e.emit(first)
		}
	}
	last := &s.texts[len(s.texts)-1]
	last.text += delta
	if !last.omitted {
		e.emit(Chunk{Type: kind + "-delta", ID: last.id, Delta: delta})
	}
}

func (e *Encoder) endText() {
	if s := &e.step; s.open {
		s.open = false
		if last := s.texts[len(s.texts)-1]; !last.omitted {
			e.emit(Chunk{Type: last.kind + "-end", ID: last.id})
		}
	}
}

// Finish ends the message according to the run's last item.
func (e *Encoder) Finish(item stream.Item) []Chunk {
	e.out = nil
	if item.Frame == stream.FrameEnd { // of a run that failed it is not known whether they were committed
		e.showMarks()
	}
	meta := &Metadata{SessionID: e.cfg.SessionID, RunID: e.cfg.RunID}
	finish := Chunk{Type: TypeFinish, Metadata: meta, FinishReason: "stop"}
	waits := item.Frame == stream.FrameEnd && item.End != nil && item.End.Status == stream.EndPaused
	if item.End != nil {
		meta.Usage = item.End.Usage
	}
	var failure *session.Error
	switch {
	case waits:
		meta.Status, finish.FinishReason = "waiting", "tool-calls"
	case item.Frame == stream.FrameEnd && item.End != nil && item.End.Status == stream.EndInterrupted:
		meta.Status, finish.FinishReason = string(stream.EndInterrupted), e.interrupted()
	case item.Frame == stream.FrameEnd:
		meta.Status = string(stream.EndCompleted)
		if item.End != nil && item.End.FinishReason != "" {
			meta.FinishReason, finish.FinishReason = item.End.FinishReason, item.End.FinishReason
		}
	case item.Error != nil && item.Error.Code == session.CodeCancelled: // a stop is no error
		meta.Status, meta.Code, finish.FinishReason = "failed", item.Error.Code, e.interrupted()
	default:
		failure = item.Error
		if failure == nil {
			failure = session.ErrInternal
		}
		meta.Status, meta.Code, finish.FinishReason = "failed", failure.Code, finishReason(failure)
		meta.Error = e.cfg.ErrorText(failure)
	}
	if !waits {
		e.settleRest()
	}
	if !waits || e.nobody {
		e.seal()
	}
	e.closeStep()
	if e.abort != nil {
		e.emit(*e.abort)
	}
	meta.add(e.cfg.FinishMetadata)
	e.emit(finish)
	if failure != nil {
		e.emit(Chunk{Type: TypeError, ErrorText: meta.Error})
	}
	return e.out
}

// interrupted returns the finish reason of a stopped message. Only version 7 has one.
func (e *Encoder) interrupted() string {
	if e.cfg.Version == V7 {
		return "interrupted"
	}
	return "other"
}

func finishReason(failure *session.Error) string {
	switch failure.Code {
	case session.CodeContentFilter:
		return "content-filter"
	case session.CodeContextLength, session.CodeMaxSteps:
		return "length"
	}
	return "error"
}

// errLeftOpen is the final state of a call that had no result when the run ended.
var errLeftOpen = &session.Error{Code: session.CodeToolNotRun, Message: "the call did not run"}

// settleRest sets a final state for every call that was shown.
func (e *Encoder) settleRest() {
	for _, list := range [][]*call{e.step.calls, e.step.nested} {
		for _, k := range list {
			e.end(k, nil, errLeftOpen)
		}
	}
}

// seal adds an empty step to a message that needs no answers and whose last step has calls.
// Otherwise the client, which looks only at the last step, would send the message again.
func (e *Encoder) seal() {
	for _, list := range [][]*call{e.step.calls, e.step.nested} {
		for _, k := range list {
			if !k.hidden {
				e.closeStep()
				e.step, e.inStep = step{}, true
				e.emit(Chunk{Type: TypeStartStep})
				return
			}
		}
	}
}

// textOf returns the text of an error. Clients refuse an empty one.
func textOf(failure *session.Error) string {
	if failure.Message == "" {
		return "the tool failed"
	}
	return failure.Message
}
