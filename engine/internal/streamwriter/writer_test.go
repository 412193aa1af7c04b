package streamwriter

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What fits into a chunk is kept; of a larger one the content is omitted, and what
// says which call or error it is about stays.
func TestFit(t *testing.T) {
	t.Parallel()
	const limit = 16 << 10
	large := strings.Repeat("x", limit)
	raw, _ := json.Marshal(large)
	for name, c := range map[string]struct {
		chunk   stream.Chunk
		omitted bool
	}{
		"a small result":                    {stream.Chunk{Kind: stream.ToolEnd, Result: json.RawMessage(`"ok"`)}, false},
		"a result near the limit":           {stream.Chunk{Kind: stream.ToolEnd, Result: json.RawMessage(`"` + large[:limit/2] + `"`)}, false},
		"a large result":                    {stream.Chunk{Kind: stream.ToolEnd, CallID: "c", Tool: "t", Result: raw}, true},
		"large arguments":                   {stream.Chunk{Kind: stream.ToolStart, CallID: "c", Tool: "t", Arguments: raw}, true},
		"large data":                        {stream.Chunk{Kind: stream.Custom, Name: "n", Data: raw}, true},
		"large messages":                    {stream.Chunk{Kind: stream.InputReceived, Messages: []session.Message{session.UserText(large)}}, true},
		"a large patch":                     {stream.Chunk{Kind: stream.StatePatch, Patches: []session.Patch{{Path: "/a", Value: raw}}}, true},
		"a long error":                      {stream.Chunk{Kind: stream.Failure, Error: (&session.Error{Code: "c"}).WithMessage("%s", large)}, true},
		"text, which the stream may split":  {stream.Chunk{Kind: stream.TextDelta, Delta: large}, false},
		"text that escaping makes too long": {stream.Chunk{Kind: stream.Custom, Name: strings.Repeat("\x01", limit/3)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := c.chunk
			Fit(&got, limit)
			if got.Omitted != c.omitted {
				t.Errorf("omitted is %v, want %v", got.Omitted, c.omitted)
			}
			if got.Kind != c.chunk.Kind || got.CallID != c.chunk.CallID || (got.Error == nil) != (c.chunk.Error == nil) {
				t.Errorf("the chunk has become %+v", got)
			}
			encoded, err := got.Encode()
			if err != nil || (got.Delta == "" && len(encoded) > 2*limit) {
				t.Errorf("it has %d bytes, and may have %d: %v", len(encoded), limit, err)
			}
		})
	}
}

func TestTruncate(t *testing.T) {
	t.Parallel()
	if got := Truncate("short"); got != "short" {
		t.Errorf("a short text has become %q", got)
	}
	got := Truncate(strings.Repeat("ä", 4<<10)) // a rune has two bytes
	if !utf8.ValidString(got) || len(got) > 4<<10+3 || !strings.HasSuffix(got, "…") {
		t.Errorf("a long text has become one of %d bytes", len(got))
	}
}

// recorder is a stream that keeps batches, and fails as often as it is told to.
type recorder struct {
	stream.Manager
	mu      sync.Mutex
	batches []stream.Batch
	fails   []error // of the next appends
}

func (r *recorder) Limits() stream.Limits { return stream.Limits{MaxChunk: 64 << 10} }

func (r *recorder) Append(_ context.Context, _ string, b stream.Batch) (stream.Append, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.fails) > 0 {
		err := r.fails[0]
		r.fails = r.fails[1:]
		if err != nil {
			return nil, err
		}
	}
	r.batches = append(r.batches, stream.Batch{Producer: b.Producer, First: b.First, Chunks: append([]stream.Chunk(nil), b.Chunks...)})
	last := int64(0)
	for _, b := range r.batches {
		last += int64(len(b.Chunks))
	}
	return landed(last), nil
}

type landed int64

func (l landed) Wait(context.Context) (int64, error) { return int64(l), nil }

func newWriter(to stream.Manager, flushEvery time.Duration) *Writer {
	return New(Config{
		Streams: to, ID: "s", Producer: stream.Producer{Session: "s", Epoch: 1}, Bytes: new(atomic.Int64),
		FlushEvery: flushEvery, Log: slog.New(slog.DiscardHandler),
	})
}

func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out strings.Builder
	for _, b := range r.batches {
		out.WriteString("[")
		for i := range b.Chunks {
			out.WriteString(string(b.Chunks[i].Kind) + ":" + b.Chunks[i].Delta + " ")
		}
		out.WriteString("]")
	}
	return out.String()
}

func delta(text string) stream.Chunk {
	return stream.Chunk{Kind: stream.TextDelta, Step: 1, Delta: text}
}

func TestWriterJoinsDeltas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to := &recorder{}
		w := newWriter(to, 25*time.Millisecond)
		w.Emit(delta("a"))
		w.Emit(delta("b"))
		w.Emit(stream.Chunk{Kind: stream.Thinking, Step: 1, Delta: "c"}, stream.Chunk{Kind: stream.TextDelta, Step: 2, Delta: "d"})
		if got := to.text(); got != "" {
			t.Errorf("not held back: %s", got)
		}
		time.Sleep(25 * time.Millisecond) // of the bubble's clock
		synctest.Wait()
		if got := to.text(); got != "[text_delta:ab thinking:c text_delta:d ]" {
			t.Errorf("the stream has %s", got)
		}
		if err := w.Flush(t.Context()); err != nil || w.Sequence() != 3 {
			t.Errorf("the last sequence is %d, %v", w.Sequence(), err)
		}
		w.Discard()
	})
}

