package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/server"
	"github.com/helixagents/helix/server/aisdk"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
)

// busy is an agent that tells of much: events before the gate, and after it.
func busy(events int, data string, gate <-chan struct{}) *helix.Agent {
	work := func(ctx context.Context, call *helix.Call, _ struct{}) (string, error) {
		for i := range events {
			if i == events/2 {
				select {
				case <-gate:
				case <-ctx.Done():
					return "", ctx.Err()
				}
			}
			call.Emit("progress", map[string]any{"at": i, "data": data})
		}
		return "done", nil
	}
	return &helix.Agent{
		Name: "busy",
		Model: speaker(func(request *llm.Request) scripted.Step {
			if strings.HasPrefix(lastText(request), "result") {
				return scripted.Text("That was all.")
			}
			return scripted.Call("work", nil)
		}),
		Tools: []helix.Tool{{Name: "work", Description: "Work.", Execute: helix.Func(work), ReadOnly: true}},
	}
}

// stored is the stream as the store has it: what a reader must see.
func stored(t testing.TB, db store.Backend, id string) []string {
	t.Helper()
	items, err := db.Streams().Tenant("north").Chunks(t.Context(), id, 0, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, item := range items {
		raw, err := item.Chunk.Encode()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprintf(`{"sequence":%d,"chunk":%s}`, item.Sequence, raw))
	}
	return out
}

// A reader that is cut off at any byte, and continues after the last event that it
// has in full, sees every chunk once, in order: while the run works and after its end.
func TestReconnectAtAnyByte(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		cuts, seed := 120, uint64(testshare.Part(t, 1<<16))
		if testshare.Soak() {
			cuts = 1000
		}
		gate := make(chan struct{})
		s := serve(t, db, []*helix.Agent{busy(600, "x", gate)}, nil)
		started := call[wire.Started](s, http.StatusOK, http.MethodPost, "/start", wire.Start{AgentType: "busy", Message: wire.Text("go")})
		random := rand.New(rand.NewPCG(1, seed)) // each commit cuts at other bytes
		path := "/sse?sessionId=" + started.SessionID
		open := sync.OnceFunc(func() { close(gate) })
		defer open()
		for made, pass := 0, 1; made < cuts || pass <= 2; pass++ { // the second pass is after its end
			var seen []string
			for last, ended := "", false; !ended; {
				if len(seen) >= 200 { // before that the run waits with more than this reads at once
					open()
				}
				var events []event
				events, ended = s.cutAfter(path, last, 1+random.IntN(1500))
				made++
				for _, e := range events {
					switch e.kind {
					case "chunk":
						seen, last = append(seen, e.data), e.id
					case "end":
						ended = true
					case "caught-up":
					default:
						t.Fatalf("the stream has an event %+v", e)
					}
				}
			}
			want := stored(t, db, started.SessionID)
			if len(seen) != len(want) {
				t.Fatalf("pass %d has %d chunks, not %d", pass, len(seen), len(want))
			}
			for i := range want {
				if seen[i] != want[i] {
					t.Fatalf("pass %d: chunk %d is %s, not %s", pass, i+1, seen[i], want[i])
				}
			}
		}
	})
}

// cutAfter reads a stream on, and drops the connection after so many bytes. It
// reports whether the body ended before.
func (s *service) cutAfter(path, last string, size int) (events []event, ended bool) {
	s.t.Helper()
	var headers []string
	if last != "" {
		headers = []string{wire.HeaderLastEventID, last}
	}
	answer := s.request(http.MethodGet, path, nil, headers...)
	defer answer.Body.Close()
	raw := make([]byte, size)
	n, err := io.ReadFull(answer.Body, raw)
	ended = errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)
	if err != nil && !ended {
		s.t.Fatal(err)
	}
	events, _ = parseEvents(raw[:n])
	return events, ended
}

