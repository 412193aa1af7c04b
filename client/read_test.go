package client_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/client"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// cutter is a connection that breaks after some bytes of a stream: without a word,
// or as if all were well.
type cutter struct {
	http.ResponseWriter
	left  int
	clean bool
}

func (c *cutter) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p[:min(len(p), c.left)])
	if c.left -= n; c.left <= 0 && err == nil {
		_ = http.NewResponseController(c.ResponseWriter).Flush()
		if !c.clean {
			panic(http.ErrAbortHandler)
		}
		return n, io.ErrClosedPipe
	}
	return n, err
}

func (c *cutter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// dice are for several goroutines.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func newDice(seed uint64) *dice { return &dice{rng: rand.New(rand.NewPCG(seed, 7))} }

func (d *dice) throw(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(n)
}

// TestReadSurvivesDrops cuts every connection at a random byte, or refuses it, and
// wants each item once, in order, from any position.
func TestReadSurvivesDrops(t *testing.T) {
	t.Parallel()
	s := serve(t, nil, echo())
	run, err := s.Start(t.Context(), wire.Start{SessionID: "s1", AgentType: "echo", Message: wire.Text("hello, and how are you?")})
	if err != nil {
		t.Fatal(err)
	}
	all(t, s.Client, "s1", 0) // until the run has ended: who reads while it runs is also told when it has caught up
	want := all(t, s.Client, "s1", 0)
	for seed := range uint64(30) {
		rng := newDice(seed)
		var asked atomic.Int64
		s.through(func(w http.ResponseWriter, r *http.Request) {
			if asked.Add(1)%3 == 0 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			s.handler.ServeHTTP(&cutter{w, 300 + rng.throw(700), rng.throw(2) == 0}, r)
		})
		from := int64(rng.throw(len(want) / 2))
		got := all(t, s.Client, "s1", from)
		checkItems(t, seed, got, want, from)
		scoped := 0
		for item, err := range s.ReadRun(t.Context(), "s1", run.RunID, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if item.Chunk != nil {
				scoped++
			}
		}
		if scoped != chunks(want) {
			t.Errorf("seed %d: the run has %d chunks, want %d", seed, scoped, chunks(want))
		}
		if asked.Load() < 3 {
			t.Errorf("seed %d: nothing was cut", seed)
		}
	}
}

func chunks(items []stream.Item) (n int) {
	for _, item := range items {
		if item.Chunk != nil {
			n++
		}
	}
	return n
}

// checkItems compares what was read with the whole stream, after a sequence.
func checkItems(t *testing.T, seed uint64, got, want []stream.Item, from int64) {
	t.Helper()
	var rest []stream.Item
	for _, item := range want {
		if item.Chunk == nil || item.Sequence > from {
			rest = append(rest, item)
		}
	}
	if len(got) != len(rest) {
		t.Fatalf("seed %d: %d items after %d, want %d", seed, len(got), from, len(rest))
	}
	for i := range rest {
		if got, want := encode(t, got[i]), encode(t, rest[i]); got != want {
			t.Fatalf("seed %d: item %d is %s, want %s", seed, i, got, want)
		}
	}
}

func encode(t *testing.T, item stream.Item) string {
	t.Helper()
	raw, err := session.Encode(item)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestReadFollows reads a run while it works, with connections that break.
func TestReadFollows(t *testing.T) {
	t.Parallel()
	s := serve(t, nil, echo())
	rng := newDice(1)
	s.through(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/sse") {
			w = &cutter{w, 500 + rng.throw(4000), false}
		}
		s.handler.ServeHTTP(w, r)
	})
	for i := range 10 {
		run, err := s.Start(t.Context(), wire.Start{SessionID: "s1", AgentType: "echo", Message: wire.Text(strings.Repeat("x", 100))})
		if err != nil {
			t.Fatal(err)
		}
		last := run.StartSequence
		var said strings.Builder
		for item, err := range s.ReadRun(t.Context(), "s1", run.RunID, last) {
			if err != nil {
				t.Fatal(err)
			}
			if item.Chunk == nil {
				continue
			}
			if item.Sequence != last+1 {
				t.Fatalf("run %d: sequence %d after %d", i, item.Sequence, last)
			}
			last = item.Sequence
			if item.Chunk.Kind == stream.TextDelta {
				said.WriteString(item.Chunk.Delta)
			}
		}
		if want := "You said: " + strings.Repeat("x", 100); said.String() != want {
			t.Errorf("run %d: read %q", i, said.String())
		}
	}
}