// The first delta of each model call is sent soon, with what was emitted before it;
// later ones are held back. A commit takes what is held back along, and then nothing
// is left to send.
func TestWriterHurriesOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to := &recorder{}
		w := newWriter(to, time.Second)
		expect := func(after time.Duration, want string) {
			t.Helper()
			time.Sleep(after) // of the bubble's clock
			synctest.Wait()
			if got := to.text(); got != want {
				t.Errorf("the stream has %s, want %s", got, want)
			}
		}
		const first = "[step_started: text_delta:ab ]"
		w.Emit(stream.Chunk{Kind: stream.StepStarted})
		expect(900*time.Millisecond, "")
		w.Emit(delta("a"))
		w.Emit(delta("b"))
		expect(time.Second/hurry, first)
		w.Emit(delta("c"))
		expect(999*time.Millisecond, first)
		expect(time.Millisecond, first+"[text_delta:c ]")
		w.Emit(stream.Chunk{Kind: stream.StepStarted}, delta("d"))
		carried, err := w.Carry(t.Context(), func(b stream.Batch) (int64, error) { return b.First, nil })
		if !carried || err != nil {
			t.Errorf("carried: %v, %v", carried, err)
		}
		w.Emit(delta("e"))
		expect(999*time.Millisecond, first+"[text_delta:c ]")
		w.Discard()
	})
}

// A batch that could not be written is sent again, with the same numbers, before
// what was emitted after it.
func TestWriterSendsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to := &recorder{fails: []error{session.ErrUnavailable, session.ErrUnavailable}}
		w := newWriter(to, time.Hour)
		w.Emit(stream.Chunk{Kind: stream.RunStarted})
		if err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.Emit(delta("x"))
		carried, err := w.Carry(t.Context(), func(b stream.Batch) (int64, error) {
			if b.First != 2 || len(b.Chunks) != 1 {
				t.Errorf("the commit carries %+v", b)
			}
			return 0, session.ErrUnavailable
		})
		if !carried || !errors.Is(err, session.ErrUnavailable) {
			t.Errorf("carried: %v, %v", carried, err)
		}
		if err := w.Flush(t.Context()); err != nil || to.text() != "[run_started: ][text_delta:x ]" || to.batches[1].First != 2 {
			t.Errorf("the stream has %s, %v", to.text(), err)
		}
		w.Discard()
	})
}

// A batch that was sent early because it is large, and could not be written, is sent
// again although nothing follows it.
func TestWriterSendsLargeBatchAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to := &recorder{fails: []error{session.ErrUnavailable}}
		w := newWriter(to, time.Second)
		w.Emit(stream.Chunk{Kind: stream.ToolStart, Arguments: json.RawMessage(`"` + strings.Repeat("x", FlushBytes) + `"`)})
		time.Sleep(time.Minute) // of the bubble's clock
		synctest.Wait()
		if got := to.text(); got != "[tool_start: ]" {
			t.Errorf("the stream has %s", got)
		}
		w.Discard()
	})
}

// hanging is a stream whose appends hang until their context ends, while it is told to.
type hanging struct {
	recorder
	hangs  atomic.Bool
	begins chan struct{} // receives when an append begins to hang
}

func (h *hanging) Append(ctx context.Context, id string, b stream.Batch) (stream.Append, error) {
	if h.hangs.Load() {
		h.begins <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return h.recorder.Append(ctx, id, b)
}

// What the writer sends by itself to a stream that hangs ends when the turn does, and after a while; it is sent again,
// unless the turn was lost.
func TestWriterOfStreamThatHangs(t *testing.T) {
	t.Parallel()
	large := stream.Chunk{Kind: stream.ToolStart, Arguments: json.RawMessage(`"` + strings.Repeat("x", FlushBytes) + `"`)}
	begin := map[string]func(w *Writer){
		"a large chunk": func(w *Writer) { w.Emit(large) },
		"a timer":       func(w *Writer) { w.Emit(delta("x")) },
	}
	end := map[string]func(w *Writer){
		"interrupted": (*Writer).Interrupt,
		"discarded":   (*Writer).Discard,
		"waited for":  func(*Writer) { time.Sleep(flushTimeout) }, // waits: in fake time
	}
	for started, begin := range begin {
		for ended, end := range end {
			t.Run(started+"/"+ended, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					to := &hanging{begins: make(chan struct{}, 1)}
					to.hangs.Store(true)
					w := newWriter(to, time.Second)
					emitted := make(chan struct{})
					go func() {
						defer close(emitted)
						begin(w)
					}()
					<-to.begins
					to.hangs.Store(false)
					end(w)
					<-emitted
					err, want := w.Flush(t.Context()), error(nil)
					if ended == "discarded" {
						want = session.ErrStale
					}
					if !errors.Is(err, want) || (want == nil) != (len(to.batches) == 1) {
						t.Errorf("the stream has %q, %v", to.text(), err)
					}
					w.Discard()
				})
			})
		}
	}
}

// What a stream refuses for good is dropped; a stale producer may write no more.
func TestWriterErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ fails, want error }{
		"refused": {session.ErrTooLarge, nil},
		"stale":   {session.ErrStale, session.ErrStale},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := &recorder{fails: []error{c.fails}}
			w := newWriter(to, time.Hour)
			w.Emit(stream.Chunk{Kind: stream.RunStarted})
			err := w.Flush(t.Context())
			w.Emit(delta("x"))
			again := w.Flush(t.Context())
			if !errors.Is(err, c.want) || !errors.Is(again, c.want) || (c.want == nil) != (len(to.batches) == 1) {
				t.Errorf("%v, then %v; the stream has %s", err, again, to.text())
			}
			w.Discard()
		})
	}
}
