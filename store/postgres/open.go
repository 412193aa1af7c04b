package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/helixagents/helix/internal/dial"
	"github.com/helixagents/helix/session"
)

// oldest is the first version of the server that is supported.
const oldest = 14

// newPool configures a pool, which connects when it is used.
func newPool(ctx context.Context, c *Config) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		return nil, session.Invalid("database URL", "cannot be parsed: %s", misread(err))
	}
	switch {
	case c.MaxConns > 0:
		config.MaxConns = int32(min(c.MaxConns, 1<<20))
	case !strings.Contains(c.URL, "pool_max_conns"):
		config.MaxConns = 16
	}
	if config.ConnConfig.ConnectTimeout == 0 || config.ConnConfig.ConnectTimeout > c.ConnectTimeout {
		config.ConnConfig.ConnectTimeout = c.ConnectTimeout
	}
	if c.Pooler {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	} else {
		// Every statement has one good plan for all parameters. By default the server
		// estimates such a bad cost for a generic plan with arrays of unknown length that
		// it plans every commit again, which takes several times as long as the commit.
		// The setting is not a parameter of the connection, because poolers refuse
		// parameters that they do not know.
		config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			ctx, cancel := context.WithTimeout(ctx, config.ConnConfig.ConnectTimeout) // the pool gives it none
			defer cancel()
			_, err := conn.Exec(ctx, "SET plan_cache_mode = force_generic_plan")
			return err
		}
	}
	// By default the pool pings a connection that was idle for a second, which would
	// cost a step a round trip. A connection that has died is detected by its first
	// use, which then fails as retryable.
	config.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool { return p.IdleDuration > time.Minute }
	config.PingTimeout = lookLimit
	config.ConnConfig.DialFunc = dial.New(config.ConnConfig.ConnectTimeout).DialContext
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, openFailure(c, err)
	}
	return pool, nil
}

// leaseConns is how many connections renew leases: one of them, and another while that one waits for a server that is slow
// or a connection that has died.
const leaseConns = 2

// newLeasePool configures a pool like another one, for the renewal of leases: the lease of a session must not expire because
// others wait for connections.
func newLeasePool(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Pool, error) {
	config := pool.Config()
	config.MaxConns, config.MinConns, config.MinIdleConns = leaseConns, 0, 0
	return pgxpool.NewWithConfig(ctx, config)
}

// prepare checks the server and migrates the tables. Only the migration may take
// longer than ctx allows.
func (b *Backend) prepare(ctx context.Context) error {
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer release(ctx, conn)
	var version int
	var readOnly string
	err = conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::integer, current_setting('transaction_read_only')").
		Scan(&version, &readOnly)
	if err != nil {
		return err
	}
	if err := checkServer(version, readOnly); err != nil {
		return err
	}
	if err := b.bringUp(ctx, conn.Conn()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.config.ConnectTimeout)
	defer cancel()
	return b.checkRights(ctx, conn.Conn())
}

// checkServer returns an error if the server is too old or read-only.
func checkServer(version int, readOnly string) error {
	if version/10000 < oldest {
		return session.ErrNotSupported.WithMessage("the database server is PostgreSQL %d: version %d or newer is needed", version/10000, oldest)
	}
	if readOnly == "on" {
		return &pgconn.PgError{Severity: "ERROR", Code: stateReadOnly, Message: "transactions are read-only"}
	}
	return nil
}

// A list of privileges would test for any of them. Sequences of identity columns
// need no privilege.
const selectRights = `
SELECT coalesce(bool_and(CASE c.relkind
    WHEN 'S' THEN has_sequence_privilege(c.oid, 'USAGE')
    ELSE has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
     AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE')
END), false)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind IN ('r', 'S') AND c.relname <> 'migrations'
  AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'i' AND c.relkind = 'S')`

