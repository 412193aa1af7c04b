package postgres

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/session"
)

// operator returns a superuser's connection to the test's own server.
func operator(t *testing.T, server *testserver.Server) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}

func operate(t *testing.T, conn *pgx.Conn, queries ...string) {
	t.Helper()
	for _, query := range queries {
		if _, err := conn.Exec(t.Context(), query); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
	}
}

// refuses opens a database that cannot be used: the error comes soon, says what to
// do, contains no secret, and nothing was created.
func refuses(t *testing.T, by *pgx.Conn, config Config, advice, secret string) {
	t.Helper()
	err := openSoon(t, config)
	if !errors.Is(err, session.ErrUnavailable) || !strings.Contains(err.Error(), advice) {
		t.Errorf("got %v, want an error that says %q", err, advice)
	}
	if err != nil && secret != "" && strings.Contains(err.Error(), secret) {
		t.Errorf("the error contains the password: %v", err)
	}
	var made bool
	err = by.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'helix')").Scan(&made)
	if err != nil || made {
		t.Errorf("a schema was created: %v, %v", made, err)
	}
}

// askPasswords makes a server require a password from everybody but the superuser,
// and waits until it does.
func askPasswords(t *testing.T, conn *pgx.Conn, someone string) {
	t.Helper()
	var file string
	if err := conn.QueryRow(t.Context(), "SHOW hba_file").Scan(&file); err != nil {
		t.Fatal(err)
	}
	operate(t, conn,
		"COPY (VALUES ('host all postgres 127.0.0.1/32 trust'), ('host all all 127.0.0.1/32 scram-sha-256')) TO '"+file+"'",
		"SELECT pg_reload_conf()")
	eventually.Poll(t, "the server asks for a password", func() bool {
		let, err := pgx.Connect(t.Context(), someone)
		if err == nil {
			_ = let.Close(t.Context())
		}
		return err != nil
	})
}

func TestWrongPassword(t *testing.T) {
	t.Parallel()
	const right, wrong = "right-word", "wr0ng-word"
	server := testserver.StartPostgres(t)
	conn := operator(t, server)
	operate(t, conn, "SET password_encryption = 'scram-sha-256'", "CREATE ROLE app LOGIN PASSWORD '"+right+"'",
		"GRANT CREATE ON DATABASE postgres TO app")
	as := func(user *url.Userinfo) Config {
		u, err := url.Parse(server.URL())
		if err != nil {
			t.Fatal(err)
		}
		u.User = user
		return Config{URL: u.String()}
	}
	askPasswords(t, conn, as(url.User("app")).URL)

	const advice = "check the user, the password and the server's pg_hba.conf"
	refuses(t, conn, as(url.UserPassword("app", wrong)), advice, wrong)
	refuses(t, conn, as(url.UserPassword("stranger", wrong)), advice, wrong)

	b, err := OpenConfig(as(url.UserPassword("app", right)))
	if err != nil {
		t.Fatalf("with the right password: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// TestReadOnlyServer opens a read-only server, and a server that becomes
// read-only.
func TestReadOnlyServer(t *testing.T) {
	t.Parallel()
	const advice = "the primary (target_session_attrs=read-write), or end its read-only mode"
	server := testserver.StartPostgres(t, "default_transaction_read_only=on")
	conn := operator(t, server)
	refuses(t, conn, Config{URL: server.URL()}, advice, "")

	operate(t, conn, "SET default_transaction_read_only = off", "ALTER DATABASE postgres SET default_transaction_read_only = off")
	b, err := Open(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	turn := newWireTurn(t, b)
	operate(t, conn, "ALTER DATABASE postgres SET default_transaction_read_only = on")
	b.pool.Reset() // the setting applies to new connections
	for what, write := range map[string]func() error{
		"commit":             func() error { return turn.change(t.Context(), session.Change{}) },
		"commit with chunks": func() error { return turn.commitWith(1)(t.Context()) },
	} {
		if err := write(); !errors.Is(err, session.ErrUnavailable) || !session.IsRetryable(err) || !strings.Contains(err.Error(), advice) {
			t.Errorf("%s: got %v, want a retryable error that says %q", what, err, advice)
		}
	}
	state, err := b.Sessions().Load(t.Context(), "a")
	if err != nil || state.Version != turn.version {
		t.Errorf("the session is %+v, %v, want version %d", state, err, turn.version)
	}
	operate(t, conn, "ALTER DATABASE postgres SET default_transaction_read_only = off")
	b.pool.Reset()
	if err := turn.commitWith(1)(t.Context()); err != nil {
		t.Errorf("once it is writable: %v", err)
	}
}
