package anthropic

import (
	"context"
	"net/http"
	"os"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/internal/provider"
	"github.com/helixagents/helix/session"
)

const name = provider.Anthropic

// Config names the model and configures how to reach it.
type Config struct {
	// Model is the model's name, such as claude-sonnet-4-5.
	Model string
	// APIKey is the key. Defaults to the environment variable ANTHROPIC_API_KEY. It is
	// sent to BaseURL, whichever server that is.
	APIKey string
	// BaseURL is the address of the API, without the /v1. Defaults to the environment
	// variable ANTHROPIC_BASE_URL, and without it to Anthropic's own address.
	BaseURL string
	// HTTPClient makes the requests. Defaults to [http.DefaultClient]. Redirections are
	// not followed.
	HTTPClient *http.Client
	// Headers are sent with every request, for gateways. Headers of a request take
	// precedence.
	Headers map[string]string
	// MaxOutputTokens limits replies whose settings have no limit, because the API requires
	// one. Defaults to 32000, or to the model's own limit if that is less.
	MaxOutputTokens int
	// Window is the size of the model's context window in tokens. Defaults to what Anthropic's pages say
	// about the model, without the betas that enlarge it; see [Model.Window].
	Window int
}

// Model is an [llm.Model] on the Messages API. It is safe for concurrent use.
type Model struct {
	cfg    Config
	client *http.Client
}

var (
	_ llm.Model    = (*Model)(nil)
	_ llm.Windowed = (*Model)(nil)
	_ llm.Counter  = (*Model)(nil)
)

// defaultBaseURL is Anthropic's own address.
const defaultBaseURL = "https://api.anthropic.com"

// New returns a model. Errors in the configuration are reported by [Model.Check] and by
// the first call.
func New(cfg Config) *Model {
	if cfg.APIKey == "" {
		cfg.APIKey = os.Getenv("ANTHROPIC_API_KEY")
	}
	if cfg.BaseURL == "" {
		cfg.BaseURL = os.Getenv("ANTHROPIC_BASE_URL")
	}
	if cfg.BaseURL == "" {
		cfg.BaseURL = defaultBaseURL
	}
	if cfg.MaxOutputTokens == 0 {
		cfg.MaxOutputTokens = outputLimit(cfg.Model)
	}
	return &Model{cfg: cfg, client: provider.Client(cfg.HTTPClient)}
}

// String returns the name of the model, without anything secret.
func (m *Model) String() string { return name + "/" + m.cfg.Model }

// GoString returns the same as String, so that a model that is printed does not show its
// key.
func (m *Model) GoString() string { return m.String() }

// Check reports what is missing or wrong in the configuration, without a request.
func (m *Model) Check() error {
	if m.cfg.Window < 0 {
		return llm.Error(session.CodeBadRequest, false, "anthropic: the window of the model is negative: %d", m.cfg.Window)
	}
	if m.cfg.Model == "" {
		return llm.Error(session.CodeBadRequest, false, "anthropic: no model is named")
	}
	if m.cfg.APIKey == "" && !provider.HasHeader(m.cfg.Headers, "Authorization", "X-Api-Key") {
		return llm.Error(session.CodeAuth, false, "anthropic: no API key: set ANTHROPIC_API_KEY or Config.APIKey")
	}
	return provider.CheckBaseURL(name, m.cfg.BaseURL)
}

// Generate implements [llm.Model].
func (m *Model) Generate(ctx context.Context, request *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := m.Check(); err != nil {
		return nil, err
	}
	extra, err := readOptions(request)
	if err != nil {
		return nil, err
	}
	body, err := m.body(request, &extra)
	if err != nil {
		return nil, err
	}
	call := &provider.Call{
		Provider: name, Client: m.client, URL: provider.Join(m.cfg.BaseURL, "v1/messages"), Header: m.header(request, extra.betas), Body: body,
		Failure: func(_ http.Header, body []byte) provider.Failure { return failure(body) },
		Secrets: provider.NewSecrets(m.cfg.APIKey, m.cfg.Headers, request.Settings.Headers),
	}
	r := &reader{reply: provider.NewReply(emit), secrets: call.Secrets, blocks: map[count]*block{}}
	r.reply.Model = m.cfg.Model
	err = r.exchange(ctx, call)
	switch {
	case r.done:
		return r.reply.Response()
	case ctx.Err() != nil:
		return r.reply.Partial(), ctx.Err()
	case err != nil:
		return r.reply.Partial(), err
	}
	return r.reply.Partial(), provider.Stopped(name)
}

// apiVersion is the version of the API's wire.
const apiVersion = "2023-06-01"

// header returns the headers of a request. Betas come on top of the configured ones, unless the request has a header for
// them.
func (m *Model) header(request *llm.Request, betas []string) http.Header {
	own := map[string]string{"Accept": "application/json", "Anthropic-Version": apiVersion}
	if m.cfg.APIKey != "" {
		own["X-Api-Key"] = m.cfg.APIKey
	}
	h := provider.Header(own, m.cfg.Headers)
	for _, beta := range betas {
		h.Add("Anthropic-Beta", beta)
	}
	for header, value := range request.Settings.Headers {
		h.Set(header, value)
	}
	return h
}
