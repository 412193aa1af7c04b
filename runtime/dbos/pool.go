package dbos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/helixagents/helix/internal/dial"
	"github.com/helixagents/helix/internal/retry"
)

// Settings of the pool that DBOS uses, unless the database's address has others.
const (
	poolConns          = 20
	poolConnectTimeout = 10 * time.Second
	poolPingTimeout    = 3 * time.Second // with the connection's end less than shutdownPatience
	poolIdleTime       = 5 * time.Minute
)

// openPool opens the pool that DBOS uses. DBOS waits for its statements without a limit, so the
// pool's connections have one. It returns nil if DBOS's database is not Postgres.
func openPool(ctx context.Context, cfg *Config, s *silence) (*pgxpool.Pool, error) {
	var config *pgxpool.Config
	switch {
	case cfg.Pool != nil:
		config = cfg.Pool.Config()
	case strings.HasPrefix(strings.ToLower(cfg.DatabaseURL), "sqlite"):
		return nil, nil //nolint:nilnil // documented
	default:
		var err error
		if config, err = parsePool(cfg); err != nil {
			return nil, err
		}
		if err := ensureDatabase(ctx, config.ConnConfig); err != nil {
			return nil, err
		}
	}
	config.PingTimeout = poolPingTimeout
	config.ConnConfig.DialFunc = s.dialer(config.ConnConfig.DialFunc)
	return pgxpool.NewWithConfig(ctx, config)
}

// parsePool returns the configuration of a pool of connections to cfg's address.
func parsePool(cfg *Config) (*pgxpool.Config, error) {
	url := cfg.DatabaseURL
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err // which hides the password
	}
	if !strings.Contains(url, "pool_max_conns") {
		config.MaxConns = poolConns
	}
	if !strings.Contains(url, "pool_max_conn_idle_time") {
		config.MaxConnIdleTime = poolIdleTime
	}
	if params := config.ConnConfig.RuntimeParams; params["application_name"] == "" {
		params["application_name"] = cfg.Prefix // tells an operator whose connections these are
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = poolConnectTimeout
	}
	config.ConnConfig.DialFunc = dial.New(config.ConnConfig.ConnectTimeout).DialContext
	return config, nil
}

// ensureDatabase waits until the server can be reached, and creates the database if it does not
// exist: DBOS itself does so only for a pool of its own.
func ensureDatabase(ctx context.Context, config *pgx.ConnConfig) error {
	for {
		err := connectOnce(ctx, config)
		if hasCode(err, "3D000") { // no such database
			err = createDatabase(ctx, config)
		}
		if err == nil || ctx.Err() != nil || isRefused(err) {
			return err
		}
		if waiting := retry.Sleep(ctx, time.Second); waiting != nil {
			return errors.Join(err, waiting)
		}
	}
}

// isRefused reports whether a server has refused what it was asked for, and would again: it is not
// about to start or full, and no other process has just created the database.
func isRefused(err error) bool {
	_, refused := errors.AsType[*pgconn.PgError](err)
	return refused && !hasCode(err, "57P") && !hasCode(err, "53") && !hasCode(err, "42P04")
}

// hasCode reports whether an error is the server's and its code begins with a prefix.
func hasCode(err error, prefix string) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && strings.HasPrefix(e.Code, prefix)
}

// connectOnce connects to a database, and hangs up.
func connectOnce(ctx context.Context, config *pgx.ConnConfig) error {
	conn, err := pgx.ConnectConfig(ctx, config.Copy())
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

func createDatabase(ctx context.Context, config *pgx.ConnConfig) error {
	server := config.Copy()
	server.Database = "postgres"
	conn, err := pgx.ConnectConfig(ctx, server)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{config.Database}.Sanitize()); err != nil {
		return fmt.Errorf("create database %s: %w", config.Database, err)
	}
	return nil
}
