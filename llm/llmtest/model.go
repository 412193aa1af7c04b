package llmtest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// RunModel tests any model against what [llm.Model] promises. The model may reply
// anything, and is called several times.
func RunModel(t *testing.T, open func() llm.Model) {
	for _, c := range modelCases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, open)
		})
	}
}

type modelCase struct {
	name string
	run  func(t testing.TB, open func() llm.Model)
}

func modelCases() []modelCase {
	return []modelCase{
		{"reply", modelReply},
		{"request-kept", modelKeepsRequest},
		{"cancelled", modelCancelled},
		{"cancelled-mid-stream", modelCancelledMidStream},
		{"together", modelTogether},
	}
}

// modelReply checks that a reply is complete, and that its deltas join to it.
func modelReply(t testing.TB, open func() llm.Model) {
	checkAny(t, ask(t, t.Context(), open(), plainRequest()))
}

// checkAny checks a reply of which nothing is known.
func checkAny(t testing.TB, out outcome) {
	t.Helper()
	if out.err != nil {
		checkClassified(t, out.err)
		return
	}
	if out.response == nil {
		t.Fatal("there is neither a reply nor an error")
	}
	if err := DeltasMatch(out.deltas, out.response.Parts); err != nil {
		t.Error(err)
	}
	calls := 0
	for i := range out.response.Parts {
		part := &out.response.Parts[i]
		switch part.Kind {
		case session.PartToolCall:
			calls++
			if part.Tool == "" || part.CallID != "" {
				t.Errorf("call %d is of %q and has the call id %q, which is the engine's to give", calls, part.Tool, part.CallID)
			}
		case session.PartText, session.PartReasoning, session.PartFile:
		default:
			t.Errorf("part %d is a %s", i, part.Kind)
		}
	}
	switch finish := out.response.Finish; finish {
	case llm.FinishStop, llm.FinishLength, llm.FinishContentFilter, llm.FinishOther:
		if finish == llm.FinishStop && calls > 0 {
			t.Errorf("it finished with %q, but there are %d calls", finish, calls)
		}
	case llm.FinishToolCalls:
		if calls == 0 {
			t.Error("it finished for calls that are not there")
		}
	default:
		t.Errorf("it finished with %q, which is unknown", finish)
	}
}

func checkClassified(t testing.TB, err error) {
	t.Helper()
	e, ok := errors.AsType[*session.Error](err)
	if !ok || !strings.HasPrefix(string(e.Code), "provider_") {
		t.Errorf("the error %v is not a provider's", err)
	}
}

// modelKeepsRequest checks that the request, which is shared, is not changed.
func modelKeepsRequest(t testing.TB, open func() llm.Model) {
	request, same := richRequest(session.Part{}), richRequest(session.Part{})
	ask(t, t.Context(), open(), request)
	if got, want := encode(t, request), encode(t, same); got != want {
		t.Errorf("the request was changed from\n%s to\n%s", want, got)
	}
}

func encode(t testing.TB, v any) string {
	t.Helper()
	raw, err := session.Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// modelCancelled checks that a call whose context has ended returns its error.
func modelCancelled(t testing.TB, open func() llm.Model) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if out := ask(t, ctx, open(), plainRequest()); !errors.Is(out.err, context.Canceled) {
		t.Errorf("got %v, want the context's error", out.err)
	}
}

// modelCancelledMidStream cancels at the first delta. A reply that is complete by
// then may be given.
func modelCancelledMidStream(t testing.TB, open func() llm.Model) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	var err error
	go func() {
		defer close(done)
		_, err = open().Generate(ctx, plainRequest(), func(llm.Delta) { cancel() })
	}()
	eventually.Receive(t, "the call returns", done)
	if err != nil && !errors.Is(err, context.Canceled) {
		checkClassified(t, err)
	}
}

// modelTogether calls one model from several goroutines.
func modelTogether(t testing.TB, open func() llm.Model) {
	m := open()
	outcomes := make([]outcome, 4)
	var group sync.WaitGroup
	for i := range outcomes {
		group.Go(func() {
			out := &outcomes[i]
			out.response, out.err = m.Generate(t.Context(), plainRequest(), func(d llm.Delta) { out.deltas = append(out.deltas, d) })
		})
	}
	group.Wait()
	for i := range outcomes {
		checkAny(t, outcomes[i])
	}
}
