package dbos

import (
	"context"
	"log/slog"
	"math"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// silence is how long a server may leave what was sent to it unanswered. Its host may have
// vanished without a word; a connection on which it is silent for longer is closed.
type silence struct {
	limit atomic.Int64 // a duration; 0 is none
	log   *slog.Logger
}

func (s *silence) setLimit(limit time.Duration) { s.limit.Store(int64(limit)) }

// dialer returns a function that makes connections with the limit.
func (s *silence) dialer(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c := &limitedConn{Conn: conn, silence: s}
		c.timer = time.AfterFunc(math.MaxInt64, func() {
			s.log.WarnContext(ctx, "dbos.silence", "closed", conn.RemoteAddr(), "limit", time.Duration(s.limit.Load()))
			_ = conn.Close()
		})
		return c, nil
	}
}

// limitedConn is a connection with a limit from the moment at which something is sent until the
// first part of the answer: where an answer ends is not known here, and a connection may wait for
// notifications without a limit.
type limitedConn struct {
	net.Conn
	silence *silence
	timer   *time.Timer // closes the connection
}

func (c *limitedConn) Write(p []byte) (int, error) {
	if limit := c.silence.limit.Load(); limit > 0 {
		c.timer.Reset(time.Duration(limit))
	}
	return c.Conn.Write(p)
}

func (c *limitedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.timer.Stop()
	}
	return n, err
}

func (c *limitedConn) Close() error {
	c.timer.Stop()
	return c.Conn.Close()
}