// TestReadOutlivesServer reads a run while its server is replaced by another.
func TestReadOutlivesServer(t *testing.T) {
	t.Parallel()
	going := make(chan struct{})
	slow := &helix.Agent{Name: "slow", Model: scripted.New(scripted.Reply(scripted.Say("one, "), scripted.Until(going), scripted.Say("two")))}
	s := serve(t, nil, slow)
	run, err := s.Start(t.Context(), wire.Start{SessionID: "s1", AgentType: "slow", Message: wire.Text("count")})
	if err != nil {
		t.Fatal(err)
	}
	next := s.another()
	var text strings.Builder
	var last stream.Item
	for item, err := range s.Read(t.Context(), run.SessionID, run.StartSequence) {
		if err != nil {
			t.Fatal(err)
		}
		last = item
		if item.Chunk == nil || item.Chunk.Kind != stream.TextDelta {
			continue
		}
		if text.WriteString(item.Chunk.Delta); text.String() == "one, " {
			s.through(http.StripPrefix("/api", next).ServeHTTP)
			if err := s.server.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			close(going)
		}
	}
	if text.String() != "one, two" || last.Frame != stream.FrameEnd {
		t.Errorf("read %q, and last %+v", text.String(), last)
	}
	if err := next.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// frames is a server that plays events, one list per request, the last one forever.
func frames(t *testing.T, cfg client.Config, play ...string) (*client.Client, *atomic.Int64) {
	t.Helper()
	var asked atomic.Int64
	web := httptest.NewServer(player(&asked, play))
	t.Cleanup(web.Close)
	cfg.URL, cfg.HTTP, cfg.Backoff = web.URL, web.Client(), time.Millisecond
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c, &asked
}

// player plays events, and counts how often it is asked to. A list that ends with … is followed by silence.
func player(asked *atomic.Int64, play []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(asked.Add(1)) - 1
		body := play[min(n, len(play)-1)]
		w.Header().Set(wire.HeaderVersion, wire.ProtocolVersion)
		w.Header().Set("Content-Type", wire.ContentEvents+"; charset=utf-8")
		silent := strings.HasSuffix(body, "…")
		_, _ = io.WriteString(w, strings.TrimSuffix(body, "…"))
		if silent {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	})
}

func frame(kind string, sequence int64, data string) string {
	if sequence > 0 {
		return fmt.Sprintf("event: %s\nid: %d\ndata: {\"sequence\":%d,\"chunk\":{\"type\":\"text_delta\",\"delta\":%q}}\n\n", kind, sequence, sequence, data)
	}
	return "event: " + kind + "\r\ndata: " + data + "\r\n\r\n"
}

// said is what a reading came to, in short.
func said(t *testing.T, c *client.Client, from int64) (string, error) {
	t.Helper()
	ctx := eventually.Context(t)
	var out []string
	for item, err := range c.Read(ctx, "s1", from) {
		if err != nil {
			return strings.Join(out, " "), err
		}
		text := string(item.Frame)
		if item.Chunk != nil {
			text = fmt.Sprint(item.Sequence, item.Chunk.Delta)
		}
		out = append(out, text)
	}
	return strings.Join(out, " "), nil
}

