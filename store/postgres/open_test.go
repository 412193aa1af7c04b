package postgres

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/helixagents/helix/session"
)

func TestOpenTogether(t *testing.T) {
	t.Parallel()
	config := Config{URL: DatabaseForTest(t), Schema: SchemaForTest(t), MaxConns: 2}
	const n = 10
	var (
		backends [n]*Backend
		errs     [n]error
		done     sync.WaitGroup
	)
	gate := make(chan struct{})
	for i := range n {
		done.Go(func() {
			<-gate
			if backends[i], errs[i] = OpenConfig(config); errs[i] == nil {
				errs[i] = backends[i].Sessions().Create(t.Context(), &session.State{ID: fmt.Sprint(i), Agent: "a", Status: session.Active})
			}
		})
	}
	close(gate)
	done.Wait()
	for i, b := range backends {
		if errs[i] != nil {
			t.Errorf("open %d: %v", i, errs[i])
		}
		if b != nil {
			t.Cleanup(func() { _ = b.Close() })
		}
	}
	if t.Failed() {
		return
	}
	page, err := backends[0].Sessions().List(t.Context(), session.Query{})
	if err != nil || len(page.Items) != n {
		t.Errorf("%d sessions, %v", len(page.Items), err)
	}
	var applied int
	err = backends[0].query(t.Context(), "count", func(rows pgx.Rows) error { return rows.Scan(&applied) }, "SELECT count(*) FROM helix.migrations")
	if steps, _ := migrations(); err != nil || applied != len(steps) {
		t.Errorf("%d of %d migrations are noted, %v", applied, len(steps), err)
	}
}

func TestNewerDatabase(t *testing.T) {
	t.Parallel()
	b := openTest(t)
	pretend := func(number, readableFrom int) {
		t.Helper()
		ExecForTest(t, b.sql("INSERT INTO helix.migrations (number, name, applied_at, readable_from) VALUES ($1, 'later', now(), $2)"), number, readableFrom)
	}
	steps, err := migrations()
	if err != nil {
		t.Fatal(err)
	}
	pretend(98, len(steps)) // newer, but this program can use it
	again, err := OpenConfig(Config{URL: DatabaseForTest(t), Schema: b.config.Schema})
	if err != nil {
		t.Fatalf("a newer database that can be used: %v", err)
	}
	_ = again.Close()
	pretend(99, 99)
	_, err = OpenConfig(Config{URL: DatabaseForTest(t), Schema: b.config.Schema})
	if !errors.Is(err, session.ErrNotSupported) || !strings.Contains(err.Error(), "schema 99") {
		t.Errorf("a newer database: %v", err)
	}
}

// at changes the URL of the test database.
func at(t *testing.T, change func(*url.URL)) string {
	t.Helper()
	u, err := url.Parse(DatabaseForTest(t))
	if err != nil {
		t.Fatal(err)
	}
	change(u)
	return u.String()
}

// silent is the address of a server that accepts connections and says nothing.
func silent(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String()
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t-word"
	role := SchemaForTest(t) // a name that nobody else uses
	execTest(t, "CREATE ROLE "+role+" LOGIN PASSWORD '"+secret+"'")
	t.Cleanup(func() { execTest(t, "DROP ROLE "+role) })
	foreign := openTest(t).config.Schema
	nobody := at(t, func(u *url.URL) { u.User = url.UserPassword(role, secret) })
	for name, c := range map[string]struct {
		config Config
		want   error
		says   string
	}{
		"no URL":    {Config{}, session.ErrInvalid, "must not be empty"},
		"no sense":  {Config{URL: "postgres://user:" + secret + "@host:port/x"}, session.ErrInvalid, "database URL"},
		"no scheme": {Config{URL: "localhost/helix"}, session.ErrInvalid, "database URL"},
		"schema":    {Config{URL: DatabaseForTest(t), Schema: `a"b`}, session.ErrInvalid, "schema"},
		"closed port": {
			Config{URL: "postgres://u:" + secret + "@127.0.0.1:1/x"}, session.ErrUnavailable, "check the address",
		},
		"silent server": {
			Config{URL: "postgres://u:" + secret + "@" + silent(t) + "/x", ConnectTimeout: time.Second}, session.ErrUnavailable, "check the address",
		},
		"missing database": {
			Config{URL: at(t, func(u *url.URL) { u.Path = "/no_such_database" })}, session.ErrUnavailable, "no such database",
		},
		"missing user": {
			Config{URL: at(t, func(u *url.URL) { u.User = url.UserPassword("no_such_user", secret) })}, session.ErrUnavailable, "check the user",
		},
		"no right to create": {Config{URL: nobody, Schema: role}, session.ErrUnavailable, "GRANT CREATE ON DATABASE"},
		"no right to use":    {Config{URL: nobody, Schema: foreign}, session.ErrUnavailable, "GRANT USAGE ON SCHEMA"},
		"read-only": {
			Config{URL: at(t, func(u *url.URL) { u.RawQuery = "default_transaction_read_only=on" }), Schema: role}, session.ErrUnavailable, "read-only",
		},
	} {
		begun := time.Now()
		_, err := OpenConfig(c.config)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %v that says %q", name, err, c.want, c.says)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error tells the password: %v", name, err)
		}
		if took := time.Since(begun); took > 6*time.Second {
			t.Errorf("%s: it took %v", name, took)
		}
	}
	var made int
	b := openTest(t)
	err := b.query(t.Context(), "count", func(rows pgx.Rows) error { return rows.Scan(&made) }, "SELECT count(*) FROM pg_namespace WHERE nspname = $1", role)
	if err != nil || made != 0 {
		t.Errorf("%d schemas were made by openings that failed, %v", made, err)
	}
}

// TestOldServer tells a server's version from what it says, for none so old is at
// hand.
func TestOldServer(t *testing.T) {
	t.Parallel()
	err := checkServer(130011, "off")
	if !errors.Is(err, session.ErrNotSupported) || !strings.Contains(err.Error(), "14 or newer") {
		t.Errorf("version 13: %v", err)
	}
	if err := checkServer(140000, "off"); err != nil {
		t.Errorf("version 14: %v", err)
	}
}

// TestServerErrors says what operators are told of what the server says.
func TestServerErrors(t *testing.T) {
	t.Parallel()
	b := openTest(t)
	for state, want := range map[string]struct {
		says  string
		retry bool
	}{
		stateDiskFull:     {"disk is full", true},
		stateReadOnly:     {"read-only", true},
		stateTooManyConns: {"max_connections", true},
		stateNoRights:     {"lacks a right", false},
		"57P01":           {"unavailable", true},
	} {
		err := b.failure("write", &pgconn.PgError{Code: state, Message: "said the server"})
		if !errors.Is(err, session.ErrUnavailable) || session.IsRetryable(err) != want.retry || !strings.Contains(err.Error(), want.says) {
			t.Errorf("%s: %v", state, err)
		}
	}
}
