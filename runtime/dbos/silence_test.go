package dbos

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// A connection closes when an answer does not come, and not while nothing was asked, nor before
// the limit holds.
func TestSilence(t *testing.T) {
	t.Parallel()
	const limit = time.Second
	for name, c := range map[string]struct {
		talk   func(t *testing.T, s *silence, client, server net.Conn)
		closed bool
	}{
		"nothing asked": {func(*testing.T, *silence, net.Conn, net.Conn) {}, false},
		"no answer":     {func(t *testing.T, _ *silence, client, server net.Conn) { ask(t, client, server) }, true},
		"an answer": {func(t *testing.T, _ *silence, client, server net.Conn) {
			ask(t, client, server)
			ask(t, server, client)
		}, false},
		"asked again": {func(t *testing.T, _ *silence, client, server net.Conn) {
			ask(t, client, server)
			ask(t, server, client)
			ask(t, client, server)
		}, true},
		"no limit yet": {func(t *testing.T, s *silence, client, server net.Conn) {
			s.setLimit(0)
			ask(t, client, server)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				end, server := net.Pipe()
				s := &silence{log: slog.New(slog.DiscardHandler)}
				s.setLimit(limit)
				client, err := s.dialer(func(context.Context, string, string) (net.Conn, error) { return end, nil })(t.Context(), "", "")
				if err != nil {
					t.Fatal(err)
				}
				c.talk(t, s, client, server)
				time.Sleep(limit) // of the bubble's clock
				synctest.Wait()
				if closed := end.SetDeadline(time.Time{}) != nil; closed != c.closed {
					t.Errorf("the connection is closed: %v", closed)
				}
				if err := client.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
					t.Error(err)
				}
				_ = server.Close()
			})
		})
	}
}

// ask sends a byte from one end to the other.
func ask(t *testing.T, from, to net.Conn) {
	t.Helper()
	sent := make(chan error, 1)
	go func() {
		_, err := from.Write([]byte{1})
		sent <- err
	}()
	if _, err := to.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}
