package openai

import (
	"context"
	"net/http"
	"os"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/internal/provider"
	"github.com/helixagents/helix/session"
)

const name = provider.OpenAI

// API is one of the two ways to ask a model.
type API string

// The APIs.
const (
	// Responses is the API that keeps a model's reasoning from call to call.
	Responses API = "responses"
	// ChatCompletions is the API that other servers speak too.
	ChatCompletions API = "chat-completions"
)

// Config says which model to ask, and where.
type Config struct {
	// Model is the model's name, such as gpt-5.
	Model string
	// APIKey is the key. Defaults to the environment variable OPENAI_API_KEY. It is
	// sent to the base URL, whoever that is; without a key none is sent.
	APIKey string
	// BaseURL is where the API is, with the /v1. Defaults to the environment variable
	// OPENAI_BASE_URL, and without it to OpenAI's own address.
	BaseURL string
	// Organization and Project are who pays, for keys that belong to several.
	Organization string
	Project      string
	// API is how the model is asked. Defaults to [Responses].
	API API
	// HTTPClient makes the requests. Defaults to [http.DefaultClient]. Redirections are
	// not followed.
	HTTPClient *http.Client
	// Headers are sent with every request, for gateways. A request's own come on top.
	Headers map[string]string
}

// Model is an [llm.Model] on one of OpenAI's APIs. It is safe for concurrent use.
type Model struct {
	cfg    Config
	client sdk.Client
	own    bool // the server is OpenAI's
}

var _ llm.Model = (*Model)(nil)

// defaultBaseURL is OpenAI's own address.
const defaultBaseURL = "https://api.openai.com/v1"

// New is a model. What is wrong with the configuration shows in [Model.Check] and
// in the first call.
func New(cfg Config) *Model {
	if cfg.APIKey == "" {
		cfg.APIKey = os.Getenv("OPENAI_API_KEY")
	}
	if cfg.BaseURL == "" {
		cfg.BaseURL = os.Getenv("OPENAI_BASE_URL")
	}
	if cfg.BaseURL == "" {
		cfg.BaseURL = defaultBaseURL
	}
	if cfg.API == "" {
		cfg.API = Responses
	}
	options := []option.RequestOption{
		option.WithBaseURL(cfg.BaseURL),
		option.WithHTTPClient(provider.Client(cfg.HTTPClient)),
		option.WithMaxRetries(0), // the engine retries: it takes back what was shown
	}
	if cfg.APIKey != "" {
		options = append(options, option.WithAPIKey(cfg.APIKey))
	}
	if cfg.Organization != "" {
		options = append(options, option.WithOrganization(cfg.Organization))
	}
	if cfg.Project != "" {
		options = append(options, option.WithProject(cfg.Project))
	}
	for header, value := range cfg.Headers {
		options = append(options, option.WithHeader(header, value))
	}
	// Not sdk.NewClient, which also takes headers and an administrator's key from the
	// environment.
	return &Model{cfg: cfg, client: sdk.Client{Options: options}, own: isOwn(cfg.BaseURL)}
}

// String names the model, and nothing of what is secret in it.
func (m *Model) String() string { return name + "/" + m.cfg.Model }

// GoString is String: a model that is printed must not show its key.
func (m *Model) GoString() string { return m.String() }

// Check reports what is missing or wrong in the configuration, without a request.
func (m *Model) Check() error {
	if m.cfg.Model == "" {
		return llm.Error(session.CodeBadRequest, false, "openai: no model is named")
	}
	if m.cfg.API != Responses && m.cfg.API != ChatCompletions {
		return llm.Error(session.CodeBadRequest, false, "openai: there is no API %q", m.cfg.API)
	}
	if err := provider.CheckBaseURL(name, m.cfg.BaseURL); err != nil {
		return err
	}
	if m.own && m.cfg.APIKey == "" && !provider.HasHeader(m.cfg.Headers, "Authorization", "Api-Key") {
		return llm.Error(session.CodeAuth, false, "openai: no API key: set OPENAI_API_KEY or Config.APIKey")
	}
	return nil
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
	reply := provider.NewReply(emit)
	reply.Model = m.cfg.Model
	x := exchange{client: &m.client, secrets: provider.NewSecrets(m.cfg.APIKey, m.cfg.Headers, request.Settings.Headers)}
	if m.cfg.API == ChatCompletions {
		x.path, x.params, x.reader = "chat/completions", m.chatParams(request), &chatReader{reply: reply, secrets: x.secrets}
	} else {
		x.path, x.params, x.reader = "responses", m.responseParams(request, &extra), newResponseReader(reply, x.secrets)
	}
	options, err := extra.apply(x.params)
	if err != nil {
		return nil, err
	}
	err = x.run(ctx, options)
	switch {
	case x.reader.complete():
		return reply.Response()
	case ctx.Err() != nil:
		return reply.Partial(), ctx.Err()
	case err != nil:
		return reply.Partial(), err
	}
	return reply.Partial(), provider.Stopped(name)
}
