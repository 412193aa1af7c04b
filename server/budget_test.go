package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/pipe"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
)

// Whatever bodies ask for, in whatever order and however slowly they arrive, the
// budget and every identity's share of it hold, and all of them are read in the end.
// Were they to wait for each other, the bubble would end with a deadlock.
func TestBudgetHoldsAndEndsEveryWait(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ total, body int64 }{{64, 4}, {16, 4}, {8, 4}, {5, 4}, {1, 4}, {100, 1}} {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(uint64(c.total), uint64(c.body)))
			b := newBudget(c.total, c.body)
			var all sync.WaitGroup
			for i := range 300 {
				size := 1 + random.Int64N(c.body+1)
				pause := func() time.Duration { return time.Duration(1+(i*7919)%97) * time.Millisecond }
				who := Identity{User: strconv.Itoa(random.IntN(8))}
				all.Go(func() {
					held := b.claim(who)
					defer held.release()
					for piece := int64(1); ; piece *= 2 {
						if _, err := held.raise(t.Context(), min(piece, size)); err != nil {
							t.Error(err)
						}
						b.check(t)
						time.Sleep(pause())
						if piece >= size {
							return
						}
					}
				})
			}
			all.Wait()
			if b.all.held != 0 || b.all.claims.Len() != 0 || len(b.shares) != 0 {
				t.Errorf("%d bytes, %d claims and %d shares are left", b.all.held, b.all.claims.Len(), len(b.shares))
			}
		})
	}
}

// check wants the limits to hold.
func (b *budget) check(t *testing.T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all.held > b.all.limit {
		t.Errorf("%d of %d bytes are held", b.all.held, b.all.limit)
	}
	for who, share := range b.shares {
		if share.held > share.limit {
			t.Errorf("%s holds %d of %d bytes", who.User, share.held, share.limit)
		}
	}
}

