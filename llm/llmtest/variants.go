package llmtest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

func variantCases() []testCase {
	var cases []testCase
	for _, name := range sorted(replies) {
		want := replies[name]
		for _, v := range []struct {
			name string
			run  func(t testing.TB, p *Provider, r recording, want *reply)
		}{
			{"cut", cut}, {"byte-by-byte", byteByByte}, {"slow", slow}, {"crlf", crlf},
		} {
			cases = append(cases, testCase{v.name + "/" + name, want.needs, func(t testing.TB, p *Provider) {
				v.run(t, p, p.record(t, name), &want)
			}})
		}
	}
	return append(
		cases,
		testCase{"cancel/mid-stream", nil, cancelMidStream},
		testCase{"cancel/before-answer", nil, cancelBeforeAnswer},
		testCase{"cancel/before-call", nil, cancelBeforeCall},
		testCase{"together", nil, together},
		testCase{"model", nil, asModel},
	)
}

// cut ends the body at many bytes, cleanly and by breaking the connection. What
// comes of it is the whole reply or a fault that asking again may mend.
func cut(t testing.TB, p *Provider, r recording, want *reply) {
	w := newWire(t, p)
	failed := 0
	for _, at := range offsets(len(r.body)) {
		clean := at%2 == 0
		w.answer(func(rw http.ResponseWriter, _ *http.Request) {
			r.begin(rw)
			_, _ = rw.Write(r.body[:at])
			if !clean {
				_ = http.NewResponseController(rw).Flush()
				panic(http.ErrAbortHandler)
			}
		})
		out := w.ask(t)
		if out.err == nil {
			if diff := compareParts(out.response.Parts, want.parts); diff != "" || out.response.Finish != want.finish {
				t.Errorf("cut at byte %d of %d, clean %v: it passes for complete: %s", at, len(r.body), clean, diff)
			}
			continue
		}
		failed++
		if e, ok := errors.AsType[*session.Error](out.err); !ok || !e.Retryable {
			t.Errorf("cut at byte %d of %d, clean %v: %v is not retryable", at, len(r.body), clean, out.err)
		}
		if t.Failed() {
			return
		}
	}
	if failed == 0 {
		t.Error("no cut was noticed")
	}
}

// offsets picks where to cut: everywhere in a soak, else about eighty places.
func offsets(size int) []int {
	step := max(1, size/80)
	if testshare.Soak() {
		step = 1
	}
	var at []int
	for i := 0; i < size; i += step | 1 { // odd, so that both ways of cutting come up
		at = append(at, i)
	}
	return at
}

func byteByByte(t testing.TB, p *Provider, r recording, want *reply) {
	w := newWire(t, p)
	w.answer(func(rw http.ResponseWriter, _ *http.Request) {
		r.begin(rw)
		flush := http.NewResponseController(rw)
		for i := range r.body {
			_, _ = rw.Write(r.body[i : i+1])
			_ = flush.Flush()
		}
	})
	checkReply(t, p, w.ask(t), want)
}

func slow(t testing.TB, p *Provider, r recording, want *reply) {
	w := newWire(t, p)
	w.answer(func(rw http.ResponseWriter, req *http.Request) {
		r.begin(rw)
		flush := http.NewResponseController(rw)
		for _, line := range bytes.SplitAfter(r.body, []byte("\n")) {
			_, _ = rw.Write(line)
			_ = flush.Flush()
			select {
			case <-time.After(time.Millisecond): // waits: the wire is slow, which is what is tested
			case <-req.Context().Done():
			}
		}
	})
	checkReply(t, p, w.ask(t), want)
}

func crlf(t testing.TB, p *Provider, r recording, want *reply) {
	r.body = bytes.ReplaceAll(r.body, []byte("\n"), []byte("\r\n"))
	w := newWire(t, p)
	w.answer(r.play)
	checkReply(t, p, w.ask(t), want)
}

// cancelMidStream cancels after the first delta.
func cancelMidStream(t testing.TB, p *Provider) { cancelHeldCall(t, p, p.record(t, "text"), true) }

func cancelBeforeAnswer(t testing.TB, p *Provider) { cancelHeldCall(t, p, recording{}, false) }

// cancelHeldCall cancels a call whose server goes quiet until the request has ended, so
// that only the end of its context lets the call return.
func cancelHeldCall(t testing.TB, p *Provider, r recording, answers bool) {
	t.Helper()
	w := newWire(t, p)
	arrived, gone := make(chan struct{}), make(chan struct{})
	w.answer(func(rw http.ResponseWriter, req *http.Request) {
		defer close(gone)
		if answers {
			r.begin(rw)
			end := len(r.body) * 6 / 10
			end += bytes.IndexByte(r.body[end:], '\n') + 1
			_, _ = rw.Write(r.body[:end])
			_ = http.NewResponseController(rw).Flush()
		}
		close(arrived)
		<-req.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var (
		once   sync.Once
		ended  = make(chan struct{})
		got    *llm.Response
		err    error
		stream = make(chan struct{})
	)
	go func() {
		defer close(ended)
		got, err = w.model.Generate(ctx, plainRequest(), func(llm.Delta) { once.Do(func() { close(stream) }) })
	}()
	if !answers {
		stream = arrived
	}
	p.wait(t, stream, "anything to arrive")
	cancel()
	p.wait(t, ended, "the call to return")
	p.wait(t, gone, "the server to see the request end")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
	if answers && (got == nil || len(got.Parts) == 0 || got.Parts[0].Text == "") {
		t.Errorf("what had arrived is lost: %+v", got)
	}
}

func (p *Provider) wait(t testing.TB, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(cmp.Or(p.patience, eventually.Patience)): // waits: the test of this suite has less patience
		t.Fatalf("waited in vain for %s", what)
	}
}

func cancelBeforeCall(t testing.TB, p *Provider) {
	r := p.record(t, "text")
	w := newWire(t, p)
	w.answer(r.play)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if out := ask(t, ctx, w.model, plainRequest()); !errors.Is(out.err, context.Canceled) {
		t.Errorf("got %v, want the context's error", out.err)
	}
}

// together makes several calls on one model at once, whose replies must not mix.
func together(t testing.TB, p *Provider) {
	const header = "X-Llmtest-Case"
	names := []string{"text", "tools", "text-and-tools", "length"}
	recordings := map[string]recording{}
	for _, name := range names {
		recordings[name] = p.record(t, name)
	}
	w := newWire(t, p)
	w.answer(func(rw http.ResponseWriter, r *http.Request) {
		rec := recordings[r.Header.Get(header)]
		if rec.Status == 0 {
			rw.WriteHeader(http.StatusTeapot) // the header got lost
			return
		}
		rec.play(rw, r)
	})
	outcomes := make([]outcome, 8)
	var group sync.WaitGroup
	for i := range outcomes {
		group.Go(func() {
			request := plainRequest()
			request.Settings.Headers = map[string]string{header: names[i%len(names)]}
			out := &outcomes[i]
			out.response, out.err = w.model.Generate(t.Context(), request, func(d llm.Delta) { out.deltas = append(out.deltas, d) })
		})
	}
	group.Wait()
	for i := range outcomes {
		want := replies[names[i%len(names)]]
		checkReply(t, p, outcomes[i], &want)
	}
}

// asModel runs the part of the suite that any model can run.
func asModel(t testing.TB, p *Provider) {
	r := p.record(t, "text-and-tools")
	w := newWire(t, p)
	w.answer(r.play)
	for _, c := range modelCases() {
		c.run(t, func() llm.Model { return w.model })
	}
}
