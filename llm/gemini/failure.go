package gemini

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/helixagents/helix/llm/internal/provider"
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

// refusal reads the body of an answer that refuses a request.
func refusal(_ http.Header, body []byte) provider.Failure {
	var doc struct {
		Error *apiError `json:"error"`
	}
	body = bytes.Trim(bytes.TrimSpace(body), "[]") // the API answers with a list where a stream was asked for
	if json.Unmarshal(body, &doc) != nil || doc.Error == nil {
		return provider.Failure{}
	}
	return *doc.Error.failure()
}