func TestReadFrames(t *testing.T) {
	t.Parallel()
	end, caughtUp := frame("end", 0, `{"status":"completed"}`), frame("caught-up", 0, `{"sequence":2}`)
	one, two, three := frame("chunk", 1, "a"), frame("chunk", 2, "b"), frame("rewound", 3, "c")
	for name, c := range map[string]struct {
		play  []string
		want  string
		asked int64
	}{
		"plain":             {play: []string{one + two + caughtUp + three + end}, want: "1a 2b caught-up 3c end", asked: 1},
		"no end":            {play: []string{one, two + caughtUp, three + end}, want: "1a 2b caught-up 3c end", asked: 3},
		"half an event":     {play: []string{one + two[:20], two + end}, want: "1a 2b end", asked: 2},
		"an unfinished end": {play: []string{one + strings.TrimSuffix(end, "\r\n"), end}, want: "1a end", asked: 2},
		"repeats":           {play: []string{one + two, one + two + three + end}, want: "1a 2b 3c end", asked: 2},
		"caught up twice":   {play: []string{one + caughtUp, caughtUp + two + end}, want: "1a caught-up 2b end", asked: 2},
		"a gap":             {play: []string{one + three, two + three + end}, want: "1a 2b 3c end", asked: 2},
		"garbage":           {play: []string{one + "event: chunk\nid: 2\ndata: {oops\n\n", two + end}, want: "1a 2b end", asked: 2},
		"a chunk of nothing": {
			play: []string{one + "event: chunk\ndata: {\"sequence\":2}\n\n", two + end}, want: "1a 2b end", asked: 2,
		},
		"later frames, comments and fields": {
			play: []string{": hello\n\nretry: 5\n\nevent: novelty\ndata: {}\n\n" + one + ":\n\n" + end}, want: "1a end", asked: 1,
		},
		"a slow reader": {
			play: []string{one + frame("fail", 0, `{"error":"slow","code":"framework_slow_reader","retryable":true,"recoverable":true}`), two + end},
			want: "1a 2b end", asked: 2,
		},
		"a failed run":      {play: []string{one + frame("fail", 0, `{"error":"no","code":"provider_auth"}`)}, want: "1a fail", asked: 1},
		"truncated":         {play: []string{frame("truncated", 0, `{"floor":9}`)}, want: "truncated", asked: 1},
		"a restored stream": {play: []string{one + two, frame("truncated", 0, `{"floor":0}`)}, want: "1a 2b truncated", asked: 2},
		"several lines":     {play: []string{"event: end\ndata: {\"status\":\ndata: \"completed\"}\n\n"}, want: "end", asked: 1},
		"what comes after":  {play: []string{one + end + two + three}, want: "1a end", asked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cl, asked := frames(t, client.Config{Silence: eventually.Patience}, c.play...)
			got, err := said(t, cl, 0)
			if err != nil || got != c.want || asked.Load() != c.asked {
				t.Errorf("read %q with %d requests, %v; want %q with %d", got, asked.Load(), err, c.want, c.asked)
			}
		})
	}
}

// TestReadGivesUp wants a stream without progress to be asked for so often and no
// more, and one that does not get better not at all.
func TestReadGivesUp(t *testing.T) {
	t.Parallel()
	c, asked := frames(t, client.Config{Attempts: 4}, frame("chunk", 1, "a"), "")
	got, err := said(t, c, 0)
	if got != "1a" || !errors.Is(err, session.ErrUnavailable) || !session.IsRetryable(err) {
		t.Errorf("read %q, then %v", got, err)
	}
	if n := asked.Load(); n < 5 || n > 6 {
		t.Errorf("it was asked for %d times", n)
	}
	c, asked = frames(t, client.Config{Attempts: -1}, "")
	if _, err := said(t, c, 0); !errors.Is(err, session.ErrUnavailable) || asked.Load() != 1 {
		t.Errorf("got %v after %d requests", err, asked.Load())
	}
	c, asked = frames(t, client.Config{MaxBody: 100}, frame("chunk", 1, strings.Repeat("x", 200)))
	if _, err := said(t, c, 0); !errors.Is(err, session.ErrTooLarge) || asked.Load() != 1 {
		t.Errorf("got %v after %d requests", err, asked.Load())
	}
	c, _ = frames(t, client.Config{MaxBody: 1000}, "data: "+strings.Repeat("x", 5000))
	if _, err := said(t, c, 0); !errors.Is(err, session.ErrTooLarge) {
		t.Errorf("a line without end gives %v", err)
	}
	if _, err := said(t, c, -1); !errors.Is(err, session.ErrInvalid) {
		t.Errorf("a negative sequence gives %v", err)
	}
	s := serve(t, nil, echo())
	if _, err := said(t, s.Client, 0); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("a session that is not there gives %v", err)
	}
}

