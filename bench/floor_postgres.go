package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/helixagents/helix/store/postgres"
)

// The statements that write what a commit or an append writes, for a schema
// called helix.
const (
	postgresAppend = `
WITH stream AS (
    UPDATE helix.streams
    SET revision = $2, last_sequence = $3, writer = $4, writer_epoch = 1, writer_next = $3, run_id = $5, updated_at = $6
    WHERE number = $1
)
INSERT INTO helix.stream_batches (stream, last_sequence, first_sequence, producer, epoch, next, run_id, last_step, at, pieces, body)
VALUES ($1, $3, $7, $4, 1, $3, $5, $8, $6, NULL, $9)`

	postgresReply = `
WITH header AS (
    UPDATE helix.sessions
    SET version = $2, last_commit = $3, message_count = $4, run_usage = $5, updated_at = $6
    WHERE number = $1
),
said AS (
    INSERT INTO helix.messages (session, number, message_id, calls, body) VALUES ($1, $4, $7, $8, $9)
)
INSERT INTO helix.calls (session, message_id, call_id, position, status, doc, begun_at, created_at)
VALUES ($1, $7, $10, 0, 'begun', $11, $6, $6)`

	// What a commit with a checkpoint begins with.
	postgresPoint = `
WITH header AS (
    UPDATE helix.sessions
    SET version = $2, last_commit = $3, message_count = $4, run_usage = $5, updated_at = $6, step_count = $7, run_steps = $7,
        checkpoint_id = $8, checkpoint_number = $9, checkpoint_source = 'staging', checkpointed_at = $6
    WHERE number = $1
),
pointed AS (
    INSERT INTO helix.checkpoints (session, number, checkpoint_id, run_id, turn, step, status, source, version, message_count, stream_sequence, at)
    VALUES ($1, $9, $8, $10, 1, $7, 'active', 'staging', $2, $4, $11, $6)
)`

	postgresResults = postgresPoint + `,
taken AS (
    DELETE FROM helix.calls WHERE session = $1 AND message_id = $12
)
INSERT INTO helix.messages (session, number, message_id, calls, body) VALUES ($1, $4, $13, NULL, $14)`

	postgresGrowing = postgresPoint + `,
taken AS (
    DELETE FROM helix.calls WHERE session = $1 AND message_id = $12
),
logged AS (
    INSERT INTO helix.state_log (session, version, body) VALUES ($1, $2, $15)
)
INSERT INTO helix.messages (session, number, message_id, calls, body) VALUES ($1, $4, $13, NULL, $14)`

	postgresBoth = postgresPoint + `
INSERT INTO helix.messages (session, number, message_id, calls, body) VALUES ($1, $12, $13, $14, $15), ($1, $4, $16, NULL, $17)`

	postgresNumbers = `
SELECT s.number, t.number FROM helix.sessions s JOIN helix.streams t ON t.stream_id = s.id WHERE s.id = $1`

	postgresBytes = `
SELECT sum(pg_total_relation_size(c.oid))::double precision
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind = 'r'`
)

// postgresFloor writes the rows of a commit with one statement, prepared and kept
// by the driver, over a pool like the backend's. The tables are those that the
// backend makes. Nothing is read and nothing is checked.
//
// A step of the backend is four round trips, and so it is here: each of its two
// commits is one, behind another that appends chunks to the stream.
type postgresFloor struct {
	payload
	backend *postgres.Backend // makes the tables, and the sessions to write to
	schema  *strings.Replacer
	pool    *pgxpool.Pool
	sql     struct{ append, reply, results, growing, both string }

	mu      sync.Mutex
	numbers map[string]postgresNumber
}

// postgresNumber is what a session's rows are kept under, and those of its stream.
type postgresNumber struct{ session, stream int64 }

