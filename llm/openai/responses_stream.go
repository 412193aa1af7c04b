package openai

import (
	"encoding/json"
	"strings"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/internal/provider"
	"github.com/helixagents/helix/session"
)

// responseReader builds a reply from the events of the Responses API.
type responseReader struct {
	reply   *provider.Reply
	secrets provider.Secrets
	blocks  map[place]*responseBlock
	last    int64 // the number of the latest event
	refused bool  // the model said why it does not answer
	done    bool
}

func newResponseReader(reply *provider.Reply, secrets provider.Secrets) *responseReader {
	return &responseReader{reply: reply, secrets: secrets, blocks: map[place]*responseBlock{}}
}

// place is where in a response a part is. Only messages have several contents.
type place struct{ output, content int }

// responseBlock is a part that is still arriving.
type responseBlock struct {
	*provider.Block
	source  string // of reasoning: the model's own words, or a summary of them
	summary int    // which part of the summary is being read
}

// kept is what is sent back with a part of a reply.
type kept struct {
	// ID and Encrypted are a reasoning item, which only OpenAI can read.
	ID        string `json:"id,omitempty"`
	Encrypted string `json:"encrypted,omitempty"`
	// Phase says whether a text is the answer or a remark on the way to it.
	Phase string `json:"phase,omitempty"`
}

// responseEvent has the members of the events that matter.
type responseEvent struct {
	Output    int           `json:"output_index"`
	Content   int           `json:"content_index"`
	Summary   int           `json:"summary_index"`
	Delta     string        `json:"delta"`
	Text      string        `json:"text"`
	Refusal   string        `json:"refusal"`
	Arguments string        `json:"arguments"`
	Item      *responseItem `json:"item"`
	Response  *response     `json:"response"`
}

// response is a response as a whole.
type response struct {
	Model      string          `json:"model"`
	Status     string          `json:"status"`
	Error      json.RawMessage `json:"error"`
	Incomplete *struct {
		Reason string `json:"reason"`
	} `json:"incomplete_details"`
	Output []responseItem `json:"output"`
	Usage  *responseUsage `json:"usage"`
}

type responseItem struct {
	ID        string            `json:"id"`
	Type      string            `json:"type"`
	CallID    string            `json:"call_id"`
	Name      string            `json:"name"`
	Arguments string            `json:"arguments"`
	Phase     string            `json:"phase"`
	Encrypted string            `json:"encrypted_content"`
	Summary   []responseContent `json:"summary"`
	Content   []responseContent `json:"content"`
}

type responseContent struct {
	Type    string `json:"type"`
	Text    string `json:"text"`
	Refusal string `json:"refusal"`
}

type responseUsage struct {
	Input   int64 `json:"input_tokens"`
	Output  int64 `json:"output_tokens"`
	Details struct {
		Read    int64 `json:"cached_tokens"`
		Written int64 `json:"cache_write_tokens"`
	} `json:"input_tokens_details"`
	OutputDetails struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
}

func (r *responseReader) complete() bool { return r.done }
func (r *responseReader) ended() bool    { return r.done }

func (r *responseReader) event(data []byte) error {
	if strings.HasPrefix(string(data), "[DONE]") {
		return nil
	}
	var head struct {
		Type     string          `json:"type"`
		Sequence *int64          `json:"sequence_number"`
		Error    json.RawMessage `json:"error"` // of gateways that have no event for it
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return err
	}
	// A number that was seen tells a repetition, with servers that do count.
	if n := head.Sequence; n != nil {
		if *n <= r.last && r.last > 0 {
			return nil
		}
		r.last = *n
	}
	if head.Type == "error" || head.Type == "" && head.Error != nil {
		return inStream(data, r.secrets)
	}
	handle, ok := responseEvents[head.Type]
	if !ok {
		return nil
	}
	var e responseEvent
	if err := json.Unmarshal(data, &e); err != nil {
		return err
	}
	return handle(r, &e)
}

// responseEvents are the events that matter. All others tell the same in other ways,
// or of tools that run on OpenAI's servers.
var responseEvents = map[string]func(r *responseReader, e *responseEvent) error{
	"response.created":     (*responseReader).begun,
	"response.in_progress": (*responseReader).begun,
	"response.output_item.added": func(r *responseReader, e *responseEvent) error {
		if e.Item != nil {
			r.open(e.Output, e.Item)
		}
		return nil
	},
	"response.output_text.delta": func(r *responseReader, e *responseEvent) error {
		r.text(e.Output, e.Content).Add(e.Delta)
		return nil
	},
	"response.output_text.done": func(r *responseReader, e *responseEvent) error {
		r.text(e.Output, e.Content).Complete(e.Text)
		return nil
	},
	"response.refusal.delta": func(r *responseReader, e *responseEvent) error {
		r.refusal(e.Output, e.Content).Add(e.Delta)
		return nil
	},
	"response.refusal.done": func(r *responseReader, e *responseEvent) error {
		r.refusal(e.Output, e.Content).Complete(e.Refusal)
		return nil
	},
	"response.reasoning_summary_text.delta": func(r *responseReader, e *responseEvent) error {
		r.think(e.Output, "summary", e.Summary, e.Delta)
		return nil
	},
	"response.reasoning_text.delta": func(r *responseReader, e *responseEvent) error {
		r.think(e.Output, "text", e.Content, e.Delta)
		return nil
	},
	"response.function_call_arguments.delta": func(r *responseReader, e *responseEvent) error {
		if b := r.blocks[place{output: e.Output}]; b != nil {
			b.Add(e.Delta)
		}
		return nil
	},
	"response.function_call_arguments.done": func(r *responseReader, e *responseEvent) error {
		if b := r.blocks[place{output: e.Output}]; b != nil {
			b.Complete(e.Arguments)
		}
		return nil
	},
	"response.output_item.done": func(r *responseReader, e *responseEvent) error {
		if e.Item != nil {
			r.close(e.Output, e.Item)
		}
		return nil
	},
	"response.completed":  (*responseReader).over,
	"response.incomplete": (*responseReader).over,
	"response.failed":     (*responseReader).over,
	"response.cancelled":  (*responseReader).over,
}

