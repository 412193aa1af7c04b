package openai

import (
	"bufio"
	"context"
	"errors"
	"io"

	"github.com/helixagents/helix/llm/internal/provider"
	"github.com/helixagents/helix/session"
)

// reader builds a reply from what an API answers.
type reader interface {
	// event reads an event of a stream, whole an answer that is not a stream. Their
	// errors are a *session.Error, or one of decoding.
	event(data []byte) error
	whole(body []byte) error
	// complete reports whether the reply is complete, ended whether no more events follow.
	complete() bool
	ended() bool
}

// exchange sends a request and has the answer read. Its errors are classified.
func exchange(ctx context.Context, call *provider.Call, reply *provider.Reply, r reader) error {
	answer, err := call.Post(ctx)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	err = read(answer.Body, reply, r)
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*session.Error](err); ok {
		return e
	}
	return provider.Broken(name, err, call.Secrets)
}

func read(answer io.Reader, reply *provider.Reply, r reader) error {
	body := bufio.NewReader(answer)
	if isObject(body) {
		whole, err := io.ReadAll(body)
		if err != nil {
			return err
		}
		if err := provider.CheckValues(whole); err != nil {
			return err
		}
		return r.whole(whole)
	}
	for event, err := range provider.Events(body) {
		if err != nil {
			return err
		}
		if len(event.Data) == 0 {
			continue
		}
		err := r.event(event.Data)
		if err == nil {
			err = reply.CheckSize()
		}
		if err != nil || r.ended() {
			return err
		}
	}
	return nil
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