// checkRights returns an error if there are tables and sequences that the user can
// see but not use.
func (b *Backend) checkRights(ctx context.Context, conn *pgx.Conn) error {
	var ok bool
	if err := conn.QueryRow(ctx, selectRights, b.config.Schema).Scan(&ok); err != nil || ok {
		return err
	}
	return &pgconn.PgError{Severity: "ERROR", Code: stateNoRights, Message: "permission denied for the tables of schema " + b.config.Schema}
}

// openFailure explains why a database cannot be opened and what to do about it. It
// never contains passwords.
func openFailure(c *Config, err error) error {
	if e, domain := errors.AsType[*session.Error](err); domain {
		return e
	}
	target := "the database"
	if config, parseErr := pgx.ParseConfig(c.URL); c.Pool == nil && parseErr == nil {
		target = fmt.Sprintf("database %s at %s:%d as user %s", config.Database, config.Host, config.Port, config.User)
	}
	out := session.ErrUnavailable.WithMessage("open %s: %s: %s", target, advice(c, err), withoutSecrets(c.URL, err))
	out.Retryable = false
	switch state := code(err); {
	case state == "":
		out.Retryable = !isAddressError(err)
	case state == stateReadOnly, state == stateDiskFull, state == stateTooManyConns,
		strings.HasPrefix(state, "57P0"), strings.HasPrefix(state, "08"), strings.HasPrefix(state, "40"):
		out.Retryable = true
	}
	return out
}

// advice returns what an operator can do about an error.
func advice(c *Config, err error) string {
	schema := pgx.Identifier{c.Schema}.Sanitize()
	switch code(err) {
	case stateBadPassword, stateNotAllowed:
		return "the server refuses the user: check the user, the password and the server's pg_hba.conf"
	case stateNoDatabase:
		return "the database does not exist: check the name, or create it"
	case stateNoRights:
		return "the user lacks privileges: run GRANT CREATE ON DATABASE … TO …, or create the schema for it with CREATE SCHEMA " + schema +
			" AUTHORIZATION …; to use tables of another owner, run GRANT USAGE ON SCHEMA " + schema +
			" TO …, GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA " + schema +
			" TO … and GRANT USAGE ON ALL SEQUENCES IN SCHEMA " + schema + " TO …"
	case stateReadOnly:
		return "the server is read-only: connect to the primary (target_session_attrs=read-write), or end its read-only mode"
	case stateDiskFull:
		return "the server's disk is full: free some space on it"
	case stateTooManyConns:
		return "the server has no free connections: raise its max_connections, or lower MaxConns here"
	case stateShutdown, stateCrash, stateStarting:
		return "the server is starting up or shutting down"
	case "":
		if isAddressError(err) {
			return "the host does not exist: check the URL"
		}
		return fmt.Sprintf("the server cannot be reached within %s: check the address, and that it is running", c.ConnectTimeout)
	}
	return "the server refused"
}

func isAddressError(err error) bool {
	e, ok := errors.AsType[*net.DNSError](err)
	return ok && e.IsNotFound
}

var quoted = regexp.MustCompile(`"[^"]*"`)

// misread explains why a URL cannot be parsed, without quoting any of it: in such
// a URL the end of the password is unclear, too.
func misread(err error) string {
	text := err.Error()
	if at := strings.LastIndex(text, "`: "); at >= 0 { // the driver quotes the URL like this
		text = text[at+len("`: "):]
	}
	return quoted.ReplaceAllString(text, `"…"`)
}

var (
	urlPassword  = regexp.MustCompile(`(://[^:/@\s]*:)\S*@`) // up to the last @: an unescaped one may be part of the password
	wordPassword = regexp.MustCompile(`(?i)(password\s*=\s*)('[^']*'|\S+)`)
)

// withoutSecrets returns an error's text, on one line, without the password of a
// URL, in any form.
func withoutSecrets(url string, err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if config, parseErr := pgx.ParseConfig(url); parseErr == nil && config.Password != "" {
		text = strings.ReplaceAll(text, config.Password, "xxxxx")
	}
	return wordPassword.ReplaceAllString(urlPassword.ReplaceAllString(text, "${1}xxxxx@"), "${1}xxxxx")
}
