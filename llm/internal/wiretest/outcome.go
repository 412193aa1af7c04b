package wiretest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// outcome is what came of a call, in a form that can be read and compared.
type outcome struct {
	Deltas   []string `json:"deltas,omitempty"`
	Response *reply   `json:"response,omitempty"`
	Error    *failure `json:"error,omitempty"`
}

type reply struct {
	Parts  []string         `json:"parts"`
	Finish llm.FinishReason `json:"finish"`
	Usage  session.Usage    `json:"usage"`
	Model  string           `json:"model"`
}

type failure struct {
	Code      session.Code `json:"code,omitempty"`
	Retryable bool         `json:"retryable"`
	Status    int          `json:"status,omitempty"`
	After     string       `json:"after,omitempty"`
	Message   string       `json:"message"`
}

// Outcome fails the test unless what came of its call is what was recorded. The calls of a test are told apart by their
// order, so they must not be concurrent.
func (r *Recording) Outcome(t testing.TB, response *llm.Response, deltas []llm.Delta, err error) {
	t.Helper()
	defer r.mu.Unlock()
	if !r.lock(t) {
		return
	}
	if r.count[t.Name()]++; r.count[t.Name()] == 1 {
		t.Cleanup(func() { // the test may run again
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.count, t.Name())
		})
	}
	name := fmt.Sprintf("%s %d", t.Name(), r.count[t.Name()])
	got := describe(response, deltas, err)
	if *r.update {
		r.outcomes[name] = got
		return
	}
	want, ok := r.outcomes[name]
	if !ok {
		t.Errorf("the outcome is not recorded (-update adds it): %s", got.text())
		return
	}
	if got.text() != want.text() {
		t.Errorf("the outcome is\n%s\nwant\n%s", got.text(), want.text())
	}
}

func (o outcome) text() string {
	raw, err := encodeOutcomes(map[string]outcome{"outcome": o})
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// encodeOutcomes returns outcomes as they are stored.
func encodeOutcomes(of map[string]outcome) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	err := enc.Encode(of)
	return b.Bytes(), err
}

func describe(response *llm.Response, deltas []llm.Delta, err error) outcome {
	var out outcome
	for _, d := range deltas {
		out.Deltas = append(out.Deltas, strings.TrimSpace(fmt.Sprintf("%s %d %q %s", d.Kind, d.Index, short(d.Text), d.Tool)))
	}
	if response != nil {
		out.Response = &reply{Parts: []string{}, Finish: response.Finish, Usage: response.Usage, Model: response.Model}
		for i := range response.Parts {
			out.Response.Parts = append(out.Response.Parts, describePart(&response.Parts[i]))
		}
	}
	if err == nil {
		return out
	}
	out.Error = &failure{Message: address.ReplaceAllString(err.Error(), "server")}
	if e, ok := errors.AsType[*session.Error](err); ok {
		out.Error.Code, out.Error.Retryable, out.Error.Status = e.Code, e.Retryable, e.StatusCode
	}
	if after, ok := errors.AsType[*llm.RetryAfterError](err); ok {
		out.Error.After = after.After.String()
	}
	return out
}

// address is where a test's server listens, which differs from run to run.
var address = regexp.MustCompile(`127\.0\.0\.1:\d+`)

func describePart(p *session.Part) string {
	var b strings.Builder
	b.WriteString(string(p.Kind))
	for _, field := range []struct{ name, value string }{
		{"text", p.Text},
		{"tool", p.Tool},
		{"id", p.ProviderCallID},
		{"input", string(p.Input)},
		{"url", p.URL},
		{"media", p.MediaType},
		{"provider", string(p.Provider)},
	} {
		if field.value != "" {
			fmt.Fprintf(&b, " %s=%q", field.name, short(field.value))
		}
	}
	return b.String()
}

// short returns a long text by its length and its sum.
func short(text string) string {
	if len(text) <= 1000 {
		return text
	}
	return fmt.Sprintf("%d bytes, %x", len(text), sha256.Sum256([]byte(text)))
}
