package openai

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/helixagents/helix/llm/internal/provider"
	"github.com/helixagents/helix/session"
)

// exchange is one request and what comes of it. The SDK sends the request and parts
// the stream into events. It does not read them: servers that speak the same wire
// differ in what the SDK's types insist on.
type exchange struct {
	client  *sdk.Client
	path    string
	params  any
	reader  reader
	secrets provider.Secrets
}

// reader makes a reply of what an API answers.
type reader interface {
	// event reads an event of a stream, whole an answer that is not a stream. Their
	// errors are a *session.Error, or one of decoding.
	event(data []byte) error
	whole(body []byte) error
	// complete reports whether the reply has come to its end, ended whether nothing
	// more is to come.
	complete() bool
	ended() bool
}

func (x *exchange) run(ctx context.Context, options []option.RequestOption) error {
	var answer *http.Response
	options = append(options, option.WithJSONSet("stream", true), option.WithHeader("Accept", "text/event-stream"))
	err := x.client.Post(ctx, x.path, x.params, &answer, options...)
	if answer != nil {
		defer answer.Body.Close()
		if answer.StatusCode >= http.StatusBadRequest {
			return x.refused(answer)
		}
	}
	if err == nil {
		err = x.read(answer)
	}
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*session.Error](err); ok {
		return e
	}
	return provider.Broken(name, err, x.secrets)
}

// refused classifies an answer that is an error. The SDK has read its body, and
// left it to be read again; of one that broke off there is nothing.
func (x *exchange) refused(answer *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxErrorBody))
	if err != nil {
		body = nil
	}
	f := failure(body)
	f.Status, f.Header, f.Body = answer.StatusCode, answer.Header, string(body)
	f.After = after(&f)
	return f.Error(x.secrets)
}

// maxErrorBody is more than any error needs.
const maxErrorBody = 1 << 20

func (x *exchange) read(answer *http.Response) error {
	body := bufio.NewReader(answer.Body)
	if isObject(body) {
		whole, err := io.ReadAll(body)
		if err != nil {
			return err
		}
		return x.reader.whole(whole)
	}
	answer.Body = struct {
		io.Reader
		io.Closer
	}{body, answer.Body}
	events := ssestream.NewDecoder(answer)
	for !x.reader.ended() && events.Next() {
		if err := x.reader.event(events.Event().Data); err != nil {
			return err
		}
	}
	return events.Err()
}

// isObject reports whether a body is JSON instead of a stream: some servers have no
// other answer, or give one for errors. What they call it does not always help.
func isObject(body *bufio.Reader) bool {
	for {
		next, err := body.Peek(1)
		if err != nil {
			return false
		}
		switch next[0] {
		case ' ', '\t', '\r', '\n':
			_, _ = body.Discard(1)
		default:
			return next[0] == '{' || next[0] == '['
		}
	}
}
