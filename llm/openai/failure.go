package openai

import (
	"bytes"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/helixagents/helix/llm/internal/provider"
)

// fault is an error in the format of OpenAI and compatible servers.
type fault struct {
	Type    string          `json:"type"`
	Code    json.RawMessage `json:"code"` // a name, or a status with some gateways
	Message string          `json:"message"`
	Detail  string          `json:"detail"`
}

// failure reads the error of a body or an event: an object, mostly within a member
// error, or a mere text there.
func failure(raw []byte) provider.Failure {
	raw = bytes.TrimSpace(raw)
	if list := []json.RawMessage(nil); json.Unmarshal(raw, &list) == nil && len(list) > 0 {
		raw = list[0]
	}
	var doc struct {
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(raw, &doc) == nil && len(doc.Error) > 0 && string(doc.Error) != "null" {
		raw = doc.Error
	}
	f := provider.Failure{Provider: name}
	if json.Unmarshal(raw, &f.Message) == nil {
		return f
	}
	var e fault
	_ = json.Unmarshal(raw, &e) // what fits is taken
	f.Type, f.Message = e.Type, e.Message
	if f.Message == "" {
		f.Message = e.Detail
	}
	if json.Unmarshal(e.Code, &f.Code) != nil {
		var status int
		if json.Unmarshal(e.Code, &status) == nil && status >= 400 && status < 600 {
			f.Status = status
		}
	}
	if f.Type == "error" { // the type of the event, not of what went wrong
		f.Type = ""
	}
	return f
}

// refusal reads the body of an answer that refuses a request.
func refusal(header http.Header, body []byte) provider.Failure {
	f := failure(body)
	f.Header = header
	f.After = after(&f)
	return f
}

// inStream returns the failure of an error event in the middle of a stream.
func inStream(raw []byte, secrets provider.Secrets) error {
	f := failure(raw)
	f.After = after(&f)
	return f.Error(secrets)
}

var waitWords = regexp.MustCompile(`try again in ((?:[0-9.]+(?:ms|s|m|h))+)`)

// after returns how long the message of a rate limit asks to wait, if no header says so.
func after(f *provider.Failure) time.Duration {
	if provider.RetryAfter(f.Header, time.Now()) > 0 {
		return 0
	}
	found := waitWords.FindStringSubmatch(strings.ToLower(f.Message))
	if found == nil {
		return 0
	}
	wait, err := time.ParseDuration(found[1])
	if err != nil {
		return 0
	}
	return wait
}
