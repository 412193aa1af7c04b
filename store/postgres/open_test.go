package postgres

import (
	"cmp"
	"context"
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

	"github.com/helixagents/helix/internal/eventually"
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
				errs[i] = session.Create(t.Context(), backends[i].Sessions(), &session.State{ID: fmt.Sprint(i), Agent: "a", Status: session.Active})
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
		t.Errorf("%d of %d migrations are recorded, %v", applied, len(steps), err)
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

// at returns the URL of the test database with a change.
func at(t *testing.T, change func(*url.URL)) string {
	t.Helper()
	u, err := url.Parse(DatabaseForTest(t))
	if err != nil {
		t.Fatal(err)
	}
	change(u)
	return u.String()
}

// silent returns the address of a server that accepts connections and never
// answers.
func silent(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String()
}

// openSoon opens a database that cannot be used. The error comes without waiting for the connect timeout, unless the config
// has one.
func openSoon(t *testing.T, config Config) error {
	t.Helper()
	config.ConnectTimeout = cmp.Or(config.ConnectTimeout, 2*eventually.Patience)
	refused := make(chan error, 1)
	go func() {
		b, err := OpenConfig(config)
		if err == nil {
			_ = b.Close()
		}
		refused <- err
	}()
	return eventually.Receive(t, "a refusal", refused)
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t-word"
	role := SchemaForTest(t) // a unique name
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
		"long schema": {
			Config{URL: DatabaseForTest(t), Schema: strings.Repeat("s", 50)}, session.ErrInvalid, "at most 49 bytes",
		},
		"@ in the password":       {Config{URL: "postgres://u:p@" + secret + "@host:port/x"}, session.ErrInvalid, "database URL"},
		"a space in the password": {Config{URL: "postgres://u:p@a " + secret + "@host:port/x"}, session.ErrInvalid, "database URL"},
		"password as a setting":   {Config{URL: "postgres://u@host:port/x?password=" + secret}, session.ErrInvalid, "database URL"},
		"closed port": {
			Config{URL: "postgres://u:" + secret + "@127.0.0.1:1/x"}, session.ErrUnavailable, "check the address",
		},
		"silent server": {
			Config{URL: "postgres://u:" + secret + "@" + silent(t) + "/x", ConnectTimeout: time.Second}, session.ErrUnavailable, "check the address",
		},
		"missing database": {
			Config{URL: at(t, func(u *url.URL) { u.Path = "/no_such_database" })}, session.ErrUnavailable, "the database does not exist",
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
		err := openSoon(t, c.config)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %v that says %q", name, err, c.want, c.says)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error contains the password: %v", name, err)
		}
	}
	var made int
	b := openTest(t)
	err := b.query(t.Context(), "count", func(rows pgx.Rows) error { return rows.Scan(&made) }, "SELECT count(*) FROM pg_namespace WHERE nspname = $1", role)
	if err != nil || made != 0 {
		t.Errorf("%d schemas were created by failed openings, %v", made, err)
	}
}

// TestOldServer passes a version number to the check, because no such old server
// is available.
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

// TestServerErrors checks the messages that operators get for the server's errors.
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
		stateNoRights:     {"lacks a privilege", false},
		stateShutdown:     {"unavailable", true},
		stateLockTimeout:  {"another transaction", true},
		"21000":           {"refused the statement", false},
		"42601":           {"refused the statement", false},
	} {
		err := b.failure("write", &pgconn.PgError{Code: state, Message: "said the server"})
		if !errors.Is(err, session.ErrUnavailable) || session.IsRetryable(err) != want.retry || !strings.Contains(err.Error(), want.says) {
			t.Errorf("%s: %v", state, err)
		}
	}
	for state, want := range map[string]bool{
		stateShutdown: true, stateCrash: true, stateStarting: true, stateTooManyConns: true, stateDeadlock: true, "08006": true,
		stateNoRights: false, stateNoDatabase: false,
	} {
		if err := openFailure(&b.config, &pgconn.PgError{Code: state}); session.IsRetryable(err) != want {
			t.Errorf("opening: %s: %v", state, err)
		}
	}
}