// Who waits no longer leaves nothing behind, and keeps what it has until then.
func TestBudgetIsGivenBack(t *testing.T) {
	t.Parallel()
	b := newBudget(16, 4)
	first, second := b.claim(Identity{User: "a"}), b.claim(Identity{User: "a"})
	if _, err := first.raise(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if waited, err := second.raise(gone, 1); !waited || !errors.Is(err, context.Canceled) {
		t.Errorf("a share that is used up is given out: %v, %v", waited, err)
	}
	other := b.claim(Identity{User: "b"})
	if waited, err := other.raise(gone, 5); waited || err != nil {
		t.Errorf("another identity waits: %v, %v", waited, err)
	}
	first.release()
	first.release()
	if waited, err := second.raise(gone, 5); waited || err != nil {
		t.Errorf("what was given back is not there: %v, %v", waited, err)
	}
	second.release()
	other.release()
	if b.all.held != 0 || len(b.shares) != 0 {
		t.Errorf("%d bytes and %d shares are left", b.all.held, len(b.shares))
	}
}

// idle is a backend, and idleExecutor an executor, that nobody asks for anything but a
// tenant.
type (
	idle         struct{ store.Backend }
	idleExecutor struct{ helix.Executor }
)

type (
	idleSessions struct{ session.Store }
	idleStreams  struct{ stream.Manager }
)

func (idle) Sessions() session.Store                { return idleSessions{} }
func (idle) Streams() stream.Manager                { return idleStreams{} }
func (i idleExecutor) Tenant(string) helix.Executor { return i }
func (s idleSessions) Tenant(string) session.Store  { return s }
func (s idleStreams) Tenant(string) stream.Manager  { return s }

// bodyServer is a server that reads bodies and refuses them all; a token is a user's name.
type bodyServer struct {
	*Server
	t         *testing.T
	url       string
	transport http.RoundTripper
}

func newBodyServer(t *testing.T, limits Limits) *bodyServer {
	t.Helper()
	s := &bodyServer{Server: refuseBodies(t, limits), t: t, transport: http.DefaultTransport}
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	s.url = web.URL
	return s
}

// newPipedBodyServer is newBodyServer over connections in memory, for tests in a bubble.
func newPipedBodyServer(t *testing.T, limits Limits) *bodyServer {
	t.Helper()
	listener := pipe.Listen()
	transport := &http.Transport{DialContext: listener.Dial}
	s := &bodyServer{Server: refuseBodies(t, limits), t: t, transport: transport}
	web := &httptest.Server{Listener: listener, Config: HTTPServer("", s)}
	web.Start()
	t.Cleanup(web.Close)
	t.Cleanup(transport.CloseIdleConnections)
	s.url = web.URL
	return s
}

func refuseBodies(t *testing.T, limits Limits) *Server {
	t.Helper()
	s, err := New(Config{
		Executor: idleExecutor{}, Backend: idle{}, Agents: func() []*helix.Agent { return nil }, Limits: limits, Logger: slog.New(slog.DiscardHandler),
		Authenticate: func(r *http.Request) (Identity, error) { return Identity{User: r.Header.Get("Authorization")}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// say posts a body and returns the status, the answer and Retry-After.
func (s *bodyServer) say(user string, body io.Reader) (status int, answer, after string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+"/start", body)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", wire.ContentJSON)
	r.Header.Set("Authorization", user)
	response, err := s.transport.RoundTrip(r)
	if err != nil {
		return 0, err.Error(), ""
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Error(err)
	}
	return response.StatusCode, string(raw), response.Header.Get("Retry-After")
}

// large is a body of so many bytes.
func large(size int) string {
	return `{"agentType":"nobody","message":"` + strings.Repeat("x", size-35) + `"}`
}

// A large body for which there is no room is refused with 503 when the read timeout
// is over. Small ones, and those of others, do not wait for it.
func TestNoRoomForABody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit = 30 * time.Second // by default
		s := newPipedBodyServer(t, Limits{Body: 1 << 20, Buffered: 8 << 20})
		held := s.budget.claim(Identity{User: "alice", Tenant: session.DefaultTenant})
		if _, err := held.raise(t.Context(), 2<<20); err != nil { // all of alice's share
			t.Fatal(err)
		}
		for _, chunked := range []bool{false, true} {
			body := io.Reader(strings.NewReader(large(500_000)))
			if chunked {
				body = io.MultiReader(body)
			}
			began := time.Now()
			status, answer, after := s.say("alice", body)
			if status != http.StatusServiceUnavailable || after != "1" || !strings.Contains(answer, `"retryable":true`) || !strings.Contains(answer, `"field":"body"`) {
				t.Errorf("without room: %d %s, Retry-After %q", status, answer, after)
			}
			if took := time.Since(began); took != limit {
				t.Errorf("without room it is refused after %s, not %s", took, limit)
			}
		}
		began := time.Now()
		refused := func(user string, size int) {
			t.Helper()
			if status, answer, _ := s.say(user, strings.NewReader(large(size))); status != http.StatusNotFound || !strings.Contains(answer, `"agentType"`) {
				t.Errorf("%s with %d bytes: %d %s", user, size, status, answer)
			}
		}
		refused("alice", 100)
		refused("alice", freeBody)
		refused("bob", 1<<20)
		held.release()
		refused("alice", 1<<20)
		if took := time.Since(began); took != 0 {
			t.Errorf("bodies for which there is room have waited for %s", took)
		}
		if s.budget.all.held != 0 || s.budget.all.claims.Len() != 0 {
			t.Errorf("%d bytes are held in the end", s.budget.all.held)
		}
	})
}

// A body that arrives in pieces has the read timeout for all of them. What the server waits
// for its own budget is not the sender's time.
func TestBodyThatDoesNotArrive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit = 30 * time.Second // by default
		s := newPipedBodyServer(t, Limits{Body: 1 << 20, Buffered: 8 << 20})
		text := large(200 << 10)
		send := func(pause time.Duration) (status int, answer, after string) {
			body, writer := io.Pipe()
			var sending sync.WaitGroup
			sending.Go(func() {
				_, _ = io.WriteString(writer, text[:len(text)/2]) // until the server has given up
				time.Sleep(pause)
				_, _ = io.WriteString(writer, text[len(text)/2:])
				_ = writer.Close()
			})
			defer sending.Wait()
			defer body.Close()
			return s.say("alice", body)
		}
		if status, answer, _ := send(limit - time.Second); status != http.StatusNotFound {
			t.Errorf("a body that is slow: %d %s", status, answer)
		}
		status, answer, after := send(limit + time.Second)
		if status != http.StatusRequestTimeout || after != "1" || !strings.Contains(answer, `"code":"framework_body_timeout"`) || !strings.Contains(answer, `"retryable":true`) {
			t.Errorf("a body that is too slow: %d %s, Retry-After %q", status, answer, after)
		}
		held := s.budget.claim(Identity{User: "alice", Tenant: session.DefaultTenant})
		if _, err := held.raise(t.Context(), 2<<20); err != nil { // all of alice's share
			t.Fatal(err)
		}
		time.AfterFunc(limit-time.Second, held.release)
		if status, answer, _ := send(limit - time.Second); status != http.StatusNotFound {
			t.Errorf("a body that is slow, after it waited for room: %d %s", status, answer)
		}
		if s.budget.all.held != 0 || s.budget.all.claims.Len() != 0 {
			t.Errorf("%d bytes are held in the end", s.budget.all.held)
		}
	})
}

