package gemini

import (
	"context"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/internal/provider"
)

// apiVersion is the version of the API, and the first part of its paths.
const apiVersion = "v1beta"

// address is where a method of the model is called.
func (m *Model) address(method, query string) string {
	base, err := url.Parse(m.cfg.BaseURL)
	if err != nil {
		return "" // Check has refused it
	}
	u := base.JoinPath(apiVersion, m.resource()+":"+method)
	u.RawQuery = query
	return u.String()
}

// resource is the name of the model in the API.
func (m *Model) resource() string {
	model := m.cfg.Model
	if !strings.HasPrefix(model, "models/") && !strings.HasPrefix(model, "tunedModels/") {
		model = "models/" + model
	}
	return model
}

// header returns the headers of a request. The key comes on top of all others, as it always has.
func (m *Model) header(ctx context.Context, request *llm.Request) http.Header {
	h := provider.Header(nil, m.cfg.Headers, request.Settings.Headers)
	h.Set("Content-Type", "application/json")
	if timeout := m.timeout(ctx); timeout > 0 {
		h.Set("X-Server-Timeout", strconv.Itoa(int(math.Ceil(timeout.Seconds()))))
	}
	if m.cfg.APIKey != "" {
		h.Set("X-Goog-Api-Key", m.cfg.APIKey)
	}
	return h
}

// timeout returns how long the caller waits, or 0 if forever. The API stops then, too.
func (m *Model) timeout(ctx context.Context) time.Duration {
	timeout := m.client.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		if left := time.Until(deadline); timeout == 0 || left < timeout {
			timeout = left
		}
	}
	return timeout
}