// TestDataErrors requires that errors caused by the data are not retryable.
func TestDataErrors(t *testing.T) {
	t.Parallel()
	b := openTest(t)
	ignore := func(pgx.Rows) error { return nil }
	var n int
	for name, c := range map[string]struct {
		err  error
		want error
	}{
		"a number out of the column's range": {
			b.query(t.Context(), "write", ignore, "SELECT $1::integer", int64(1)<<40), session.ErrInvalid,
		},
		"the same in a transaction": {
			b.transact(t.Context(), "write", func(_ context.Context, t *tx) error {
				t.exec("SELECT $1::integer", int64(1)<<40)
				return nil
			}), session.ErrInvalid,
		},
		"a number out of the server's range": {b.query(t.Context(), "write", ignore, "SELECT (2147483647 + $1::integer)", 1), session.ErrInvalid},
		"a constraint": {
			b.query(t.Context(), "write", ignore, "INSERT INTO helix.migrations (number) VALUES (1000)"), session.ErrInvalid,
		},
		"a message too long": {b.failure("write", errors.New("message body too large")), session.ErrTooLarge},
		"a column of another type": {
			b.query(t.Context(), "read", func(rows pgx.Rows) error { return rows.Scan(&n) }, "SELECT 'x'::text"), session.ErrCorrupt,
		},
	} {
		if !errors.Is(c.err, c.want) || session.IsRetryable(c.err) {
			t.Errorf("%s: got %v, want %v", name, c.err, c.want)
		}
	}
	if err := b.query(t.Context(), "read", ignore, "SELECT 1"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestSlowMigration lets another process migrate the tables for longer than
// connecting may take.
func TestSlowMigration(t *testing.T) {
	t.Parallel()
	config := Config{URL: DatabaseForTest(t), Schema: SchemaForTest(t), ConnectTimeout: 500 * time.Millisecond}
	conn, err := pgx.Connect(t.Context(), config.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	other, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Exec(t.Context(), lockMigrations, config.Schema); err != nil {
		t.Fatal(err)
	}
	opened := make(chan error, 1)
	go func() {
		b, err := OpenConfig(config)
		if err == nil {
			err = b.Close()
		}
		opened <- err
	}()
	select {
	case err := <-opened:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(3 * config.ConnectTimeout): // waits: it must not give up, which has no signal
	}
	if err := other.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

// TestRights requires an error for tables, and a sequence, for which the user
// lacks one privilege.
func TestRights(t *testing.T) {
	t.Parallel()
	schema, role := openTest(t).config.Schema, SchemaForTest(t)
	execTest(t, "CREATE ROLE "+role+" LOGIN PASSWORD 'word'", "GRANT USAGE ON SCHEMA "+schema+" TO "+role,
		"GRANT SELECT ON ALL TABLES IN SCHEMA "+schema+" TO "+role)
	t.Cleanup(func() { execTest(t, "DROP OWNED BY "+role, "DROP ROLE "+role) })
	config := Config{URL: at(t, func(u *url.URL) { u.User = url.UserPassword(role, "word") }), Schema: schema}
	for _, grant := range []string{
		"SELECT, INSERT, UPDATE ON ALL TABLES", "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES", "USAGE ON SEQUENCE session_numbers",
	} {
		b, err := OpenConfig(config)
		if err == nil {
			_ = b.Close()
		}
		if !errors.Is(err, session.ErrUnavailable) || !strings.Contains(err.Error(), "lacks privileges") {
			t.Errorf("without %s: %v", grant, err)
		}
		if sequence, ok := strings.CutPrefix(grant, "USAGE ON SEQUENCE "); ok {
			execTest(t, "GRANT USAGE ON SEQUENCE "+schema+"."+sequence+" TO "+role)
		} else {
			execTest(t, "GRANT "+grant+" IN SCHEMA "+schema+" TO "+role)
		}
	}
	b, err := OpenConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	if err := session.Create(t.Context(), b.Sessions(), &session.State{ID: "a", Agent: "a", Status: session.Active}); err != nil {
		t.Error(err)
	}
}

// TestLongSchema sends notifications with the longest allowed name of a schema.
func TestLongSchema(t *testing.T) {
	t.Parallel()
	name := SchemaForTest(t)
	name += strings.Repeat("_", maxSchema-len(name))
	t.Cleanup(func() { execTest(t, "DROP SCHEMA IF EXISTS "+name+" CASCADE") })
	b := openTest(t, func(c *Config) { c.Schema = name })
	if _, err := b.pool.Exec(t.Context(), "SELECT pg_notify($1, '')", b.channel()); err != nil {
		t.Error(err)
	}
}

// TestConnectTimeout uses a server that does not answer in time: that is not the
// end of the caller's context, although the driver reports it with the same text.
func TestConnectTimeout(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	config, err := pgx.ParseConfig("postgres://u@" + silent.Addr().String() + "/d?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	config.ConnectTimeout = 50 * time.Millisecond
	_, err = pgx.ConnectConfig(t.Context(), config)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("the driver says %v", err)
	}
	if !isLost(err) {
		t.Error("it does not count as lost")
	}
	if err := openTest(t).failure("commit", err); !errors.Is(err, session.ErrUnavailable) || !session.IsRetryable(err) {
		t.Errorf("got %v", err)
	}
}
