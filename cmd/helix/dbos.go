package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	_ "github.com/dbos-inc/dbos-transact-golang/dbos/driver/sqlite" // for its own database
	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/config"
	"github.com/helixagents/helix/internal/backend"
	"github.com/helixagents/helix/runtime/dbos"
)

// dbosPatience is how long to wait for DBOS's database at startup.
const dbosPatience = 10 * time.Second

func (p *place) startDBOS(ctx context.Context) (helix.Runtime, string, error) {
	d := p.settings.DBOS
	if err := completeDBOS(&d, p.address); err != nil {
		return nil, "", err
	}
	if err := reachDBOS(ctx, d.Database); err != nil {
		return nil, "", err
	}
	cfg := dbos.Config{
		RuntimeOptions: p.options(), DatabaseURL: d.Database, Schema: d.Schema, Prefix: d.Prefix, Retention: time.Duration(d.Retention),
	}
	if !p.passing { // DBOS would recover the turns of a running server, or wait for it
		cfg.ExecutorID, cfg.Queue = d.ExecutorID, queueOf(d.Queue)
	}
	rt, err := dbos.New(cfg)
	if err != nil {
		return nil, "", err
	}
	where := "DBOS in " + shown(d.Database)
	if cfg.Queue != nil {
		where += ", from a queue"
	}
	return rt, where, nil
}

func queueOf(q *config.Queue) *dbos.Queue {
	if q == nil {
		return nil
	}
	out := &dbos.Queue{
		Concurrency: q.Concurrency, WorkerConcurrency: q.WorkerConcurrency,
		RateLimit: q.RateLimit, RatePeriod: time.Duration(q.RatePeriod), Poll: time.Duration(q.Poll),
	}
	if out.RateLimit > 0 && out.RatePeriod == 0 {
		out.RatePeriod = time.Second
	}
	return out
}

// maxSchema is the longest name that Postgres keeps.
const maxSchema = 63

// completeDBOS makes DBOS store its workflows beside the sessions, unless the settings name
// a database.
func completeDBOS(d *config.DBOS, store string) error {
	if d.Database != "" {
		return nil
	}
	kind, path := backend.Split(store)
	switch kind {
	case backend.SQLite:
		d.Database = "sqlite:" + strings.TrimSuffix(path, ".db") + "-dbos.db"
		return nil
	case backend.Postgres:
	default:
		return usageError{errors.New("DBOS stores its workflows in Postgres or SQLite, and the store is neither: " +
			"name a database with --dbos-database, or runtime.dbos.database in the file")}
	}
	address, schema := backend.Schema(store)
	d.Database = address
	if d.Schema == "" && schema != "" {
		d.Schema = schema + "_dbos"
	}
	if len(d.Schema) > maxSchema {
		return errors.New("the name of the store's schema is too long to derive one for DBOS: set runtime.dbos.schema in the file")
	}
	return nil
}

// reachDBOS checks that the database server answers. DBOS itself would wait for it without
// an error.
func reachDBOS(ctx context.Context, database string) error {
	if backend.Kind(database) != backend.Postgres {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, dbosPatience)
	defer cancel()
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		// The error lists every address that was tried, one per line.
		return fmt.Errorf("cannot reach DBOS's database at %s: %s", shown(database), strings.Join(strings.Fields(err.Error()), " "))
	}
	return conn.Close(ctx)
}
