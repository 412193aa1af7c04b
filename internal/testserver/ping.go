package testserver

import (
	"context"
	"net"
	"time"
)

// pingTimeout is how long a server that is up may take to answer one ping.
const pingTimeout = 5 * time.Second

// dial opens a connection for one ping, with its deadline set.
func dial(ctx context.Context, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	return conn, conn.SetDeadline(deadline)
}
