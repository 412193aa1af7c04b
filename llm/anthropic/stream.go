package anthropic

import (
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/internal/provider"
	"github.com/helixagents/helix/session"
)

// reader builds a reply from the API's events.
type reader struct {
	reply   *provider.Reply
	secrets provider.Secrets
	blocks  map[count]*block
	usage   struct{ input, cacheRead, cacheWrite, output, thinking count }
	done    bool
}

// block is a content block on its way. Kinds that are not known yet, and those of
// tools that run on Anthropic's servers, have no part.
type block struct {
	*provider.Block
	input     string // of a call, where it came at once
	signature strings.Builder
}

// kept is what a thinking block needs to be sent back.
type kept struct {
	Signature string `json:"signature,omitempty"`
	// Redacted is a block that only Anthropic can read.
	Redacted string `json:"redacted,omitempty"`
}

// exchange sends a request and reads the answer. Its errors are classified.
func (r *reader) exchange(ctx context.Context, call *provider.Call) error {
	answer, err := call.Post(ctx)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	defer r.sign()
	return r.readAll(answer.Header, answer.Body)
}

// sign keeps the signatures, which may come in pieces.
func (r *reader) sign() {
	for _, b := range r.blocks {
		if b.signature.Len() > 0 {
			b.Keep(provider.Keep(name, kept{Signature: b.signature.String()}))
		}
	}
}

func (r *reader) readAll(header http.Header, body io.Reader) error {
	for e, err := range provider.Events(body) {
		if err != nil {
			return provider.Broken(name, err, r.secrets)
		}
		switch {
		case e.Name == "error":
			f := failure(e.Data)
			f.Header, f.Body = header, string(e.Data)
			return f.Error(r.secrets)
		case e.Name == "", e.Name == "ping", len(e.Data) == 0:
			continue
		}
		var event event
		if err := decode(e.Data, &event); err != nil {
			return provider.Broken(name, err, r.secrets)
		}
		if err := r.read(&event); err != nil || r.done {
			return err
		}
		if err := r.reply.CheckSize(); err != nil {
			return provider.Broken(name, err, r.secrets)
		}
	}
	return nil
}

func (r *reader) read(e *event) error {
	switch e.Type {
	case "message_start":
		if e.Message.Model != "" {
			r.reply.Model = e.Message.Model
		}
		r.update(&e.Message.Usage)
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

func (r *reader) begin(c *contentBlock) *block {
	b := &block{}
	switch c.Type {
	case "text":
		b.Block = r.reply.Begin(session.PartText)
		b.Add(c.Text)
	case "thinking":
		b.Block = r.reply.Begin(session.PartReasoning)
		b.Add(c.Thinking)
		b.signature.WriteString(c.Signature)
	case "redacted_thinking":
		b.Block = r.reply.Begin(session.PartReasoning)
		b.Keep(provider.Keep(name, kept{Redacted: c.Data}))
	case "tool_use":
		b.Block = r.reply.Call(c.ID, c.Name)
		if raw := string(c.Input); raw != "{}" {
			b.input = raw
		}
	}
	return b
}

func (b *block) add(d *delta) {
	if b.Block == nil {
		return
	}
	switch d.Type {
	case "text_delta":
		b.Add(d.Text)
	case "thinking_delta":
		b.Add(d.Thinking)
	case "signature_delta":
		b.signature.WriteString(d.Signature)
	case "input_json_delta":
		b.Add(d.PartialJSON)
	}
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

// update takes the counts of an event, which are totals. A count that is not there leaves the earlier one.
func (r *reader) update(u *usage) {
	for _, c := range []struct{ from, into *count }{
		{u.InputTokens, &r.usage.input},
		{u.CacheReadInputTokens, &r.usage.cacheRead},
		{u.CacheCreationInputTokens, &r.usage.cacheWrite},
		{u.OutputTokens, &r.usage.output},
	} {
		if c.from != nil {
			*c.into = *c.from
		}
	}
	if u.OutputTokensDetails != nil {
		r.usage.thinking = u.OutputTokensDetails.ThinkingTokens
	}
	r.count()
}

// count returns the usage in our terms: the API's input tokens are those that have
// nothing to do with the cache.
func (r *reader) count() {
	u := &r.usage
	r.reply.Usage = session.Usage{
		InputTokens: int64(u.input + u.cacheRead + u.cacheWrite), OutputTokens: int64(u.output), ReasoningTokens: int64(u.thinking),
		CacheReadTokens: int64(u.cacheRead), CacheWriteTokens: int64(u.cacheWrite),
	}
}

func finish(reason string) llm.FinishReason {
	switch reason {
	case "end_turn", "stop_sequence":
		return llm.FinishStop
	case "tool_use":
		return llm.FinishToolCalls
	case "max_tokens", "model_context_window_exceeded":
		return llm.FinishLength
	case "refusal":
		return llm.FinishContentFilter
	}
	return llm.FinishOther
}

// failure reads the body of an error, if it is the API's.
func failure(body []byte) provider.Failure {
	var doc fault
	if decode(body, &doc) != nil {
		return provider.Failure{Provider: name}
	}
	return provider.Failure{Provider: name, Type: doc.Error.Type, Message: doc.Error.Message}
}
