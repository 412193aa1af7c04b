package gemini

import (
	"cmp"
	"context"
	"net/http"
	"os"
	"strings"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/internal/provider"
	"github.com/helixagents/helix/session"
)

const name = provider.Gemini

// Config names the model and configures how to reach it.
type Config struct {
	// Model is the model's name, such as gemini-2.5-pro.
	Model string
	// APIKey is the key. Defaults to the environment variable GEMINI_API_KEY, and
	// without it to GOOGLE_API_KEY. It is sent to BaseURL, whichever server that is.
	APIKey string
	// BaseURL is the address of the API, without the /v1beta. Defaults to the environment
	// variable GOOGLE_GEMINI_BASE_URL, and without it to Google's own address.
	BaseURL string
	// HTTPClient makes the requests. Defaults to [http.DefaultClient]. Redirections are
	// not followed.
	HTTPClient *http.Client
	// Headers are sent with every request, for gateways. Headers of a request take
	// precedence.
	Headers map[string]string
	// Window is the size of the model's context window in tokens. Defaults to what Google's pages say about
	// the model; see [Model.Window].
	Window int
}

// Model is an [llm.Model] on the Gemini API. It is safe for concurrent use.
type Model struct {
	cfg    Config
	client *http.Client
}

var (
	_ llm.Model    = (*Model)(nil)
	_ llm.Windowed = (*Model)(nil)
	_ llm.Counter  = (*Model)(nil)
)

// defaultBaseURL is Google's own address.
const defaultBaseURL = "https://generativelanguage.googleapis.com"

// New returns a model. Errors in the configuration are reported by [Model.Check] and by
// the first call.
func New(cfg Config) *Model {
	cfg.APIKey = cmp.Or(cfg.APIKey, os.Getenv("GEMINI_API_KEY"), os.Getenv("GOOGLE_API_KEY"))
	cfg.BaseURL = cmp.Or(cfg.BaseURL, os.Getenv("GOOGLE_GEMINI_BASE_URL"), defaultBaseURL)
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
		return llm.Error(session.CodeBadRequest, false, "gemini: the window of the model is negative: %d", m.cfg.Window)
	}
	if m.cfg.Model == "" {
		return llm.Error(session.CodeBadRequest, false, "gemini: no model is named")
	}
	if strings.ContainsAny(m.cfg.Model, "?&") || strings.Contains(m.cfg.Model, "..") {
		return llm.Error(session.CodeBadRequest, false, "gemini: %q cannot be the name of a model", m.cfg.Model)
	}
	if m.cfg.APIKey == "" && !provider.HasHeader(m.cfg.Headers, "Authorization", "X-Goog-Api-Key") {
		return llm.Error(session.CodeAuth, false, "gemini: no API key: set GEMINI_API_KEY or GOOGLE_API_KEY or Config.APIKey")
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
	body, err := m.body(request)
	if err != nil {
		return nil, err
	}
	call := &provider.Call{
		Provider: name, Client: m.client, URL: m.address("streamGenerateContent", "alt=sse"), Header: m.header(ctx, request), Body: body, Failure: refusal,
		Secrets: provider.NewSecrets(m.cfg.APIKey, m.cfg.Headers, request.Settings.Headers),
	}
	r := &reader{reply: provider.NewReply(emit), secrets: call.Secrets}
	r.reply.Model = m.cfg.Model
	err = r.exchange(ctx, call)
	switch {
	case r.finished && err == nil:
		return r.reply.Response()
	case ctx.Err() != nil:
		return r.reply.Partial(), ctx.Err()
	case err == nil:
		err = provider.Stopped(name)
	}
	return r.reply.Partial(), err
}
