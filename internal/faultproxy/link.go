package faultproxy

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// link is a client's connection and the one to the server that belongs to it.
type link struct {
	proxy          *Proxy
	client, server *net.TCPConn

	cut     chan struct{} // closed when the link has been reset
	cutOnce sync.Once

	gone     chan struct{} // closed when the server's end has vanished
	goneOnce sync.Once

	asked    atomic.Bool // the client has sent something since the last reply
	dropping atomic.Pointer[drop]
}

// run passes data on in both directions until the connections are closed.
func (l *link) run() {
	var directions sync.WaitGroup
	directions.Go(l.passRequests)
	directions.Go(l.passReplies)
	directions.Wait()
	l.close()
}

// close closes both connections, after both sides have said that they have nothing more to send.
func (l *link) close() {
	l.cutOnce.Do(func() {
		close(l.cut)
		_ = l.client.Close() // nothing is lost: all has been written
		_ = l.server.Close()
	})
}

// reset closes both connections with a TCP reset.
func (l *link) reset() {
	l.cutOnce.Do(func() {
		close(l.cut)
		abort(l.client)
		abort(l.server)
	})
}

// vanish takes the server's end away, and leaves the client's open.
func (l *link) vanish() {
	l.goneOnce.Do(func() {
		close(l.gone)
		abort(l.server)
	})
}

// vanished reports whether the server's end has vanished.
func (l *link) vanished() bool {
	select {
	case <-l.gone:
		return true
	default:
		return false
	}
}

// pieceSize is how much is passed on at once.
const pieceSize = 64 << 10

func (l *link) passRequests() {
	var request []byte // what has come since the last reply, while replies are being dropped
	buf := make([]byte, pieceSize)
	for {
		n, err := l.client.Read(buf)
		if n > 0 {
			// Before the server can answer: the reply that is to be lost must not slip through.
			if !l.asked.Swap(true) {
				request = request[:0]
			}
			if m, _ := l.proxy.current(); m.drop != nil {
				request = append(request, buf[:n]...)
				if l.proxy.matches(m.drop, request) {
					l.dropping.Store(m.drop)
				}
			}
			l.proxy.count(func(c *Counters) { c.Sent += int64(n) })
			if !l.pass(l.server, buf[:n]) {
				return
			}
		}
		if err != nil {
			l.end(l.server, err)
			return
		}
	}
}

func (l *link) passReplies() {
	buf := make([]byte, pieceSize)
	for {
		n, err := l.server.Read(buf)
		if n > 0 {
			first := l.asked.Swap(false)
			l.proxy.count(func(c *Counters) {
				c.Received += int64(n)
				if first {
					c.Trips++
				}
			})
			if d := l.dropping.Load(); d != nil {
				l.dropReply(d, buf, n)
				return
			}
			if !l.pass(l.client, buf[:n]) {
				return
			}
		}
		if l.vanished() {
			return
		}
		if err != nil {
			l.end(l.client, err)
			return
		}
	}
}

// pass writes data as the mode wants it written. It reports whether the link still stands.
func (l *link) pass(to io.Writer, data []byte) bool {
	m, changed := l.proxy.current()
	if m.delay > 0 && !l.hold(m.delay, changed) {
		return false
	}
	if m.stall {
		half := len(data) / 2
		if !l.write(to, data[:half]) {
			return false
		}
		data = data[half:]
		for m.stall {
			select {
			case <-changed:
				m, changed = l.proxy.current()
			case <-l.gone:
				return true
			case <-l.cut:
				return false
			}
		}
	}
	return l.write(to, data)
}

// write writes data, unless the server's end has vanished. It reports whether the link still stands.
func (l *link) write(to io.Writer, data []byte) bool {
	if l.vanished() {
		return true
	}
	if _, err := to.Write(data); err != nil && !l.vanished() {
		l.reset()
		return false
	}
	return true
}

// hold waits for a while, for a change of mode, or for the link to be cut.
func (l *link) hold(d time.Duration, changed <-chan struct{}) (standing bool) {
	timer := time.NewTimer(d) // waits: to be slow is what the proxy is for
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-l.cut:
		return false
	}
	return true
}

// quiet is how long a server pauses at the end of a reply, and not within it.
const quiet = 50 * time.Millisecond

// dropReply reads the reply, of which buf[:n] has come, to its end and resets the link.
func (l *link) dropReply(d *drop, buf []byte, n int) {
	defer l.reset()
	reply := append([]byte(nil), buf[:n]...)
	for d.complete == nil || !d.complete(reply) {
		if d.complete == nil {
			// waits: a reply is whole when nothing more of it comes for a moment
			_ = l.server.SetReadDeadline(time.Now().Add(quiet)) // fails if closed, and then so does Read
		}
		n, err := l.server.Read(buf)
		reply = append(reply, buf[:n]...)
		l.proxy.count(func(c *Counters) { c.Received += int64(n) })
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return // the link was cut before: nothing was lost on purpose
		}
	}
	l.proxy.count(func(c *Counters) { c.Dropped++ })
}

// end passes on that one side has nothing more to send.
func (l *link) end(to *net.TCPConn, err error) {
	if !errors.Is(err, io.EOF) || to.CloseWrite() != nil {
		l.reset()
	}
}