// A run's stream is its own chunks and its own end, whatever the session did later.
func TestStreamOfARun(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		s := serve(t, db, []*helix.Agent{echo()}, nil)
		first := s.start(wire.Start{AgentType: "echo", Message: wire.Text("one")})
		second := s.start(wire.Start{SessionID: first.SessionID, AgentType: "echo", Message: wire.Text("two")})
		for _, run := range []wire.Started{first, second} {
			path := "/sse?sessionId=" + run.SessionID + "&run=" + run.RunID
			events := s.read(path)
			if events[0].id != strconv.FormatInt(run.StartSequence+1, 10) {
				t.Errorf("the run begins with %+v, not after %d", events[0], run.StartSequence)
			}
			last := ""
			for _, e := range events {
				if e.kind == "chunk" {
					last = e.id
					if !strings.Contains(e.data, `"runId":"`+run.RunID+`"`) {
						t.Errorf("run %s shows %s", run.RunID, e.data)
					}
				}
			}
			if end := events[len(events)-1]; end.kind != "end" {
				t.Errorf("the run ends with %+v", end)
			}
			// Somebody who saw all of it is told the end, and nothing of the next run.
			again := s.read(path, wire.HeaderLastEventID, last)
			for _, e := range again {
				if e.kind == "chunk" {
					t.Errorf("after its end run %s shows %+v", run.RunID, e)
				}
			}
			if end := again[len(again)-1]; end.kind != "end" {
				t.Errorf("after its end the run ends with %+v", end)
			}
		}
	})
}

func TestStreamFrames(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		s := staffed(t, db, nil)
		f := s.fill("f-")
		last := func(events []event) event { return events[len(events)-1] }
		if e := last(s.settle(f.failed)); e.kind != "fail" || !strings.Contains(e.data, `"code":"provider_bad_request"`) ||
			strings.Contains(e.data, "recoverable") {
			t.Errorf("a failed run ends with %+v", e)
		}
		if e := last(s.settle(f.waiting)); e.kind != "end" || !strings.Contains(e.data, `"status":"paused"`) {
			t.Errorf("a run that waits ends with %+v", e)
		}
		if _, err := db.Streams().Tenant("north").Trim(t.Context(), f.done, stream.TrimPolicy{Through: 3}); err != nil {
			t.Fatal(err)
		}
		if e := last(s.settle(f.done)); e != (event{kind: "truncated", data: `{"floor":3}`}) {
			t.Errorf("a trimmed stream ends with %+v", e)
		}
		events := s.read("/sse?sessionId=" + f.done + "&from=3")
		if events[0].id != "4" {
			t.Errorf("reading on from the floor begins with %+v", events[0])
		}
		// What a browser saw last goes before what its page asked for.
		if events := s.read("/sse?sessionId="+f.done+"&from=3", wire.HeaderLastEventID, "4"); events[0].id != "5" {
			t.Errorf("reading on begins with %+v", events[0])
		}
		// A rewind has a place in the stream like everything else.
		first := call[wire.CheckpointPage](s, http.StatusOK, http.MethodGet, "/sessions/"+f.paused+"/checkpoints", nil).Items
		call[wire.Started](s, http.StatusOK, http.MethodPost, "/resume",
			wire.Resume{SessionID: f.paused, CheckpointID: first[len(first)-1].ID, Message: wire.Text("again")})
		next, rewound := 1, 0
		for _, e := range s.settle(f.paused) {
			if e.kind == "rewound" {
				rewound++
			}
			if e.kind == "rewound" || e.kind == "chunk" {
				if e.id != strconv.Itoa(next) {
					t.Errorf("event %d is %+v", next, e)
				}
				next++
			}
		}
		if rewound != 1 {
			t.Errorf("the stream has %d rewinds", rewound)
		}
		for _, from := range []string{"-1", "x", "1.5", "99999999999999999999"} {
			if e := s.refused(http.StatusBadRequest, session.CodeInvalid, http.MethodGet, "/sse?sessionId="+f.done+"&from="+from, nil); e.Field != "from" {
				t.Errorf("from=%s is refused as %+v", from, e)
			}
		}
	})
}