// TestReadSilence reads from a server that falls silent: the client asks again after the time that a stream may be
// silent, and no sooner.
func TestReadSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const silence = 45 * time.Second // by default
		var asked atomic.Int64
		play := []string{frame("chunk", 1, "a") + "…", "…", frame("chunk", 2, "b") + frame("end", 0, `{"status":"completed"}`)}
		c := direct(t, client.Config{Backoff: time.Millisecond}, player(&asked, play))
		began := time.Now()
		got, err := said(t, c, 0)
		if err != nil || got != "1a 2b end" || asked.Load() != 3 {
			t.Errorf("read %q with %d requests, %v", got, asked.Load(), err)
		}
		if took := time.Since(began); took < 2*silence || took > 2*silence+time.Second {
			t.Errorf("two silences took %s", took)
		}
	})
}

// TestReadWaits reads a stream that is quiet for longer than what stands between lets
// connections live.
func TestReadWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const silence = 20 * time.Second
		var asked atomic.Int64
		c := direct(t, client.Config{Silence: silence, Attempts: 1, Backoff: time.Millisecond}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(wire.HeaderVersion, wire.ProtocolVersion)
			w.Header().Set("Content-Type", wire.ContentEvents)
			if asked.Add(1) > 4 {
				_, _ = io.WriteString(w, frame("end", 0, `{"status":"completed"}`))
				return
			}
			for range 3 {
				_, _ = io.WriteString(w, ": keep-alive\n\n")
				_ = http.NewResponseController(w).Flush()
				time.Sleep(silence - time.Second)
			}
		}))
		if got, err := said(t, c, 0); err != nil || got != "end" || asked.Load() != 5 {
			t.Errorf("read %q with %d requests, %v", got, asked.Load(), err)
		}
	})
}

// TestReadStops wants a reader that leaves, or whose context ends, to leave nothing
// behind; the test's main looks for goroutines.
func TestReadStops(t *testing.T) {
	t.Parallel()
	c, _ := frames(t, client.Config{}, frame("chunk", 1, "a")+"…")
	for item, err := range c.Read(t.Context(), "s1", 0) {
		if err != nil || item.Sequence != 1 {
			t.Fatalf("read %+v, %v", item, err)
		}
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for _, err := range c.Read(ctx, "s1", 0) {
		last = err
		cancel()
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("it ends with %v", last)
	}
}

// TestReadSendsLastEventID wants the position where a server looks for it first.
func TestReadSendsLastEventID(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var seen []string
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r.Header.Get(wire.HeaderLastEventID)+"/"+r.URL.Query().Get("from"))
		w.Header().Set(wire.HeaderVersion, wire.ProtocolVersion)
		w.Header().Set("Content-Type", wire.ContentEvents)
		out := bufio.NewWriter(w)
		if len(seen) == 1 {
			_, _ = out.WriteString(frame("chunk", 6, "a"))
		} else {
			_, _ = out.WriteString(frame("end", 0, `{"status":"completed"}`))
		}
		_ = out.Flush()
	}))
	defer web.Close()
	c, err := client.New(client.Config{URL: web.URL, HTTP: web.Client(), Backoff: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	_, err = said(t, c, 5)
	mu.Lock()
	defer mu.Unlock()
	if err != nil || !slices.Equal(seen, []string{"5/5", "6/6"}) {
		t.Errorf("asked %v, %v", seen, err)
	}
}
