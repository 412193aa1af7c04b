package provider

import (
	"encoding/json"
	"strings"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// Reply collects a reply: the adapter adds what the provider sends, Reply emits deltas, and
// Response returns the whole.
type Reply struct {
	Model  string
	Finish llm.FinishReason
	Usage  session.Usage

	emit   func(llm.Delta)
	blocks []*Block
	calls  int
	full   bool // there were more parts than are kept
}

// MaxParts is how many parts of a reply are kept.
const MaxParts = 10_000

// NewReply returns an empty reply that calls emit, which may be nil, with each delta.
func NewReply(emit func(llm.Delta)) *Reply {
	if emit == nil {
		emit = func(llm.Delta) {}
	}
	return &Reply{emit: emit}
}

// Block is a part of a reply that is still arriving.
type Block struct {
	reply *Reply
	part  session.Part
	text  strings.Builder // or a call's arguments
	index int             // of a call
	ended bool
}

// Begin starts a part of text or reasoning.
func (r *Reply) Begin(kind session.PartKind) *Block {
	b := &Block{reply: r, part: session.Part{Kind: kind}}
	if len(r.blocks) == MaxParts {
		r.full, b.ended = true, true
		return b
	}
	r.blocks = append(r.blocks, b)
	return b
}

// Overflow notes that the reply has more parts than are kept, of which Begin was not told.
func (r *Reply) Overflow() { r.full = true }

// CheckSize returns an error if the reply has more parts than are kept. Adapters call it
// after each event.
func (r *Reply) CheckSize() error {
	if r.full {
		return errTooLarge
	}
	return nil
}

// Say adds to the last part if it is of that kind and still open, else to a new one.
func (r *Reply) Say(kind session.PartKind, text string) *Block {
	b := r.last()
	if b == nil || b.part.Kind != kind || b.ended {
		if text == "" {
			return b
		}
		b = r.Begin(kind)
	}
	b.Add(text)
	return b
}

func (r *Reply) last() *Block {
	if len(r.blocks) == 0 {
		return nil
	}
	return r.blocks[len(r.blocks)-1]
}

// Call starts a call of a tool. The id is the provider's.
func (r *Reply) Call(id, tool string) *Block {
	b := r.Begin(session.PartToolCall)
	b.part.ProviderCallID, b.part.Tool, b.index = id, tool, r.calls
	if b.ended { // it is not kept
		return b
	}
	r.calls++
	r.emit(llm.Delta{Kind: llm.DeltaCallStart, Index: b.index, Tool: tool})
	return b
}

// File adds a file that the model generated.
func (r *Reply) File(url, mediaType string) *Block {
	b := r.Begin(session.PartFile)
	b.part.URL, b.part.MediaType, b.ended = url, mediaType, true
	return b
}

// Add appends a piece. It ignores pieces after End.
func (b *Block) Add(text string) {
	if text == "" || b.ended {
		return
	}
	b.text.WriteString(text)
	d := llm.Delta{Text: text, Index: b.index}
	switch b.part.Kind {
	case session.PartText:
		d.Kind = llm.DeltaText
	case session.PartReasoning:
		d.Kind = llm.DeltaReasoning
	default:
		d.Kind = llm.DeltaCallArgs
	}
	b.reply.emit(d)
}

// Complete adds the missing rest of the whole text, for providers that repeat the text at
// the end.
func (b *Block) Complete(whole string) {
	if rest, ok := strings.CutPrefix(whole, b.text.String()); ok {
		b.Add(rest)
	}
}

// Empty reports whether nothing of the part has arrived.
func (b *Block) Empty() bool { return b.text.Len() == 0 }

// Identify sets the id of a call that had none when it began.
func (b *Block) Identify(id string) {
	if b.part.ProviderCallID == "" {
		b.part.ProviderCallID = id
	}
}

// Keep stores data that is sent back to the provider with the part; see the function Keep.
func (b *Block) Keep(provider json.RawMessage) { b.part.Provider = provider }

// End completes the part; it may be called again.
func (b *Block) End() {
	if b.ended {
		return
	}
	b.ended = true
	if b.part.Kind == session.PartToolCall {
		b.reply.emit(llm.Delta{Kind: llm.DeltaCallEnd, Index: b.index})
	}
}

// Response returns the whole reply. Arguments are unchanged, valid or not: the engine
// reports invalid ones to the model.
func (r *Reply) Response() (*llm.Response, error) {
	if err := r.CheckSize(); err != nil {
		return nil, Broken(r.name(), err, nil)
	}
	for _, b := range r.blocks {
		b.End()
	}
	out := r.response(r.Finish)
	switch {
	case out.Finish == llm.FinishContentFilter && len(out.Parts) == 0:
		return nil, llm.Error(session.CodeContentFilter, false, "%s refused to answer", r.name())
	case out.Finish == "":
		out.Finish = llm.FinishOther
	}
	if out.Finish == llm.FinishStop && r.calls > 0 { // some servers say so
		out.Finish = llm.FinishToolCalls
	}
	return out, nil
}

func (r *Reply) name() string {
	if r.Model == "" {
		return "the model"
	}
	return r.Model
}

// Partial returns what has arrived of an incomplete reply, or nil if nothing has. Incomplete
// calls are left out.
func (r *Reply) Partial() *llm.Response {
	out := r.response(llm.FinishOther)
	if len(out.Parts) == 0 && out.Usage == (session.Usage{}) {
		return nil
	}
	return out
}

func (r *Reply) response(finish llm.FinishReason) *llm.Response {
	out := &llm.Response{Finish: finish, Usage: plausible(r.Usage), Model: Clip(r.Model, maxName)}
	for _, b := range r.blocks {
		part := b.part
		switch part.Kind {
		case session.PartText, session.PartReasoning:
			if part.Text = b.text.String(); part.Text == "" && part.Provider == nil {
				continue
			}
		case session.PartToolCall:
			if !b.ended {
				continue
			}
			if b.text.Len() > 0 {
				part.Input = json.RawMessage(b.text.String())
			} else {
				part.Input = json.RawMessage("{}")
			}
		}
		out.Parts = append(out.Parts, part)
	}
	return out
}

// maxTokens is more than any model reads or writes. The sum of many such counts does not overflow.
const maxTokens = 1e12

// plausible returns usage whose counts are between 0 and maxTokens, whatever the server said.
func plausible(u session.Usage) session.Usage {
	for _, n := range []*int64{&u.InputTokens, &u.OutputTokens, &u.ReasoningTokens, &u.CacheReadTokens, &u.CacheWriteTokens} {
		*n = min(max(*n, 0), maxTokens)
	}
	return u
}
