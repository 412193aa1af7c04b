package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// follow reads a stream through one backend and reports each text it gets.
func follow(t *testing.T, b *Backend, id string) <-chan string {
	t.Helper()
	out, ctx := make(chan string, 100), t.Context()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for item, err := range b.Streams().Read(ctx, id, 0, true) {
			if err != nil {
				return
			}
			switch item.Frame {
			case stream.FrameChunk:
				out <- item.Chunk.Delta
			default:
				out <- string(item.Frame)
			}
		}
	}()
	t.Cleanup(func() { <-done })
	return out
}

func expect(t *testing.T, out <-chan string, want string) {
	t.Helper()
	if got := eventually.Receive(t, "the reader gets "+want, out); got != want {
		t.Fatalf("the reader got %q, want %q", got, want)
	}
}

func say(t *testing.T, b *Backend, n int64) {
	t.Helper()
	by := stream.Producer{Session: "a", Epoch: 1}
	chunk := stream.Chunk{Kind: stream.TextDelta, Delta: fmt.Sprint(n)}
	if _, err := b.Streams().Append(t.Context(), "a", stream.Batch{Producer: by, First: n, Chunks: []stream.Chunk{chunk}}); err != nil {
		t.Fatal(err)
	}
}

// TestNotify has a reader in another process that never polls: it is notified,
// even after the connection that listens was cut.
func TestNotify(t *testing.T) {
	t.Parallel()
	writer := openTest(t)
	seldom := func(c *Config) { c.Schema, c.PollInterval = writer.config.Schema, time.Hour }
	reader := openTest(t, seldom)
	if _, err := writer.Streams().Reactivate(t.Context(), "a", stream.Producer{Session: "a", Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	out := follow(t, reader, "a")
	expect(t, out, "caught-up")
	waitListening(t, reader)
	for n := range int64(20) {
		say(t, writer, n+1)
		expect(t, out, fmt.Sprint(n+1))
	}
	cut := "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%" + reader.config.Schema + "%'"
	if n := ExecForTest(t, cut); n != 1 {
		t.Fatalf("%d connections were listening", n)
	}
	say(t, writer, 21) // the reader is notified in case it has missed something
	expect(t, out, "21")
	waitListening(t, reader)
	say(t, writer, 22)
	expect(t, out, "22")
}

// TestNotifyAfterLostReply has a reader in another process that never polls. It is told of a
// batch, and of the end of the stream, though the writer lost the replies to both and found
// them there when it tried again.
func TestNotifyAfterLostReply(t *testing.T) {
	t.Parallel()
	writer, proxy := openProxied(t, func(c *Config) { c.PollInterval = time.Hour })
	reader := openTest(t, func(c *Config) { c.Schema, c.PollInterval = writer.config.Schema, time.Hour })
	by := stream.Producer{Session: "a", Epoch: 1}
	if _, err := writer.Streams().Reactivate(t.Context(), "a", by); err != nil {
		t.Fatal(err)
	}
	out := follow(t, reader, "a")
	expect(t, out, "caught-up")
	waitListening(t, reader)
	// tries makes a call, whose first reply is lost, until it succeeds.
	tries := func(words string, call func() error) {
		t.Helper()
		var lost atomic.Bool
		proxy.DropReply(func(request []byte) bool { return bytes.Contains(request, []byte(words)) && !lost.Swap(true) })
		if err := call(); !errors.Is(err, session.ErrUnavailable) || !lost.Load() {
			t.Fatalf("the first try: %v", err)
		}
		if err := call(); err != nil {
			t.Fatal(err)
		}
	}
	chunk := stream.Chunk{Kind: stream.TextDelta, Delta: "a chunk"}
	tries("a chunk", func() error {
		_, err := writer.Streams().Append(t.Context(), "a", stream.Batch{Producer: by, First: 1, Chunks: []stream.Chunk{chunk}})
		return err
	})
	expect(t, out, "a chunk")
	end := stream.End{Status: stream.EndCompleted, Output: json.RawMessage(`"the last words"`)}
	tries("the last words", func() error { return writer.Streams().End(t.Context(), "a", by, end) })
	expect(t, out, string(stream.FrameEnd))
}

func waitListening(t *testing.T, b *Backend) {
	t.Helper()
	eventually.Poll(t, "a connection listens", b.watch.listening.Load)
}

// TestPolling has a reader in another process that gets no notifications.
func TestPolling(t *testing.T) {
	t.Parallel()
	writer := openTest(t)
	reader := openTest(t, func(c *Config) { c.Schema, c.NoListen = writer.config.Schema, true })
	if _, err := writer.Streams().Reactivate(t.Context(), "a", stream.Producer{Session: "a", Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	out := follow(t, reader, "a")
	expect(t, out, "caught-up")
	for n := range int64(5) {
		say(t, writer, n+1)
		expect(t, out, fmt.Sprint(n+1))
	}
}

// deaf is a connection that can silently stop receiving.
type deaf struct {
	net.Conn
	silent *atomic.Bool
}

func (d *deaf) Read(p []byte) (int, error) {
	for {
		n, err := d.Conn.Read(p)
		if err != nil || !d.silent.Load() {
			return n, err
		}
	}
}

// TestHalfOpen makes the connection that listens fall silent, which must be
// detected. While it works, testing it loses nothing.
func TestHalfOpen(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(DatabaseForTest(t))
	if err != nil {
		t.Fatal(err)
	}
	silent, dialed := &atomic.Bool{}, &atomic.Int32{}
	config.MaxConns = 1
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil || dialed.Add(1) == 1 { // the first is the pool's
			return conn, err
		}
		return &deaf{Conn: conn, silent: silent}, nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	writer := openTest(t)
	reader := openTest(t, func(c *Config) { c.Pool, c.Schema, c.PollInterval = pool, writer.config.Schema, time.Hour })
	reader.watch.silence = 50 * time.Millisecond
	if _, err := writer.Streams().Reactivate(t.Context(), "a", stream.Producer{Session: "a", Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	out := follow(t, reader, "a")
	expect(t, out, "caught-up")
	waitListening(t, reader)
	for n := range int64(5) {
		<-time.After(70 * time.Millisecond) // waits: the connection is tested when it was silent for 50 ms, and nothing tells that it was
		say(t, writer, n+1)
		expect(t, out, fmt.Sprint(n+1))
	}
	silent.Store(true)
	eventually.Poll(t, "the silence is noticed", func() bool { return !reader.watch.listening.Load() })
	silent.Store(false)
	waitListening(t, reader)
	say(t, writer, 6)
	expect(t, out, "6")
}
