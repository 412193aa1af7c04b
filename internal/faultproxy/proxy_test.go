package faultproxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testserver.Main(m)) }

// echo is a server that answers each line with the same line, and remembers it.
type echo struct {
	listener net.Listener
	running  sync.WaitGroup

	mu    sync.Mutex
	lines []string
}

func newEcho(t *testing.T) *echo {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &echo{listener: l}
	e.running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			e.running.Go(func() { e.serve(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		e.running.Wait()
	})
	return e
}

func (e *echo) serve(conn net.Conn) {
	defer conn.Close()
	for lines := bufio.NewReader(conn); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		e.mu.Lock()
		e.lines = append(e.lines, strings.TrimSpace(line))
		e.mu.Unlock()
		if _, err := io.WriteString(conn, line); err != nil {
			return
		}
	}
}

func (e *echo) seen() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.lines...)
}

// client is a connection through the proxy.
type client struct {
	t *testing.T
	*net.TCPConn
}

// setup starts an echo server and a proxy before it.
func setup(t *testing.T) (*echo, *Proxy) {
	t.Helper()
	e := newEcho(t)
	return e, New(t, e.listener.Addr().String())
}

func dial(t *testing.T, p *Proxy) *client {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(eventually.Patience)); err != nil {
		t.Fatal(err)
	}
	return &client{t, conn.(*net.TCPConn)}
}

func (c *client) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) wantReply(want string) {
	c.t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		c.t.Fatalf("got %q, %v; want %q", got, err, want)
	}
}

func (c *client) wantReset() {
	c.t.Helper()
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		c.t.Fatalf("read %d bytes, %v; want a reset", n, err)
	}
}

// wantSilence makes sure that nothing comes for a moment.
func (c *client) wantSilence() {
	c.t.Helper()
	// waits: nothing must come, which has no signal
	if err := c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		c.t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("read %d bytes, %v; want silence", n, err)
	}
	if err := c.SetReadDeadline(time.Now().Add(eventually.Patience)); err != nil {
		c.t.Fatal(err)
	}
}

// wantRefused connects and wants a reset, which may be there before the dial returns.
func wantRefused(t *testing.T, p *Proxy) {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err == nil {
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want a reset", err)
	}
}

