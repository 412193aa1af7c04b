package testserver

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"
)

// pingTimeout is how long a server that is up may take to answer one ping.
const pingTimeout = 5 * time.Second

// dial opens a connection for one ping, with its deadline set.
func dial(ctx context.Context, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout) // waits: one that is lost in a start must not keep from the next
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	return conn, conn.SetDeadline(deadline) // waits: see above
}

// pingHTTP requests a page.
func pingHTTP(ctx context.Context, page string) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout) // waits: one that is lost in a start must not keep from the next
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return err
	}
	request.Close = true
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("what listens there answers %s", answer.Status)
	}
	return nil
}
