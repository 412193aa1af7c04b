package anthropic

import (
	"encoding/json"

	sdk "github.com/anthropics/anthropic-sdk-go"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/internal/provider"
	"github.com/helixagents/helix/session"
)

// reader makes a reply of the API's events.
type reader struct {
	reply  *provider.Reply
	blocks map[int64]*block
	usage  struct{ input, cacheRead, cacheWrite, output, thinking int64 }
	done   bool
}

// block is a content block on its way. Kinds that are not known yet, and those of
// tools that run on Anthropic's servers, have no part.
type block struct {
	*provider.Block
	input     string // of a call, where it came at once
	signature string
}

// kept is what a thinking block needs to be sent back.
type kept struct {
	Signature string `json:"signature,omitempty"`
	// Redacted is a block that only Anthropic can read.
	Redacted string `json:"redacted,omitempty"`
}

func (r *reader) read(e sdk.MessageStreamEventUnion) error {
	switch e.Type {
	case "message_start":
		if e.Message.Model != "" {
			r.reply.Model = e.Message.Model
		}
		u := &e.Message.Usage
		r.usage.input, r.usage.output = u.InputTokens, u.OutputTokens
		r.usage.cacheRead, r.usage.cacheWrite = u.CacheReadInputTokens, u.CacheCreationInputTokens
		r.count()
	case "content_block_start":
		if _, open := r.blocks[e.Index]; !open { // else the event was repeated
			r.blocks[e.Index] = r.begin(&e.ContentBlock)
		}
	case "content_block_delta":
		b, ok := r.blocks[e.Index]
		if !ok {
			return provider.Malformed(name, "sent a piece of block %d, which it never began", e.Index)
		}
		b.add(&e.Delta)
	case "content_block_stop":
		if b := r.blocks[e.Index]; b != nil {
			b.end()
		}
	case "message_delta":
		if e.Delta.StopReason != "" {
			r.reply.Finish = finish(e.Delta.StopReason)
		}
		r.update(&e.Usage)
	case "message_stop":
		r.done = true
	}
	return nil
}

func (r *reader) begin(c *sdk.ContentBlockStartEventContentBlockUnion) *block {
	b := &block{}
	switch c.Type {
	case "text":
		b.Block = r.reply.Begin(session.PartText)
		b.Add(c.Text)
	case "thinking":
		b.Block = r.reply.Begin(session.PartReasoning)
		b.Add(c.Thinking)
		b.sign(c.Signature)
	case "redacted_thinking":
		b.Block = r.reply.Begin(session.PartReasoning)
		b.Keep(provider.Keep(name, kept{Redacted: c.Data}))
	case "tool_use":
		b.Block = r.reply.Call(c.ID, c.Name)
		if raw := c.JSON.Input.Raw(); raw != "" && raw != "{}" && json.Valid([]byte(raw)) {
			b.input = raw
		}
	}
	return b
}

func (b *block) add(d *sdk.MessageStreamEventUnionDelta) {
	if b.Block == nil {
		return
	}
	switch d.Type {
	case "text_delta":
		b.Add(d.Text)
	case "thinking_delta":
		b.Add(d.Thinking)
	case "signature_delta":
		b.sign(d.Signature)
	case "input_json_delta":
		b.Add(d.PartialJSON)
	}
}

// sign keeps a signature, which may come in pieces.
func (b *block) sign(piece string) {
	if piece == "" {
		return
	}
	b.signature += piece
	b.Keep(provider.Keep(name, kept{Signature: b.signature}))
}

func (b *block) end() {
	if b.Block == nil {
		return
	}
	if b.Empty() {
		b.Add(b.input)
	}
	b.End()
}

// update takes the counts of a later event, which are totals. A count that is not
// there leaves the earlier one.
func (r *reader) update(u *sdk.MessageDeltaUsage) {
	for _, count := range []struct {
		has  bool
		n    int64
		into *int64
	}{
		{u.JSON.InputTokens.Valid(), u.InputTokens, &r.usage.input},
		{u.JSON.CacheReadInputTokens.Valid(), u.CacheReadInputTokens, &r.usage.cacheRead},
		{u.JSON.CacheCreationInputTokens.Valid(), u.CacheCreationInputTokens, &r.usage.cacheWrite},
		{u.JSON.OutputTokens.Valid(), u.OutputTokens, &r.usage.output},
		{u.JSON.OutputTokensDetails.Valid(), u.OutputTokensDetails.ThinkingTokens, &r.usage.thinking},
	} {
		if count.has {
			*count.into = count.n
		}
	}
	r.count()
}

// count gives the usage in our terms: the API's input tokens are those that have
// nothing to do with the cache.
func (r *reader) count() {
	u := &r.usage
	r.reply.Usage = session.Usage{
		InputTokens: u.input + u.cacheRead + u.cacheWrite, OutputTokens: u.output, ReasoningTokens: u.thinking,
		CacheReadTokens: u.cacheRead, CacheWriteTokens: u.cacheWrite,
	}
}

func finish(reason sdk.StopReason) llm.FinishReason {
	switch reason {
	case sdk.StopReasonEndTurn, sdk.StopReasonStopSequence:
		return llm.FinishStop
	case sdk.StopReasonToolUse:
		return llm.FinishToolCalls
	case sdk.StopReasonMaxTokens, sdk.StopReasonModelContextWindowExceeded:
		return llm.FinishLength
	case sdk.StopReasonRefusal:
		return llm.FinishContentFilter
	}
	return llm.FinishOther
}

// message is what the body of an error says, if it is the API's.
func message(body string) string {
	var doc struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal([]byte(body), &doc) != nil {
		return ""
	}
	return doc.Error.Message
}