func newPostgresFloor(ctx context.Context, url, schema string) (*postgresFloor, error) {
	backend, err := postgres.OpenConfig(postgres.Config{URL: url, Schema: schema})
	if err != nil {
		return nil, err
	}
	pool, err := newPostgresPool(ctx, url)
	if err != nil {
		return nil, errors.Join(err, backend.Close())
	}
	f := &postgresFloor{
		payload: newPayload(), backend: backend, schema: strings.NewReplacer("helix.", schema+"."), pool: pool,
		numbers: map[string]postgresNumber{},
	}
	f.sql.append, f.sql.reply = f.schema.Replace(postgresAppend), f.schema.Replace(postgresReply)
	f.sql.results, f.sql.growing = f.schema.Replace(postgresResults), f.schema.Replace(postgresGrowing)
	f.sql.both = f.schema.Replace(postgresBoth)
	return f, nil
}

// newPostgresPool makes a pool with the backend's settings.
func newPostgresPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	if !strings.Contains(url, "pool_max_conns") {
		config.MaxConns = 16
	}
	config.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool { return p.IdleDuration > time.Minute }
	return pgxpool.NewWithConfig(ctx, config)
}

func (f *postgresFloor) begin(ctx context.Context, id string) error {
	if _, err := beginSession(ctx, f.backend, id); err != nil {
		return err
	}
	var number postgresNumber
	if err := f.pool.QueryRow(ctx, f.schema.Replace(postgresNumbers), id).Scan(&number.session, &number.stream); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.numbers[id] = number
	return nil
}

func (f *postgresFloor) number(id string) postgresNumber {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.numbers[id]
}

// append adds chunks to the stream, up to a sequence.
func (f *postgresFloor) append(ctx context.Context, id string, n, last int, chunks [][]byte) error {
	_, err := f.pool.Exec(ctx, f.sql.append, f.number(id).stream, last, last, id, floorRun, time.Now(),
		last-len(chunks)+1, n, lines(chunks))
	return err
}

// Each step has places for six chunks and two messages.
const floorChunks, floorMessages = 6, 2

var floorUsage = []int64{0, 0, 0, 0, 0, 1, 1}

func (f *postgresFloor) reply(ctx context.Context, id string, n int) error {
	if err := f.append(ctx, id, n, floorChunks*n+len(f.replyChunks), f.replyChunks); err != nil {
		return err
	}
	names := namesOf(n)
	_, err := f.pool.Exec(ctx, f.sql.reply, f.number(id).session, 2*n, names.model, floorMessages*n+1, floorUsage, time.Now(),
		names.message, floorCalls, f.assistant, floorCall, f.call)
	return err
}

// point is the arguments of what a commit with a checkpoint begins with.
func (f *postgresFloor) point(id string, n int, names names) []any {
	return []any{
		f.number(id).session, 2*n + 1, names.commit, floorMessages * (n + 1), floorUsage, time.Now(), n, names.checkpoint, n + 1, floorRun,
		floorChunks * (n + 1),
	}
}

func (f *postgresFloor) results(ctx context.Context, id string, n int, growing bool) error {
	if err := f.append(ctx, id, n, floorChunks*(n+1), f.chunks(growing)); err != nil {
		return err
	}
	names := namesOf(n)
	sql, args := f.sql.results, append(f.point(id, n, names), names.message, names.result, f.tool)
	if growing {
		sql, args = f.sql.growing, append(args, floorWrites)
	}
	_, err := f.pool.Exec(ctx, sql, args...)
	return err
}

func (f *postgresFloor) both(ctx context.Context, id string, n int) error {
	names := namesOf(n)
	_, err := f.pool.Exec(ctx, f.sql.both, append(f.point(id, n, names),
		floorMessages*n+1, names.message, floorCalls, f.assistant, names.result, f.tool)...)
	return err
}

// bytesOf is what the tables of a schema take, with their indexes.
func (f *postgresFloor) bytesOf(ctx context.Context, schema string) (size float64, err error) {
	err = f.pool.QueryRow(ctx, postgresBytes, schema).Scan(&size)
	return size, err
}

func (f *postgresFloor) Close() error {
	f.pool.Close()
	return f.backend.Close()
}
