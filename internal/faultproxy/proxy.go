// Package faultproxy stands between a client and a server and makes the network as bad as a test needs it: slow, cut off,
// stuck half-way through a message, or losing the one reply that says that a write was done.
//
// It knows no protocol. What a client sends until the server begins to answer is a request, what the server then sends is its
// reply, and the two are a round trip; the proxy counts those, which shows how chatty a client is.
package faultproxy

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy passes connections on to a server. Its methods may be called from any goroutine; a change of mode holds for all
// connections, those that are open included.
type Proxy struct {
	listener net.Listener
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu      sync.Mutex
	target  string
	mode    mode
	changed chan struct{} // closed when mode has been replaced
	links   map[*link]struct{}
	counts  Counters

	matching sync.Mutex // held while a test's function runs
}

// mode is how a proxy treats what it gets. The zero value passes everything on.
type mode struct {
	refuse bool
	stall  bool
	delay  time.Duration
	drop   *drop
}

// drop says which replies get lost.
type drop struct {
	match    func(request []byte) bool
	complete func(reply []byte) bool // nil: when nothing more comes
}

// Counters say what a proxy has seen so far.
type Counters struct {
	Connections int64 // that were accepted and not refused
	Trips       int64 // requests that were answered
	Dropped     int64 // replies that were lost on purpose
	Sent        int64 // bytes that came from clients
	Received    int64 // bytes that came from the server
}

// New starts a proxy for the server at target, a host and port. It is closed when the test ends.
func New(tb testing.TB, target string) *Proxy {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		cancel()
		tb.Fatalf("start a proxy for %s: %v", target, err)
	}
	p := &Proxy{
		target:   target,
		listener: listener,
		cancel:   cancel,
		changed:  make(chan struct{}),
		links:    map[*link]struct{}{},
	}
	p.running.Go(func() { p.accept(ctx) })
	tb.Cleanup(p.Close)
	return p
}

// Addr returns the host and port that clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// SetTarget has new connections go to another server, for one that was started again at another address.
func (p *Proxy) SetTarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Pass lets everything through again, what was held up included.
func (p *Proxy) Pass() { p.set(mode{}) }

// Delay holds each piece of data for a while, in both directions: a round trip takes at least twice as long.
func (p *Proxy) Delay(d time.Duration) { p.set(mode{delay: d}) }

// Stall passes on only the first half of the next piece of data in each direction of each connection, and then nothing.
// Connections stay open, and what is sent is accepted until the buffers of the system are full.
func (p *Proxy) Stall() { p.set(mode{stall: true}) }

// Refuse resets new connections as soon as they are made. Open ones continue.
func (p *Proxy) Refuse() { p.set(mode{refuse: true}) }

// DropReply lets each request that matches reach the server, waits for the server's reply, and then resets the client's
// connection instead of passing the reply on: the server has done what the client cannot know is done.
//
// match gets what the client has sent since the last reply, each time more of it has come. It is never called twice at the
// same time, and may change the mode: a request that has matched loses its reply, whatever comes next. The reply counts as whole when nothing more of it comes for a moment; see [Proxy.DropReplyWhen] for servers that
// may pause in it.
func (p *Proxy) DropReply(match func(request []byte) bool) { p.set(mode{drop: &drop{match: match}}) }

// DropReplyWhen is DropReply for a reply that is whole when complete says so. complete gets what has come of the reply, each
// time more has come.
func (p *Proxy) DropReplyWhen(match, complete func([]byte) bool) {
	p.set(mode{drop: &drop{match: match, complete: complete}})
}

// Vanish has the server's end of each open connection go away without a word: the client's end stays open, and nothing
// arrives on it any more. New connections are passed on.
func (p *Proxy) Vanish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.vanish()
	}
}

// Reset cuts all open connections off with a TCP reset, on both sides. The mode stays as it is.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.reset()
	}
}

// Trips returns the number of round trips so far, over all connections.
func (p *Proxy) Trips() int64 { return p.Counters().Trips }

// Counters returns what the proxy has counted so far.
func (p *Proxy) Counters() Counters {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts
}

// Close cuts all connections off and returns when all that the proxy has started is done. It may be called more than once.
func (p *Proxy) Close() {
	p.cancel()
	_ = p.listener.Close() // a second time, perhaps
	p.Reset()
	p.running.Wait()
}

func (p *Proxy) set(m mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = m
	close(p.changed)
	p.changed = make(chan struct{})
}

// current returns the mode and a channel that is closed when it no longer holds.
func (p *Proxy) current() (m mode, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode, p.changed
}

func (p *Proxy) count(f func(*Counters)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.counts)
}

// acceptPause is how long to wait before accepting again after that has failed.
const acceptPause = 10 * time.Millisecond

func (p *Proxy) accept(ctx context.Context) {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			// The proxy is closed, or the process is short of files for a moment.
			select {
			case <-ctx.Done():
				return
			case <-time.After(acceptPause): // waits: nothing tells that there are files again
				continue
			}
		}
		client := conn.(*net.TCPConn)
		if m, _ := p.current(); m.refuse {
			abort(client)
			continue
		}
		p.count(func(c *Counters) { c.Connections++ })
		p.running.Go(func() { p.serve(ctx, client) })
	}
}

// serve connects a client with the server until one of them hangs up.
func (p *Proxy) serve(ctx context.Context, client *net.TCPConn) {
	const timeout = 10 * time.Second
	d := net.Dialer{Timeout: timeout}
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	conn, err := d.DialContext(ctx, "tcp", target)
	if err != nil {
		abort(client) // as if it had reached the server itself
		return
	}
	l := &link{proxy: p, client: client, server: conn.(*net.TCPConn), cut: make(chan struct{}), gone: make(chan struct{})}
	if !p.add(ctx, l) {
		l.reset()
		return
	}
	l.run()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// add reports whether the proxy still is open.
func (p *Proxy) add(ctx context.Context, l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	p.links[l] = struct{}{}
	return true
}

// matches asks the test about a request.
func (p *Proxy) matches(d *drop, request []byte) bool {
	p.matching.Lock()
	defer p.matching.Unlock()
	return d.match(request)
}

// abort closes a connection with a reset.
func abort(conn *net.TCPConn) {
	_ = conn.SetLinger(0) // it may be closed already
	_ = conn.Close()
}
