package gemini

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/helixagents/helix/llm/internal/provider"
	"github.com/helixagents/helix/session"
)

// apiError is a failure as the API tells it.
type apiError struct {
	Code    int      `json:"code"`
	Message string   `json:"message"`
	Status  string   `json:"status"`
	Details []detail `json:"details"`
}

// detail has the members of the kinds of details that say something of use:
// ErrorInfo, RetryInfo and QuotaFailure.
type detail struct {
	Reason     string      `json:"reason"`
	RetryDelay string      `json:"retryDelay"`
	Violations []violation `json:"violations"`
}

type violation struct {
	QuotaID string `json:"quotaId"`
}

// failure is for [provider.Failure] what the error says.
func (e *apiError) failure() *provider.Failure {
	f := &provider.Failure{Provider: name, Status: e.Code, Type: e.Status, Message: e.Message}
	for _, d := range e.Details {
		if d.Reason != "" {
			f.Code = d.Reason
		}
		if after, err := time.ParseDuration(d.RetryDelay); err == nil {
			f.After = after
		}
		for _, v := range d.Violations {
			if strings.Contains(v.QuotaID, "PerDay") {
				f.Code = "insufficient_quota" // the delay that comes with it is that of the minute
			}
		}
	}
	if f.Code == "insufficient_quota" {
		f.After = 0
	}
	return f
}

// maxFailure bounds what is read of an answer that is no reply.
const maxFailure = 1 << 20

// refusal classifies an answer with another status than 200.
func refusal(answer *http.Response, secrets provider.Secrets) *session.Error {
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxFailure))
	if err != nil {
		body = nil // the status says enough
	}
	f := &provider.Failure{Provider: name}
	var doc struct {
		Error *apiError `json:"error"`
	}
	body = bytes.Trim(bytes.TrimSpace(body), "[]") // the API answers with a list where a stream was asked for
	if json.Unmarshal(body, &doc) == nil && doc.Error != nil {
		f = doc.Error.failure()
	}
	f.Status, f.Header, f.Body = answer.StatusCode, answer.Header, string(body)
	return f.Error(secrets)
}