// A browser that has seen more than there is, as after the restore of an older state,
// is told where to start over: it would give up on a refusal.
func TestStreamBeyondItsEnd(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		s := serve(t, db, []*helix.Agent{echo()}, nil)
		run := s.start(wire.Start{AgentType: "echo", Message: wire.Text("one")})
		path := "/sse?sessionId=" + run.SessionID
		for _, e := range s.read(path) {
			if e.kind == "end" {
				break
			}
		}
		for _, from := range []string{"1000", "9223372036854775807"} {
			for _, ask := range []func() []event{
				func() []event { return s.read(path + "&from=" + from) },
				func() []event { return s.read(path, wire.HeaderLastEventID, from) },
				func() []event { return s.read(path+"&run="+run.RunID, wire.HeaderLastEventID, from) },
			} {
				if got, want := ask(), (event{kind: "truncated", data: `{"floor":0}`}); len(got) != 1 || got[0] != want {
					t.Errorf("from %s the stream is %+v, want %+v", from, got, want)
				}
			}
		}
		// A chat that is resumed there is told to load again.
		raw := ""
		for _, e := range s.read("/chat/" + run.SessionID + "/stream?run=" + run.RunID + "&from=1000") {
			raw += e.data + "\n"
		}
		if !strings.Contains(raw, "Load the chat again.") {
			t.Errorf("a chat is resumed beyond the end of its stream with %s", raw)
		}
	})
}

// A stream that has nothing to say shows that it lives.
func TestKeepAlive(t *testing.T) {
	t.Parallel()
	s := staffed(t, inMemory(t), func(cfg *server.Config) { cfg.KeepAlive = 5 * time.Millisecond })
	f := s.fill("k-")
	answer := s.request(http.MethodGet, "/sse?sessionId="+f.running, nil)
	defer answer.Body.Close()
	var raw []byte
	buf := make([]byte, 1<<10)
	for bytes.Count(raw, []byte("\n: keep-alive\n\n")) < 2 {
		n, err := answer.Body.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		raw = append(raw, buf[:n]...)
	}
}

// A client that does not read holds up nothing but itself: it is told, if it comes
// back, and cut.
func TestSlowClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const timeout = 10 * time.Second // by default
		gate := make(chan struct{})
		close(gate)
		s, listener := serveOnPipes(t, inMemory(t), []*helix.Agent{busy(100, "x", gate)}, nil)
		started := call[wire.Started](s, http.StatusOK, http.MethodPost, "/start", wire.Start{AgentType: "busy", Message: wire.Text("go")})
		stalled := func() net.Conn { // opens the stream, and reads no more than its beginning
			conn, err := listener.Dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			_, err = fmt.Fprintf(conn, "GET /sse?sessionId=%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", started.SessionID, s.token)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(conn, make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
			return conn
		}
		late, never := stalled(), stalled()
		// The run does not wait for them.
		run, err := s.runtime.Tenant("north").Attach(t.Context(), started.SessionID)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if result, err := run.Result(t.Context()); err != nil || result.Status != helix.Completed || time.Since(began) > time.Second {
			t.Fatalf("the run ended after %s with %+v, %v", time.Since(began), result, err)
		}
		time.Sleep(timeout + timeout/2)
		raw, err := io.ReadAll(late)
		if err != nil {
			t.Fatal(err)
		}
		const told = `{"error":"the stream was not read in time","code":"framework_slow_reader","retryable":true,"recoverable":true}`
		if !bytes.Contains(raw, []byte("event: fail\ndata: "+told)) || bytes.Contains(raw, []byte("event: end")) {
			t.Errorf("the client that came back late is not told: %q", raw)
		}
		if n := s.openStreams(); n != 1 {
			t.Errorf("%d streams are open, not that of the client which never reads", n)
		}
		time.Sleep(2 * timeout)
		if n := s.openStreams(); n != 0 {
			t.Errorf("%d streams are open", n)
		}
		if raw, err := io.ReadAll(never); err != nil || bytes.Contains(raw, []byte("\n\n")) {
			t.Errorf("the client that never read is not cut off: %v: %q", err, raw)
		}
	})
}

