package postgres

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/session"
)

// TestReady requires that a read-only server, one without the tables and one that
// has stopped are not ready.
func TestReady(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := testserver.StartPostgres(t)
	conn := operator(t, server)
	b, err := OpenConfig(Config{URL: server.URL(), NoListen: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	b.writes.Always()
	ready := func(what, complaint string) {
		t.Helper()
		err := b.Ready(ctx)
		switch {
		case complaint == "" && err != nil:
			t.Errorf("%s: %v", what, err)
		case complaint != "" && (!errors.Is(err, session.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), complaint)):
			t.Errorf("%s: got %v, want it to say %q", what, err, complaint)
		}
	}
	after := func(queries ...string) {
		t.Helper()
		operate(t, conn, queries...)
		b.pool.Reset() // the setting applies to new connections
	}
	ready("a server that works", "")
	after("ALTER DATABASE postgres SET default_transaction_read_only = on")
	ready("a server that is read-only", "read-only")
	after("SET default_transaction_read_only = off", "ALTER DATABASE postgres SET default_transaction_read_only = off")
	ready("a server that accepts writes again", "")
	after("ALTER TABLE helix.locks RENAME TO others")
	ready("a server that refuses the write", "the backend's tables do not exist")
	after("ALTER TABLE helix.others RENAME TO locks", "ALTER TABLE helix.sessions RENAME TO others")
	ready("a server without the tables", "the backend's tables do not exist")
	after("ALTER TABLE helix.others RENAME TO sessions")
	ready("a server that has them again", "")
	server.Kill()
	var gone error
	for range 10 { // a connection of the pool may first return the server's last message
		if gone = b.Ready(ctx); strings.Contains(fmt.Sprint(gone), "cannot be reached") {
			break
		}
		if !errors.Is(gone, session.ErrUnavailable) {
			t.Fatalf("a server that is gone: got %v, want it unavailable", gone)
		}
	}
	if !errors.Is(gone, session.ErrUnavailable) || !strings.Contains(fmt.Sprint(gone), "cannot be reached") {
		t.Errorf("a server that is gone: got %v, want it to say that it cannot be reached", gone)
	}
}