func (r *responseReader) begun(e *responseEvent) error {
	if e.Response != nil && e.Response.Model != "" {
		r.reply.Model = e.Response.Model
	}
	return nil
}

// open begins what is known when an item begins: the content of messages comes
// later.
func (r *responseReader) open(output int, item *responseItem) *responseBlock {
	at := place{output: output}
	if b := r.blocks[at]; b != nil {
		return b
	}
	switch item.Type {
	case "function_call":
		r.blocks[at] = &responseBlock{Block: r.reply.Call(item.CallID, item.Name)}
	case "reasoning":
		r.blocks[at] = &responseBlock{Block: r.reply.Begin(session.PartReasoning)}
	}
	return r.blocks[at]
}

func (r *responseReader) text(output, content int) *responseBlock {
	at := place{output, content}
	if r.blocks[at] == nil {
		r.blocks[at] = &responseBlock{Block: r.reply.Begin(session.PartText)}
	}
	return r.blocks[at]
}

// refusal handles the text with which a model refuses to answer.
func (r *responseReader) refusal(output, content int) *responseBlock {
	r.refused = true
	return r.text(output, content)
}

// think adds a piece of reasoning. Where a server gives both the model's own words
// and a summary of them, what comes first is taken.
func (r *responseReader) think(output int, source string, part int, delta string) {
	b := r.open(output, &responseItem{Type: "reasoning"})
	if b.source == "" {
		b.source, b.summary = source, part
	}
	if b.source != source {
		return
	}
	if part != b.summary {
		b.summary = part
		b.Add(paragraph)
	}
	b.Add(delta)
}

// paragraph separates pieces that are one text in our reply.
const paragraph = "\n\n"

// close adds what is still missing of an item and ends it.
func (r *responseReader) close(output int, item *responseItem) {
	switch item.Type {
	case "function_call":
		b := r.open(output, item)
		b.Complete(item.Arguments)
		b.End()
	case "reasoning":
		b := r.open(output, item)
		b.Complete(b.whole(item))
		if item.Encrypted != "" {
			b.Keep(provider.Keep(name, kept{ID: item.ID, Encrypted: item.Encrypted}))
		}
		b.End()
	case "message":
		for i, c := range item.Content {
			r.closeContent(place{output, i}, &c, item.Phase)
		}
	}
}

func (r *responseReader) closeContent(at place, c *responseContent, phase string) {
	var b *responseBlock
	switch c.Type {
	case "output_text":
		b = r.text(at.output, at.content)
		b.Complete(c.Text)
	case "refusal":
		b = r.refusal(at.output, at.content)
		b.Complete(c.Refusal)
	default:
		return
	}
	if phase != "" && !b.Empty() {
		b.Keep(provider.Keep(name, kept{Phase: phase}))
	}
	b.End()
}

// whole is the text of a reasoning item.
func (b *responseBlock) whole(item *responseItem) string {
	from := item.Summary
	if b.source == "text" || len(from) == 0 {
		from = item.Content
	}
	var texts []string
	for _, c := range from {
		texts = append(texts, c.Text)
	}
	return strings.Join(texts, paragraph)
}

func (r *responseReader) over(e *responseEvent) error {
	if e.Response == nil {
		return provider.Malformed(name, "ended a response without it")
	}
	return r.end(e.Response)
}

// end handles the end of a response, successful or not.
func (r *responseReader) end(whole *response) error {
	if whole.Model != "" {
		r.reply.Model = whole.Model
	}
	if u := whole.Usage; u != nil {
		r.reply.Usage = session.Usage{
			InputTokens: u.Input, OutputTokens: u.Output, ReasoningTokens: u.OutputDetails.Reasoning,
			CacheReadTokens: u.Details.Read, CacheWriteTokens: u.Details.Written,
		}
	}
	for i := range whole.Output { // mostly known by now
		r.close(i, &whole.Output[i])
	}
	switch whole.Status {
	case "failed", "cancelled":
		if len(whole.Error) == 0 || string(whole.Error) == "null" {
			return inStream([]byte(`{"type":"server_error","message":"the response was `+whole.Status+`"}`), r.secrets)
		}
		return inStream(whole.Error, r.secrets)
	case "incomplete":
		r.reply.Finish = llm.FinishOther
		if whole.Incomplete != nil {
			r.reply.Finish = finish(whole.Incomplete.Reason)
		}
	default:
		r.reply.Finish = llm.FinishStop
	}
	if r.refused {
		r.reply.Finish = llm.FinishContentFilter
	}
	r.done = true
	return nil
}

func (r *responseReader) whole(body []byte) error {
	var doc response
	if err := json.Unmarshal(body, &doc); err != nil {
		return err
	}
	if doc.Status == "" && doc.Output == nil {
		return inStream(body, r.secrets)
	}
	return r.end(&doc)
}