// Senders that stop in the middle of their bodies hold what they sent, and hold up
// nobody: neither others nor the same user.
func TestSlowSendersHoldUpNobody(t *testing.T) {
	t.Parallel()
	s := newBodyServer(t, Limits{})
	var slow sync.WaitGroup
	var stalled []*io.PipeWriter
	defer func() {
		for _, writer := range stalled {
			_ = writer.CloseWithError(errors.New("enough"))
		}
		slow.Wait()
	}()
	for range 10 {
		reader, writer := io.Pipe()
		stalled = append(stalled, writer)
		began := make(chan struct{})
		slow.Go(func() { _, _, _ = s.say("mallory", reader) })
		slow.Go(func() {
			_, _ = writer.Write(bytes.Repeat([]byte(" "), 200<<10)) // until the server ends it
			close(began)
		})
		<-began
	}
	var all sync.WaitGroup
	for _, user := range []string{"alice", "bob", "mallory"} {
		for range 5 {
			all.Go(func() {
				if status, answer, _ := s.say(user, strings.NewReader(large(4<<20))); status != http.StatusNotFound {
					t.Errorf("%s: %d %s", user, status, answer)
				}
			})
		}
	}
	all.Wait()
}

// A body is read whole, whatever its length and whether that is announced.
func TestBodiesOfAnyLength(t *testing.T) {
	t.Parallel()
	const limit = 300_000
	s := newBodyServer(t, Limits{Body: limit})
	for _, size := range []int{36, 511, 512, 4096, 4097, freeBody - 1, freeBody, freeBody + 1, freeBody + 2, 2 * freeBody, limit - 1, limit, limit + 1, 2 * limit} {
		for _, chunked := range []bool{false, true} {
			body := io.Reader(strings.NewReader(large(size)))
			if chunked {
				body = io.MultiReader(body)
			}
			want := http.StatusNotFound // there is no such agent
			if size > limit {
				want = http.StatusRequestEntityTooLarge
			}
			if status, answer, _ := s.say("alice", body); status != want || (want == http.StatusBadRequest && !strings.Contains(answer, `"agentType"`)) {
				t.Errorf("%d bytes, chunked %v: %d %s", size, chunked, status, answer)
			}
		}
	}
}