// A client that reads little at a time, but does, gets all of a replay, however
// large: of a chat, which comes at once, and of a stream with large chunks.
func TestSteadyClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		s, _ := serveOnPipes(t, inMemory(t), []*helix.Agent{busy(8, strings.Repeat("x", 200<<10), gate)}, func(cfg *server.Config) {
			cfg.KeepAlive = time.Hour
		})
		started := call[wire.Started](s, http.StatusOK, http.MethodPost, "/start", wire.Start{AgentType: "busy", Message: wire.Text("go")})
		synctest.Wait() // it is at the gate
		for _, path := range []string{"/chat/" + started.SessionID + "/stream", "/sse?sessionId=" + started.SessionID} {
			answer := s.request(http.MethodGet, path, nil)
			began, got, piece := time.Now(), 0, make([]byte, 8<<10)
			for got < 800<<10 {
				time.Sleep(time.Second)
				n, err := io.ReadFull(answer.Body, piece)
				if got += n; err != nil {
					t.Fatalf("GET %s: %d bytes after %s: %v: %.300s", path, got, time.Since(began), err, piece[:n])
				}
			}
			if err := answer.Body.Close(); err != nil {
				t.Fatal(err)
			}
		}
		close(gate)
	})
}

// openStreams reads the metric.
func (s *service) openStreams() int {
	s.t.Helper()
	answer := s.as("process-token").request(http.MethodGet, "/metrics", nil)
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(raw), "\nhelix_http_open_streams ")
	if !found {
		s.t.Fatalf("no such metric: %s", raw)
	}
	line, _, _ := strings.Cut(rest, "\n")
	return number(s.t, line)
}

// Shutting down ends streams with a frame that says so, and leaves runs alone.
func TestShutdown(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		s := staffed(t, db, nil)
		f := s.fill("s-")
		const readers = 5
		got := make(chan []event, readers)
		var reading sync.WaitGroup
		for range readers {
			answer := s.request(http.MethodGet, "/sse?sessionId="+f.running, nil)
			reading.Go(func() {
				defer answer.Body.Close()
				raw, err := io.ReadAll(answer.Body)
				if err != nil {
					t.Error(err)
				}
				events, _ := parseEvents(raw)
				got <- events
			})
		}
		if err := s.server.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		reading.Wait()
		for range readers {
			events := <-got
			if e := events[len(events)-1]; e.kind != "fail" || decodeAs[wire.Fail](t, e.data) != (wire.Fail{
				Message: "the server is shutting down", Code: wire.CodeShuttingDown, Retryable: true, Recoverable: true,
			}) {
				t.Errorf("a stream ends with %+v", e)
			}
		}
		s.refused(http.StatusServiceUnavailable, wire.CodeShuttingDown, http.MethodGet, "/sse?sessionId="+f.running, nil)
		s.refused(http.StatusServiceUnavailable, wire.CodeShuttingDown, http.MethodGet, "/readyz", nil)
		if status := call[wire.Status](s, http.StatusOK, http.MethodGet, "/status?sessionId="+f.running, nil); status.RunStatus != session.RunRunning {
			t.Errorf("the run is %s", status.RunStatus)
		}
	})
}

