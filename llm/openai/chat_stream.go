package openai

import (
	"encoding/json"
	"strings"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/internal/provider"
	"github.com/helixagents/helix/session"
)

// chatReader builds a reply from the chunks of the Chat Completions API. Servers that
// speak it leave out what they like: ids, indexes, usage, the last event.
type chatReader struct {
	reply    *provider.Reply
	secrets  provider.Secrets
	calls    []*chatCall
	byIndex  map[int]*chatCall
	byID     map[string]*chatCall
	finished bool // a finish reason was given
	counted  bool // usage came with it or after it
	refused  bool // the model said why it does not answer
	done     bool
}

// chatCall is a call that is still arriving. It starts when its tool is known.
type chatCall struct {
	*provider.Block
	id   string
	args strings.Builder // that came before the name
}

type chatChunk struct {
	Model   string          `json:"model"`
	Choices []chatChoice    `json:"choices"`
	Usage   *chatUsage      `json:"usage"`
	Error   json.RawMessage `json:"error"`
}

type chatChoice struct {
	Index   int          `json:"index"`
	Delta   *chatMessage `json:"delta"`
	Message *chatMessage `json:"message"` // of an answer that is not a stream
	Finish  string       `json:"finish_reason"`
}

type chatMessage struct {
	Content          chatText        `json:"content"`
	ReasoningContent chatText        `json:"reasoning_content"` // what servers call it that
	Reasoning        chatText        `json:"reasoning"`         // show their reasoning
	Refusal          string          `json:"refusal"`
	Calls            []chatCallDelta `json:"tool_calls"`
}

