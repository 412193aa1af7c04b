package gemini

import (
	"encoding/json"
	"net/http"

	"google.golang.org/genai"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/internal/provider"
	"github.com/helixagents/helix/session"
)

// reader makes a reply of the API's answer.
type reader struct {
	reply   *provider.Reply
	secrets provider.Secrets

	open     *provider.Block // the text or reasoning that is being read
	kind     session.PartKind
	calls    map[string]bool // ids of calls that were read
	finished bool
}

// event is a piece of the stream: a response of which each holds what is new.
type event struct {
	Candidates     []candidate                                 `json:"candidates"`
	PromptFeedback *feedback                                   `json:"promptFeedback"`
	UsageMetadata  *genai.GenerateContentResponseUsageMetadata `json:"usageMetadata"`
	ModelVersion   string                                      `json:"modelVersion"`
	Error          *apiError                                   `json:"error"`
}

type candidate struct {
	Index         int                `json:"index"`
	Content       content            `json:"content"`
	FinishReason  genai.FinishReason `json:"finishReason"`
	FinishMessage string             `json:"finishMessage"`
}

type feedback struct {
	BlockReason        genai.BlockedReason `json:"blockReason"`
	BlockReasonMessage string              `json:"blockReasonMessage"`
}

func (r *reader) readAll(answer *http.Response) error {
	if answer.StatusCode != http.StatusOK {
		return refusal(answer, r.secrets)
	}
	for data, err := range events(answer.Body) {
		if err != nil {
			if r.finished { // nothing was left to come
				return nil
			}
			return provider.Broken(name, err, r.secrets)
		}
		if err := r.read(data); err != nil {
			return err
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
		return llm.Error(session.CodeContentFilter, false, "%s", r.secrets.Redact(reason("gemini refused the prompt", string(f.BlockReason), f.BlockReasonMessage)))
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

// usage gives the counts in our terms: the API counts thoughts beside the output,
// and what its own tools put into the prompt beside the input.
func usage(u *genai.GenerateContentResponseUsageMetadata) session.Usage {
	return session.Usage{
		InputTokens:     int64(u.PromptTokenCount) + int64(u.ToolUsePromptTokenCount),
		OutputTokens:    int64(u.CandidatesTokenCount) + int64(u.ThoughtsTokenCount),
		ReasoningTokens: int64(u.ThoughtsTokenCount),
		CacheReadTokens: int64(u.CachedContentTokenCount),
	}
}

// Finish reasons that the SDK has no name for yet.
const (
	finishMalformedResponse genai.FinishReason = "MALFORMED_RESPONSE"
	finishMissingSignature  genai.FinishReason = "MISSING_THOUGHT_SIGNATURE"
)

// finish notes why the model stopped. A call that the API itself could not read
// never arrives, so there is nothing to answer the model with: it is asked again.
func (r *reader) finish(c *candidate) error {
	switch c.FinishReason {
	case "", genai.FinishReasonUnspecified:
		return nil
	case genai.FinishReasonMalformedFunctionCall, genai.FinishReasonUnexpectedToolCall, finishMalformedResponse:
		return provider.Malformed(name, "%s", r.secrets.Redact(reason("could not read the model's reply", string(c.FinishReason), c.FinishMessage)))
	case finishMissingSignature:
		return llm.Error(session.CodeBadRequest, false, "%s", r.secrets.Redact(reason("gemini refused the transcript", string(c.FinishReason), c.FinishMessage)))
	}
	r.finished = true
	r.reply.Finish = finishes[c.FinishReason]
	return nil
}

// finishes are the finish reasons in our terms; those that are not listed are
// [llm.FinishOther].
var finishes = map[genai.FinishReason]llm.FinishReason{
	genai.FinishReasonStop:                   llm.FinishStop,
	genai.FinishReasonMaxTokens:              llm.FinishLength,
	genai.FinishReasonContinuation:           llm.FinishLength,
	genai.FinishReasonSafety:                 llm.FinishContentFilter,
	genai.FinishReasonRecitation:             llm.FinishContentFilter,
	genai.FinishReasonBlocklist:              llm.FinishContentFilter,
	genai.FinishReasonProhibitedContent:      llm.FinishContentFilter,
	genai.FinishReasonSPII:                   llm.FinishContentFilter,
	genai.FinishReasonImageSafety:            llm.FinishContentFilter,
	genai.FinishReasonImageProhibitedContent: llm.FinishContentFilter,
	genai.FinishReasonImageRecitation:        llm.FinishContentFilter,
}

func reason(what, why, message string) string {
	what += ": " + why
	if message != "" {
		what += ": " + provider.Clip(message, 500)
	}
	return what
}
