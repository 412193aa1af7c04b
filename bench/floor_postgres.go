package main

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/helixagents/helix/store/postgres"
)

// The statements that write what a commit writes, for a schema called helix.
const (
	// What a commit with chunks begins with: the stream's row, which says how far its
	// producer has come, and one row of chunks.
	postgresChunks = `
WITH stream AS (
    UPDATE helix.streams
    SET revision = $2, last_sequence = $2, writer_next = $2, updated_at = $3, bytes = $2
    WHERE number = $1
),
chunks AS (
    INSERT INTO helix.stream_batches (stream, last_sequence, first_sequence, producer, epoch, next, run_id, last_step, at, pieces, body)
    VALUES ($1, $2, $4, $5, 1, $2, $6, $7, $3, NULL, $8)
),`

	// The reply's message, the call before its tool runs, and the session's row, which
	// the next commit is checked against.
	postgresReply = `
header AS (
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
header AS (
    UPDATE helix.sessions
    SET version = $2, last_commit = $3, message_count = $4, run_usage = $5, updated_at = $6, step_count = $7, run_steps = $7,
        checkpoint_id = $8, checkpoint_number = $9, checkpoint_source = 'staging', checkpointed_at = $6
    WHERE number = $1
),
pointed AS (
    INSERT INTO helix.checkpoints (session, number, checkpoint_id, run_id, turn, step, status, source, version, message_count, stream_sequence, at)
    VALUES ($1, $9, $8, $10, 1, $7, 'active', 'staging', $2, $4, $11, $6)
)`

	// The result's message in place of the call.
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

	postgresBare = `
UPDATE helix.sessions SET version = $2, updated_at = $3 WHERE number = $1`

	postgresNumbers = `
SELECT s.number, t.number FROM helix.sessions s JOIN helix.streams t ON t.stream_id = s.id WHERE s.id = $1`

	postgresBytes = `
SELECT sum(pg_total_relation_size(c.oid))::double precision
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind = 'r'`
)

// postgresFloor writes the rows of a commit and its chunks with one statement,
// prepared and kept by the driver, over a pool like the backend's. The tables are
// those that the backend makes. Nothing is read and nothing is checked.
//
// A step is two statements, each of which is a transaction, a round trip and a
// flush of the log. Less would not do: that a call has begun must be durable before
// its tool runs, and its result can only be written afterwards. A step whose calls
// have no effect is one.
type postgresFloor struct {
	payload
	backend *postgres.Backend // makes the tables, and the sessions to write to
	schema  *strings.Replacer
	pool    *pgxpool.Pool
	sql     struct{ reply, results, growing, whole, both, bare string }

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
	f.sql.reply, f.sql.results, f.sql.growing = f.withChunks(postgresReply), f.withChunks(postgresResults), f.withChunks(postgresGrowing)
	f.sql.whole, f.sql.both = f.withChunks(postgresBoth), f.schema.Replace("WITH"+postgresBoth)
	f.sql.bare = f.schema.Replace(postgresBare)
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

// chunkParams is how many parameters postgresChunks has.
const chunkParams = 8

var placeholders = regexp.MustCompile(`\$\d+`)

// withChunks returns a commit's statement that also writes chunks. Its parameters
// follow those of the chunks.
func (f *postgresFloor) withChunks(commit string) string {
	return f.schema.Replace(postgresChunks + placeholders.ReplaceAllStringFunc(commit, func(p string) string {
		n, err := strconv.Atoi(p[1:])
		if err != nil {
			panic(err) // the pattern has digits
		}
		return "$" + strconv.Itoa(n+chunkParams)
	}))
}

// commit writes chunks, up to a sequence, and the rows of a commit.
func (f *postgresFloor) commit(ctx context.Context, sql, id string, n, last int, chunks [][]byte, args ...any) error {
	all := make([]any, 0, chunkParams+len(args))
	all = append(all, f.number(id).stream, last, time.Now(), last-len(chunks)+1, id, floorRun, n, lines(chunks))
	_, err := f.pool.Exec(ctx, sql, append(all, args...)...)
	return err
}

// Each step has places for six chunks and two messages.
const floorChunks, floorMessages = 6, 2

var floorUsage = []int64{0, 0, 0, 0, 0, 1, 1}

func (f *postgresFloor) reply(ctx context.Context, id string, n int) error {
	names := namesOf(n)
	return f.commit(ctx, f.sql.reply, id, n, floorChunks*n+len(f.replyChunks), f.replyChunks,
		f.number(id).session, 2*n, names.model, floorMessages*n+1, floorUsage, time.Now(), names.message, floorCalls, f.assistant, floorCall, f.call)
}

// point is the arguments of what a commit with a checkpoint begins with.
func (f *postgresFloor) point(id string, n int, names names) []any {
	return []any{
		f.number(id).session, 2*n + 1, names.commit, floorMessages * (n + 1), floorUsage, time.Now(), n, names.checkpoint, n + 1, floorRun,
		floorChunks * (n + 1),
	}
}

func (f *postgresFloor) results(ctx context.Context, id string, n int, growing bool) error {
	names := namesOf(n)
	sql, args := f.sql.results, append(f.point(id, n, names), names.message, names.result, f.tool)
	if growing {
		sql, args = f.sql.growing, append(args, floorWrites)
	}
	return f.commit(ctx, sql, id, n, floorChunks*(n+1), f.chunks(growing), args...)
}

func (f *postgresFloor) whole(ctx context.Context, id string, n int) error {
	return f.commit(ctx, f.sql.whole, id, n, floorChunks*(n+1), f.wholeChunks, f.bothArgs(id, n)...)
}

func (f *postgresFloor) both(ctx context.Context, id string, n int) error {
	_, err := f.pool.Exec(ctx, f.sql.both, f.bothArgs(id, n)...)
	return err
}

func (f *postgresFloor) bothArgs(id string, n int) []any {
	names := namesOf(n)
	return append(f.point(id, n, names), floorMessages*n+1, names.message, floorCalls, f.assistant, names.result, f.tool)
}

func (f *postgresFloor) bare(ctx context.Context, id string, n int) error {
	_, err := f.pool.Exec(ctx, f.sql.bare, f.number(id).session, n, time.Now())
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