// A client that does not read does not hold up a shutdown: the time that this is
// given is for the turns.
func TestShutdownOfStalledClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		close(gate)
		s, _ := serveOnPipes(t, inMemory(t), []*helix.Agent{busy(100, "x", gate)}, nil)
		started := call[wire.Started](s, http.StatusOK, http.MethodPost, "/start", wire.Start{AgentType: "busy", Message: wire.Text("go")})
		answer := s.request(http.MethodGet, "/sse?sessionId="+started.SessionID, nil)
		defer answer.Body.Close()
		synctest.Wait() // the server waits for the client
		began := time.Now()
		if err := s.server.Shutdown(t.Context()); err != nil || time.Since(began) > 2*time.Second {
			t.Errorf("the shutdown took %s: %v", time.Since(began), err)
		}
	})
}

// Many readers that wait cost little, and all of them get the end.
func TestIdleReaders(t *testing.T) {
	t.Parallel()
	readers := 200
	if testshare.Soak() {
		readers = 1000
	}
	gate := make(chan struct{})
	s := serve(t, inMemory(t), staff(gate), func(cfg *server.Config) { cfg.Limits.StreamsPerUser = readers })
	started := call[wire.Started](s, http.StatusOK, http.MethodPost, "/start", wire.Start{AgentType: "slow", Message: wire.Text("go")})
	s.untilChunk(started.SessionID, "text_delta")
	bodies := make([]io.ReadCloser, readers)
	for i := range bodies {
		answer := s.request(http.MethodGet, "/sse?sessionId="+started.SessionID, nil) //nolint:bodyclose // it is closed below, once it was read
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("reader %d is answered with %d", i, answer.StatusCode)
		}
		bodies[i] = answer.Body
	}
	if n := s.openStreams(); n != readers {
		t.Errorf("%d streams are open, not %d", n, readers)
	}
	close(gate)
	for i, body := range bodies {
		raw, err := io.ReadAll(body)
		if err != nil {
			t.Fatal(err)
		}
		if err := body.Close(); err != nil {
			t.Fatal(err)
		}
		events, _ := parseEvents(raw)
		if e := events[len(events)-1]; e.kind != "end" {
			t.Errorf("reader %d ends with %+v", i, e)
		}
	}
}

// There are only so many streams, and fewer for one user. Whoever gets none has not
// had a turn begun either.
func TestStreamLimit(t *testing.T) {
	t.Parallel()
	s := staffed(t, inMemory(t), func(cfg *server.Config) { cfg.Limits.Streams, cfg.Limits.StreamsPerUser = 2, 1 })
	open := func(s *service) (path string) {
		started := call[wire.Started](s, http.StatusOK, http.MethodPost, "/start", wire.Start{AgentType: "slow", Message: wire.Text("go")})
		path = "/sse?sessionId=" + started.SessionID
		answer := s.request(http.MethodGet, path, nil)
		t.Cleanup(func() { _ = answer.Body.Close() })
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("a stream is answered with %d", answer.StatusCode)
		}
		return path
	}
	chat := s.page("new")
	chat.messages = []aisdk.Message{{ID: "u1", Role: "user", Parts: []aisdk.Part{{Type: aisdk.PartText, Text: "go"}}}}
	refused := func(s *service, status int, code session.Code, path string) {
		t.Helper()
		before := len(tenantSessions(t, s.db, "north"))
		if e := s.refused(status, code, http.MethodGet, path, nil); !e.Retryable {
			t.Errorf("one stream too many is refused as %+v", e)
		}
		if e := s.refused(status, code, http.MethodPost, "/chat", chat.body(aisdk.TriggerSubmit, "")); !e.Retryable {
			t.Errorf("one chat too many is refused as %+v", e)
		}
		if after := len(tenantSessions(t, s.db, "north")); after != before {
			t.Errorf("a chat that was refused has made a session")
		}
	}
	path := open(s)
	refused(s, http.StatusTooManyRequests, wire.CodeRateLimited, path)
	path = open(s.as("bob-token"))
	refused(s.as("operator-token"), http.StatusServiceUnavailable, session.CodeUnavailable, path)
	if err := s.server.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused(s.as("operator-token"), http.StatusServiceUnavailable, wire.CodeShuttingDown, path)
}
