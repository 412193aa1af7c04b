package openai

import (
	"context"
	"net/http"
	"os"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/internal/provider"
	"github.com/helixagents/helix/session"
)

const name = provider.OpenAI

// API is one of the APIs of OpenAI.
type API string

// The APIs.
const (
	// Responses is the API that keeps a model's reasoning from call to call.
	Responses API = "responses"
	// ChatCompletions is the API that other servers speak too.
	ChatCompletions API = "chat-completions"
)

// Config names the model and configures how to reach it.
type Config struct {
	// Model is the model's name, such as gpt-5.
	Model string
	// APIKey is the key. Defaults to the environment variable OPENAI_API_KEY. It is
	// sent to BaseURL, whichever server that is. An empty key is not sent.
	APIKey string
	// BaseURL is the address of the API, with the /v1. Defaults to the environment variable
	// OPENAI_BASE_URL, and without it to OpenAI's own address.
	BaseURL string
	// Organization and Project select what is billed if the key belongs to several.
	Organization string
	Project      string
	// API is the API to use. Defaults to [Responses].
	API API
	// HTTPClient makes the requests. Defaults to [http.DefaultClient]. Redirections are
	// not followed.
	HTTPClient *http.Client
	// Headers are sent with every request, for gateways. Headers of a request take
	// precedence.
	Headers map[string]string
	// Window is the size of the model's context window in tokens. Defaults to 0: it is not
	// known.
	Window int
}

// Model is an [llm.Model] on one of OpenAI's APIs. It is safe for concurrent use.
type Model struct {
	cfg    Config
	client *http.Client
	own    bool // the server is OpenAI's
}

var (
	_ llm.Model    = (*Model)(nil)
	_ llm.Windowed = (*Model)(nil)
)

// defaultBaseURL is OpenAI's own address.
const defaultBaseURL = "https://api.openai.com/v1"

// New returns a model. Errors in the configuration are reported by [Model.Check] and by
// the first call.
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
	return &Model{cfg: cfg, client: provider.Client(cfg.HTTPClient), own: isOwn(cfg.BaseURL)}
}

// String returns the name of the model, without anything secret.
func (m *Model) String() string { return name + "/" + m.cfg.Model }

// GoString returns the same as String, so that a model that is printed does not show its
// key.
func (m *Model) GoString() string { return m.String() }

// Check reports what is missing or wrong in the configuration, without a request.
func (m *Model) Check() error {
	if m.cfg.Window < 0 {
		return llm.Error(session.CodeBadRequest, false, "openai: the window of the model is negative: %d", m.cfg.Window)
	}
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

// Window implements [llm.Windowed]. It is [Config.Window].
func (m *Model) Window() int { return m.cfg.Window }

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
	call := &provider.Call{
		Provider: name, Client: m.client, Header: m.header(request), Failure: refusal,
		Secrets: provider.NewSecrets(m.cfg.APIKey, m.cfg.Headers, request.Settings.Headers),
	}
	var r reader
	if m.cfg.API == ChatCompletions {
		call.URL, r = provider.Join(m.cfg.BaseURL, "chat/completions"), &chatReader{reply: reply, secrets: call.Secrets}
	} else {
		call.URL, r = provider.Join(m.cfg.BaseURL, "responses"), newResponseReader(reply, call.Secrets)
	}
	if call.Body, err = m.body(request, &extra); err != nil {
		return nil, err
	}
	err = exchange(ctx, call, reply, r)
	switch {
	case r.complete():
		return reply.Response()
	case ctx.Err() != nil:
		return reply.Partial(), ctx.Err()
	case err != nil:
		return reply.Partial(), err
	}
	return reply.Partial(), provider.Stopped(name)
}

// body builds the request for the configured API.
func (m *Model) body(request *llm.Request, extra *extras) ([]byte, error) {
	if m.cfg.API == ChatCompletions {
		chat, err := m.chatRequest(request)
		if err != nil {
			return nil, err
		}
		return extra.encode(chat)
	}
	response, err := m.responseRequest(request, extra)
	if err != nil {
		return nil, err
	}
	return extra.encode(response)
}

// header returns the headers of a request. Only what makes the answer a stream cannot be replaced.
func (m *Model) header(request *llm.Request) http.Header {
	own := map[string]string{}
	for header, value := range map[string]string{"OpenAI-Organization": m.cfg.Organization, "OpenAI-Project": m.cfg.Project} {
		if value != "" {
			own[header] = value
		}
	}
	if m.cfg.APIKey != "" {
		own["Authorization"] = "Bearer " + m.cfg.APIKey
	}
	return provider.Header(own, m.cfg.Headers, request.Settings.Headers, map[string]string{"Accept": "text/event-stream"})
}