func TestPassCounts(t *testing.T) {
	t.Parallel()
	_, p := setup(t)
	a, b := dial(t, p), dial(t, p)
	for range 3 {
		a.send("one\n")
		a.wantReply("one\n")
	}
	b.send("two\nthree\n") // one request, however many lines
	b.wantReply("two\nthree\n")
	got, want := p.Counters(), Counters{Connections: 2, Trips: 4, Sent: 22, Received: 22}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestTripsOfLargeMessages(t *testing.T) {
	t.Parallel()
	_, p := setup(t)
	c := dial(t, p)
	line := strings.Repeat("x", 5*pieceSize) + "\n"
	c.send(line)
	c.wantReply(line)
	if got := p.Trips(); got != 1 {
		t.Errorf("%d trips for one request in many pieces, want 1", got)
	}
}

func TestHalfClose(t *testing.T) {
	t.Parallel()
	_, p := setup(t)
	c := dial(t, p)
	c.send("last\n")
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if err != nil || string(got) != "last\n" {
		t.Errorf("got %q, %v; want the reply and a clean end", got, err)
	}
}

// A server that was started again elsewhere gets the connections that are made from then on.
func TestSetTarget(t *testing.T) {
	t.Parallel()
	_, p := setup(t)
	before, next := dial(t, p), newEcho(t)
	before.send("one\n")
	before.wantReply("one\n")
	p.SetTarget(next.listener.Addr().String())
	before.send("two\n")
	before.wantReply("two\n")
	after := dial(t, p)
	after.send("three\n")
	after.wantReply("three\n")
	next.mu.Lock()
	defer next.mu.Unlock()
	if got := strings.Join(next.lines, ""); strings.TrimSpace(got) != "three" {
		t.Errorf("the new server got %q", got)
	}
}

func TestDelay(t *testing.T) {
	t.Parallel()
	_, p := setup(t)
	c := dial(t, p)
	const delay = 30 * time.Millisecond
	p.Delay(delay)
	start := time.Now()
	c.send("slow\n")
	c.wantReply("slow\n")
	if took := time.Since(start); took < 2*delay { // waits: a lower bound, which a slow machine keeps
		t.Errorf("took %v, want %v in each direction", took, delay)
	}
	p.Delay(time.Hour)
	c.send("slower\n")
	p.Pass() // frees what is being held
	c.wantReply("slower\n")
}

func TestReset(t *testing.T) {
	t.Parallel()
	_, p := setup(t)
	c := dial(t, p)
	c.send("one\n")
	c.wantReply("one\n")
	p.Reset()
	c.wantReset()
	c = dial(t, p)
	c.send("two\n")
	c.wantReply("two\n")
}

func TestVanish(t *testing.T) {
	t.Parallel()
	e, p := setup(t)
	c := dial(t, p)
	c.send("before\n")
	c.wantReply("before\n")
	p.Vanish()
	c.send("after\n")
	c.wantSilence()
	if got := fmt.Sprint(e.seen()); got != "[before]" {
		t.Errorf("the server saw %s", got)
	}
	other := dial(t, p)
	other.send("new\n")
	other.wantReply("new\n")
	c.wantSilence()
	p.Reset()
	c.wantReset()
}

func TestStall(t *testing.T) {
	t.Parallel()
	e, p := setup(t)
	c := dial(t, p)
	c.send("before\n")
	c.wantReply("before\n")
	p.Stall()
	c.send("halfway\n")
	c.wantSilence()
	if got := fmt.Sprint(e.seen()); got != "[before]" {
		t.Errorf("the server saw %s: half a message is none", got)
	}
	p.Pass()
	c.wantReply("halfway\n")
}

func TestRefuse(t *testing.T) {
	t.Parallel()
	_, p := setup(t)
	old := dial(t, p)
	old.send("one\n")
	old.wantReply("one\n")
	p.Refuse()
	wantRefused(t, p)
	old.send("two\n")
	old.wantReply("two\n")
	p.Pass()
	c := dial(t, p)
	c.send("three\n")
	c.wantReply("three\n")
}

func TestDropReply(t *testing.T) {
	t.Parallel()
	commit := func(request []byte) bool { return bytes.Contains(request, []byte("commit")) }
	for name, drop := range map[string]func(*Proxy){
		"quiet": func(p *Proxy) { p.DropReply(commit) },
		"complete": func(p *Proxy) {
			p.DropReplyWhen(commit, func(reply []byte) bool { return bytes.HasSuffix(reply, []byte("\n")) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, p := setup(t)
			drop(p)
			c := dial(t, p)
			c.send("insert\n")
			c.wantReply("insert\n")
			c.send("com") // a request may come in pieces
			c.wantSilence()
			c.send("mit\n")
			c.wantReset()
			if got := fmt.Sprint(e.seen()); got != "[insert commit]" {
				t.Errorf("the server saw %s, want the request whose reply was lost", got)
			}
			if got := p.Counters(); got.Dropped != 1 || got.Trips != 2 {
				t.Errorf("got %+v, want 1 dropped of 2 trips", got)
			}
			c = dial(t, p)
			c.send("select\n")
			c.wantReply("select\n")
		})
	}
}

func TestDropReplyOnce(t *testing.T) {
	t.Parallel()
	_, p := setup(t)
	p.DropReply(func([]byte) bool {
		p.Pass()
		return true
	})
	c := dial(t, p)
	c.send("one\n")
	c.wantReset()
	c = dial(t, p)
	c.send("two\n")
	c.wantReply("two\n")
}

func TestServerDown(t *testing.T) {
	t.Parallel()
	e, p := setup(t)
	e.listener.Close()
	wantRefused(t, p)
}

func TestCloseWhileBusy(t *testing.T) {
	t.Parallel()
	_, p := setup(t)
	p.Stall()
	for range 3 {
		dial(t, p).send("stuck\n")
	}
	p.Close()
	p.Close()
	if conn, err := net.Dial("tcp", p.Addr()); err == nil {
		conn.Close()
		t.Error("a closed proxy accepts connections")
	}
}
