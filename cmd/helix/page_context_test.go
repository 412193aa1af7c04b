package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/browsertest"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
)

// TestPageContext compacts and clears conversations on the page; testdata/context.mjs says
// how.
func TestPageContext(t *testing.T) {
	t.Parallel()
	testshare.SkipUnless(t, 3, 4)
	release := make(chan struct{})
	open := sync.OnceFunc(func() { close(release) })
	t.Cleanup(open)
	browsertest.New(t, "context.mjs", "HELIX_URL="+servePage(t,
		forgetful("talker", func(ctx context.Context) scripted.Step {
			select { // until the page has shown that it waits
			case <-release:
			case <-ctx.Done():
			}
			return scripted.Text("The user counts.")
		}),
		forgetful("quick", func(context.Context) scripted.Step { return scripted.Text("The user counts.") }),
		forgetful("failing", func(context.Context) scripted.Step {
			return scripted.Fail(session.CodeProvider, false, "no summary today")
		}),
	)).Run(open)
}

// forgetful is an agent that says how many messages it was sent, and whose conversation is
// summarised before its third reply.
func forgetful(name string, summary func(ctx context.Context) scripted.Step) *helix.Agent {
	const prompt = "SUM UP "
	filler := strings.Repeat(" and so on", 40)
	return &helix.Agent{
		Name: name,
		Context: &helix.ContextPolicy{
			TriggerMessages: 5, KeepMessages: 1, Prompt: prompt + "{messages}",
			Model: modelFunc(func(ctx context.Context, request *llm.Request) (scripted.Step, error) {
				if len(request.Messages) != 1 || !strings.HasPrefix(request.Messages[0].Content(), prompt) {
					return scripted.Step{}, errors.New("this is not a request for a summary")
				}
				return summary(ctx), nil
			}),
		},
		Model: modelFunc(func(_ context.Context, request *llm.Request) (scripted.Step, error) {
			kinds := ""
			for i := range request.Messages {
				if what := request.Messages[i].Compaction(); what != nil {
					kinds += string(what.Kind) + " "
				} else {
					kinds += string(request.Messages[i].Role) + " "
				}
			}
			return scripted.Text("Sent: " + strings.TrimSpace(kinds) + "." + filler), nil
		}),
	}
}

// modelFunc is a model whose reply is computed from the request.
type modelFunc func(ctx context.Context, request *llm.Request) (scripted.Step, error)

func (f modelFunc) Generate(ctx context.Context, request *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	step, err := f(ctx, request)
	if err != nil {
		return nil, err
	}
	return scripted.New(step).Generate(ctx, request, emit)
}

// TestPageRetries has a model fail a few times; testdata/retries.mjs says what the page
// shows.
func TestPageRetries(t *testing.T) {
	t.Parallel()
	testshare.SkipUnless(t, 1, 4)
	var works atomic.Bool
	agent := &helix.Agent{Name: "weary", Model: modelFunc(func(context.Context, *llm.Request) (scripted.Step, error) {
		if works.Load() {
			return scripted.Text("At last."), nil
		}
		return scripted.Fail(session.CodeProvider, true, "overloaded"), nil
	})}
	browsertest.New(t, "retries.mjs", "HELIX_URL="+servePage(t, agent)).Run(func() { works.Store(true) })
}