type chatCallDelta struct {
	Index    *int   `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string        `json:"name"`
		Arguments chatArguments `json:"arguments"`
	} `json:"function"`
}

type chatUsage struct {
	Input   int64 `json:"prompt_tokens"`
	Output  int64 `json:"completion_tokens"`
	Total   int64 `json:"total_tokens"`
	Details struct {
		Read    int64 `json:"cached_tokens"`
		Written int64 `json:"cache_write_tokens"`
	} `json:"prompt_tokens_details"`
	OutputDetails struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// chatText is a text, or the parts of one. What it is not is left out.
type chatText struct {
	text, thinking string
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *chatText) UnmarshalJSON(raw []byte) error {
	if json.Unmarshal(raw, &t.text) == nil {
		return nil
	}
	var parts []struct {
		Text     string    `json:"text"`
		Thinking plainText `json:"thinking"`
	}
	if json.Unmarshal(raw, &parts) == nil {
		var text, thinking strings.Builder
		for i := range parts {
			text.WriteString(parts[i].Text)
			thinking.WriteString(string(parts[i].Thinking))
		}
		t.text, t.thinking = text.String(), thinking.String()
	}
	return nil
}

// plainText is a text, or parts of text without parts of their own: the nesting that a
// server may send ends here.
type plainText string

// UnmarshalJSON implements json.Unmarshaler.
func (t *plainText) UnmarshalJSON(raw []byte) error {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		*t = plainText(text)
		return nil
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) == nil {
		var joined strings.Builder
		for i := range parts {
			joined.WriteString(parts[i].Text)
		}
		*t = plainText(joined.String())
	}
	return nil
}

// chatArguments are a call's arguments: a text, or the object itself.
type chatArguments string

// UnmarshalJSON implements json.Unmarshaler.
func (a *chatArguments) UnmarshalJSON(raw []byte) error {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		text = string(raw)
	}
	*a = chatArguments(text)
	return nil
}

func (r *chatReader) complete() bool { return r.finished || r.done }

// ended reports true once usage has arrived, too: it follows the finish reason, and some
// servers then keep the connection open without sending anything.
func (r *chatReader) ended() bool { return r.done || r.finished && r.counted }

func (r *chatReader) event(data []byte) error {
	if strings.HasPrefix(string(data), "[DONE]") {
		return r.end()
	}
	var chunk chatChunk
	if err := json.Unmarshal(data, &chunk); err != nil {
		return err
	}
	return r.chunk(&chunk, data)
}

// whole reads an answer that is not a stream, whose shape is that of a chunk.
func (r *chatReader) whole(body []byte) error {
	var chunk chatChunk
	if err := json.Unmarshal(body, &chunk); err != nil {
		return err
	}
	if len(chunk.Choices) == 0 {
		return inStream(body, r.secrets)
	}
	if err := r.chunk(&chunk, body); err != nil {
		return err
	}
	return r.end()
}

func (r *chatReader) chunk(chunk *chatChunk, data []byte) error {
	if len(chunk.Error) > 0 && string(chunk.Error) != "null" {
		return inStream(data, r.secrets)
	}
	if chunk.Model != "" {
		r.reply.Model = chunk.Model
	}
	for i := range chunk.Choices {
		if choice := &chunk.Choices[i]; choice.Index == 0 { // others were asked for by an option, and have no place
			if err := r.choice(choice); err != nil {
				return err
			}
		}
	}
	if u := chunk.Usage; u != nil {
		r.reply.Usage = u.usage()
		r.counted = r.finished
	}
	return nil
}

func (r *chatReader) choice(choice *chatChoice) error {
	m := choice.Delta
	if m == nil {
		m = choice.Message
	}
	if m != nil {
		r.message(m)
	}
	switch choice.Finish {
	case "":
		return nil
	case "error":
		return inStream([]byte(`{"type":"server_error","message":"the reply ended with an error"}`), r.secrets)
	}
	r.reply.Finish = finish(choice.Finish)
	if err := r.settle(); err != nil {
		return err
	}
	r.finished = true
	return nil
}

func (r *chatReader) message(m *chatMessage) {
	thought := m.ReasoningContent.text
	if thought == "" {
		thought = m.Reasoning.text
	}
	r.reply.Say(session.PartReasoning, thought)
	r.reply.Say(session.PartReasoning, m.Content.thinking)
	r.reply.Say(session.PartText, m.Content.text)
	if m.Refusal != "" {
		r.refused = true
		r.reply.Say(session.PartText, m.Refusal)
	}
	for i := range m.Calls {
		r.call(&m.Calls[i])
	}
}

func (r *chatReader) call(d *chatCallDelta) {
	c := r.find(d)
	if c.id == "" {
		r.identify(c, d.ID)
	}
	if c.Block == nil && d.Function.Name != "" {
		c.Block = r.reply.Call(c.id, d.Function.Name)
		c.Add(c.args.String())
	}
	if c.Block == nil {
		c.args.WriteString(string(d.Function.Arguments))
		return
	}
	c.Identify(c.id)
	c.Add(string(d.Function.Arguments))
}

// find returns the call that a piece belongs to: by its index, else by its id, else
// the latest. Some servers number all calls 0, so another id begins another call.
func (r *chatReader) find(d *chatCallDelta) *chatCall {
	if d.Index != nil {
		if c := r.byIndex[*d.Index]; c != nil && !(d.ID != "" && c.id != "" && d.ID != c.id && d.Function.Name != "") {
			return c
		}
		return r.begin(d)
	}
	if c := r.byID[d.ID]; c != nil {
		return c
	}
	if d.ID != "" || d.Function.Name != "" || len(r.calls) == 0 {
		return r.begin(d)
	}
	return r.calls[len(r.calls)-1]
}

func (r *chatReader) begin(d *chatCallDelta) *chatCall {
	if len(r.calls) == provider.MaxParts {
		r.reply.Overflow()
		return r.calls[len(r.calls)-1]
	}
	c := &chatCall{}
	r.calls = append(r.calls, c)
	r.identify(c, d.ID)
	if d.Index != nil {
		if r.byIndex == nil {
			r.byIndex = map[int]*chatCall{}
		}
		r.byIndex[*d.Index] = c
	}
	return c
}

// identify sets the id of a call. Of several calls with one id, the first has it.
func (r *chatReader) identify(c *chatCall, id string) {
	if c.id = id; id == "" || r.byID[id] != nil {
		return
	}
	if r.byID == nil {
		r.byID = map[string]*chatCall{}
	}
	r.byID[id] = c
}

// end handles the event that ends the stream.
func (r *chatReader) end() error {
	if err := r.settle(); err != nil {
		return err
	}
	r.done = true
	return nil
}

// settle corrects the finish reason: servers send "stop" for everything, or none at all.
func (r *chatReader) settle() error {
	for _, c := range r.calls {
		if c.Block == nil {
			return provider.Malformed(name, "sent a call without the name of a tool")
		}
	}
	switch {
	case r.refused:
		r.reply.Finish = llm.FinishContentFilter
	case r.reply.Finish == "", r.reply.Finish == llm.FinishToolCalls && len(r.calls) == 0:
		r.reply.Finish = llm.FinishStop
	}
	return nil
}

func (u *chatUsage) usage() session.Usage {
	out := session.Usage{
		InputTokens: u.Input, OutputTokens: u.Output, ReasoningTokens: u.OutputDetails.Reasoning,
		CacheReadTokens: u.Details.Read, CacheWriteTokens: u.Details.Written,
	}
	// Some servers count reasoning beside the output; the total tells.
	if out.ReasoningTokens > 0 && u.Total == u.Input+u.Output+out.ReasoningTokens {
		out.OutputTokens += out.ReasoningTokens
	}
	return out
}

// finish is why a reply ended, in the words of either API.
func finish(reason string) llm.FinishReason {
	switch reason {
	case "stop", "eos", "stop_sequence":
		return llm.FinishStop
	case "tool_calls", "function_call":
		return llm.FinishToolCalls
	case "length", "max_tokens", "max_output_tokens":
		return llm.FinishLength
	case "content_filter":
		return llm.FinishContentFilter
	}
	return llm.FinishOther
}
