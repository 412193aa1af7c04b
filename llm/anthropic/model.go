package anthropic

import (
	"context"
	"errors"
	"net/http"
	"os"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/internal/provider"
	"github.com/helixagents/helix/session"
)

const name = provider.Anthropic

// Config says which model to ask, and where.
type Config struct {
	// Model is the model's name, such as claude-sonnet-4-5.
	Model string
	// APIKey is the key. Defaults to the environment variable ANTHROPIC_API_KEY.
	APIKey string
	// BaseURL is where the API is, without the /v1. Defaults to the environment
	// variable ANTHROPIC_BASE_URL, and without it to Anthropic's own address.
	BaseURL string
	// HTTPClient makes the requests. Defaults to [http.DefaultClient]. Redirections are
	// not followed.
	HTTPClient *http.Client
	// Headers are sent with every request, for gateways. A request's own come on top.
	Headers map[string]string
	// MaxOutputTokens bounds replies whose settings do not, as the API wants a bound.
	// Defaults to 32000, or to what the model can do if that is less.
	MaxOutputTokens int
}

// Model is an [llm.Model] on the Messages API. It is safe for concurrent use.
type Model struct {
	cfg      Config
	messages sdk.MessageService
}

var _ llm.Model = (*Model)(nil)

// defaultBaseURL is Anthropic's own address.
const defaultBaseURL = "https://api.anthropic.com"

// New is a model. What is wrong with the configuration shows in [Model.Check] and
// in the first call.
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
	options := []option.RequestOption{
		option.WithBaseURL(cfg.BaseURL),
		option.WithHTTPClient(provider.Client(cfg.HTTPClient)),
		option.WithMaxRetries(0),      // the engine retries: it takes back what was shown
		option.WithoutOpenTelemetry(), // traces are the application's choice, made with hooks
	}
	if cfg.APIKey != "" {
		options = append(options, option.WithAPIKey(cfg.APIKey))
	}
	for header, value := range cfg.Headers {
		options = append(options, option.WithHeader(header, value))
	}
	return &Model{cfg: cfg, messages: sdk.NewMessageService(options...)}
}

// String names the model, and nothing of what is secret in it.
func (m *Model) String() string { return name + "/" + m.cfg.Model }

// GoString is String: a model that is printed must not show its key.
func (m *Model) GoString() string { return m.String() }

// Check reports what is missing or wrong in the configuration, without a request.
func (m *Model) Check() error {
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
	params, options, err := m.params(request)
	if err != nil {
		return nil, err
	}
	events := m.messages.NewStreaming(ctx, params, options...)
	defer events.Close()
	r := reader{reply: provider.NewReply(emit), blocks: map[int64]*block{}}
	r.reply.Model = m.cfg.Model
	for !r.done && events.Next() {
		if err := r.read(events.Current()); err != nil {
			return r.reply.Partial(), err
		}
	}
	switch err := events.Err(); {
	case r.done:
		return r.reply.Response()
	case ctx.Err() != nil:
		return r.reply.Partial(), ctx.Err()
	case err != nil:
		return r.reply.Partial(), classify(err, provider.NewSecrets(m.cfg.APIKey, m.cfg.Headers, request.Settings.Headers))
	}
	return r.reply.Partial(), provider.Stopped(name)
}

// classify makes a provider's failure of what the SDK reports.
func classify(err error, secrets provider.Secrets) error {
	answer, ok := errors.AsType[*sdk.Error](err)
	if !ok {
		return provider.Broken(name, err, secrets)
	}
	f := provider.Failure{Provider: name, Status: answer.StatusCode, Type: string(answer.Type()), Body: answer.RawJSON()}
	if answer.Response != nil {
		f.Header = answer.Response.Header
	}
	if f.Status == http.StatusOK { // within a stream that began well
		f.Status = 0
	}
	f.Message = message(answer.RawJSON())
	return f.Error(secrets)
}
