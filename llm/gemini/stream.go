package gemini

import (
	"context"
	"encoding/json"
	"io"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/internal/provider"
	"github.com/helixagents/helix/session"
)

// reader builds a reply from the API's answer.
type reader struct {
	reply   *provider.Reply
	secrets provider.Secrets

	open     *provider.Block // the text or reasoning that is being read
	kind     session.PartKind
	calls    map[string]bool // ids of calls that were read
	finished bool
}

// event is a piece of the stream: a response with what is new.
type event struct {
	Candidates     []candidate    `json:"candidates"`
	PromptFeedback *feedback      `json:"promptFeedback"`
	UsageMetadata  *usageMetadata `json:"usageMetadata"`
	ModelVersion   string         `json:"modelVersion"`
	Error          *apiError      `json:"error"`
}

type usageMetadata struct {
	PromptTokenCount        int64 `json:"promptTokenCount"`
	ToolUsePromptTokenCount int64 `json:"toolUsePromptTokenCount"`
	CandidatesTokenCount    int64 `json:"candidatesTokenCount"`
	ThoughtsTokenCount      int64 `json:"thoughtsTokenCount"`
	CachedContentTokenCount int64 `json:"cachedContentTokenCount"`
}

type candidate struct {
	Index         int     `json:"index"`
	Content       content `json:"content"`
	FinishReason  string  `json:"finishReason"`
	FinishMessage string  `json:"finishMessage"`
}

type feedback struct {
	BlockReason        string `json:"blockReason"`
	BlockReasonMessage string `json:"blockReasonMessage"`
}

// exchange sends a request and reads the answer. Its errors are classified.
func (r *reader) exchange(ctx context.Context, call *provider.Call) error {
	answer, err := call.Post(ctx)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	return r.readAll(answer.Body)
}

func (r *reader) readAll(body io.Reader) error {
	for e, err := range provider.LooseEvents(body) {
		if err != nil {
			if r.finished { // nothing was left to come
				return nil
			}
			return provider.Broken(name, err, r.secrets)
		}
		if len(e.Data) == 0 {
			continue
		}
		if err := r.read(e.Data); err != nil {
			return err
		}
		if err := r.reply.CheckSize(); err != nil {
			return provider.Broken(name, err, r.secrets)
		}
	}
	return nil
}

func (r *reader) read(data []byte) error {
	var e event
	if err := json.Unmarshal(data, &e); err != nil {
		return provider.Broken(name, err, r.secrets)
	}
	if e.Error != nil {
		return e.Error.failure().Error(r.secrets)
	}
	if e.ModelVersion != "" {
		r.reply.Model = e.ModelVersion
	}
	if e.UsageMetadata != nil {
		r.reply.Usage = usage(e.UsageMetadata)
	}
	for i := range e.Candidates {
		if c := &e.Candidates[i]; c.Index == 0 { // options may ask for several; an agent has use for one
			for j := range c.Content.Parts {
				r.part(&c.Content.Parts[j])
			}
			if err := r.finish(c); err != nil {
				return err
			}
		}
	}
	if f := e.PromptFeedback; f != nil && f.BlockReason != "" {
		return llm.Error(session.CodeContentFilter, false, "%s", r.reason("gemini refused the prompt", f.BlockReason, f.BlockReasonMessage))
	}
	return nil
}

// part reads a piece of content. Kinds that are not known yet, and those of tools
// that run on Google's servers, are left out.
func (r *reader) part(p *part) {
	switch {
	case p.FunctionCall != nil:
		r.call(p)
	case p.InlineData != nil:
		r.end()
		b := r.reply.File("data:"+p.InlineData.MIMEType+";base64,"+p.InlineData.Data, p.InlineData.MIMEType)
		sign(b, p)
	case p.Text != nil && p.Thought:
		r.say(session.PartReasoning, p)
	case p.Text != nil:
		r.say(session.PartText, p)
	}
}

// say adds to the text or reasoning that is being read. A signature, which may come
// with an empty text, is for what was said before it.
func (r *reader) say(kind session.PartKind, p *part) {
	if *p.Text == "" && p.ThoughtSignature == "" {
		return
	}
	if r.open == nil || r.kind != kind {
		r.end()
		r.open, r.kind = r.reply.Begin(kind), kind
	}
	r.open.Add(*p.Text)
	if sign(r.open, p) {
		r.end()
	}
}

func (r *reader) end() {
	if r.open != nil {
		r.open.End()
		r.open = nil
	}
}

// call reads a call, whose arguments come whole.
func (r *reader) call(p *part) {
	id := p.FunctionCall.ID
	if r.calls[id] {
		return // repeated
	}
	if id != "" {
		if r.calls == nil {
			r.calls = map[string]bool{}
		}
		r.calls[id] = true
	}
	r.end()
	b := r.reply.Call(id, p.FunctionCall.Name)
	if args := string(p.FunctionCall.Args); args != "null" {
		b.Add(args)
	}
	sign(b, p)
	b.End()
}

func sign(b *provider.Block, p *part) bool {
	if p.ThoughtSignature == "" {
		return false
	}
	b.Keep(provider.Keep(name, kept{p.ThoughtSignature}))
	return true
}

// usage returns the counts in our terms: the API counts thoughts beside the output,
// and what its own tools put into the prompt beside the input.
func usage(u *usageMetadata) session.Usage {
	return session.Usage{
		InputTokens:     u.PromptTokenCount + u.ToolUsePromptTokenCount,
		OutputTokens:    u.CandidatesTokenCount + u.ThoughtsTokenCount,
		ReasoningTokens: u.ThoughtsTokenCount,
		CacheReadTokens: u.CachedContentTokenCount,
	}
}

// finish records why the model stopped. A call that the API itself could not read
// never arrives, so there is nothing to answer the model with: it is asked again.
func (r *reader) finish(c *candidate) error {
	switch c.FinishReason {
	case "", "FINISH_REASON_UNSPECIFIED":
		return nil
	case "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE":
		return provider.Malformed(name, "%s", r.reason("could not read the model's reply", c.FinishReason, c.FinishMessage))
	case "MISSING_THOUGHT_SIGNATURE":
		return llm.Error(session.CodeBadRequest, false, "%s", r.reason("gemini refused the transcript", c.FinishReason, c.FinishMessage))
	}
	r.finished = true
	r.reply.Finish = finishes[c.FinishReason]
	return nil
}

// finishes are the finish reasons in our terms; those that are not listed are
// [llm.FinishOther].
var finishes = map[string]llm.FinishReason{
	"STOP":                     llm.FinishStop,
	"MAX_TOKENS":               llm.FinishLength,
	"CONTINUATION":             llm.FinishLength,
	"SAFETY":                   llm.FinishContentFilter,
	"RECITATION":               llm.FinishContentFilter,
	"BLOCKLIST":                llm.FinishContentFilter,
	"PROHIBITED_CONTENT":       llm.FinishContentFilter,
	"SPII":                     llm.FinishContentFilter,
	"IMAGE_SAFETY":             llm.FinishContentFilter,
	"IMAGE_PROHIBITED_CONTENT": llm.FinishContentFilter,
	"IMAGE_RECITATION":         llm.FinishContentFilter,
}

func (r *reader) reason(what, why, message string) string {
	what += ": " + r.secrets.Clip(why, 100)
	if message != "" {
		what += ": " + r.secrets.Clip(message, 500)
	}
	return what
}
