package gemini

import (
	"cmp"
	"context"
	"io"
	"net/http"

	"google.golang.org/genai"

	"github.com/helixagents/helix/llm/internal/provider"
)

// send makes the request through the SDK and has the answer read by r. The SDK's
// own reader is left out: it turns all numbers into floats, loses the headers of a
// failure, takes a comment for one, and writes to the process's log.
func (m *Model) send(ctx context.Context, body map[string]any, headers map[string]string, r *reader) error {
	x := &exchange{reader: r}
	stream := m.client.Models.GenerateContentStream(
		context.WithValue(ctx, exchangeKey{}, x), m.cfg.Model, nil,
		&genai.GenerateContentConfig{
			AutomaticContinuation: new(bool), // it asks again by itself
			HTTPOptions: &genai.HTTPOptions{
				Headers:               header(headers),
				ExtrasRequestProvider: func(map[string]any) map[string]any { return body },
			},
		},
	)
	for _, err := range stream {
		if err != nil {
			return provider.Broken(name, err, r.secrets)
		}
	}
	return x.err
}

// exchange is a request on its way.
type exchange struct {
	reader *reader
	err    error
}

type exchangeKey struct{}

// tap is a transport that keeps answers from the SDK. What the SDK gets is a good
// answer without content; reading it is what has the true one read.
type tap struct {
	base    http.RoundTripper
	keyless bool
}

// RoundTrip implements [http.RoundTripper].
func (t *tap) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.keyless {
		r = r.Clone(r.Context())
		r.Header.Del("X-Goog-Api-Key")
	}
	answer, err := cmp.Or(t.base, http.DefaultTransport).RoundTrip(r)
	if err != nil {
		return nil, err
	}
	x, ok := r.Context().Value(exchangeKey{}).(*exchange)
	if !ok {
		return answer, nil
	}
	shown := *answer
	shown.StatusCode = http.StatusOK
	shown.Body = &tapped{answer, x}
	return &shown, nil
}

type tapped struct {
	answer *http.Response
	x      *exchange
}

// Read reads the whole true answer and then has nothing to say.
func (t *tapped) Read([]byte) (int, error) {
	t.x.err = t.x.reader.readAll(t.answer)
	return 0, io.EOF
}

// Close ends the request.
func (t *tapped) Close() error { return t.answer.Body.Close() }
