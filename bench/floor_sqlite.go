package main

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the driver that the backend uses
)

// sqliteFloor is one connection with prepared statements, one transaction a
// commit, and the very rows that a commit of the backend writes, under the same
// keys: nothing is read and nothing is checked. A step is two transactions, each
// with a sync of the log: that a call has begun must be durable before its tool
// runs, and its result can only be written afterwards. A step whose calls have no
// effect is one.
type sqliteFloor struct {
	payload
	mu      sync.Mutex
	db      *sql.DB
	conn    *sql.Conn
	stmt    map[string]*sql.Stmt
	numbers map[string]int64 // of sessions
}

const sqliteFloorSchema = `
CREATE TABLE sessions (
	number INTEGER PRIMARY KEY, version INTEGER, step_count INTEGER, resume_count INTEGER, message_count INTEGER, last_commit TEXT,
	checkpoint_id TEXT, checkpoint_newest TEXT, checkpoint_number INTEGER, checkpoint_source TEXT, checkpointed_at INTEGER,
	snapshot_bytes INTEGER, delta_bytes INTEGER, run_steps INTEGER, run_usage BLOB, run_reason TEXT, updated_at INTEGER) STRICT;
CREATE TABLE messages (key INTEGER PRIMARY KEY, message_id TEXT, calls BLOB, body BLOB) STRICT;
CREATE UNIQUE INDEX messages_by_id ON messages (key >> 32, message_id) WHERE message_id <> '';
CREATE TABLE calls (
	session INTEGER, message_id TEXT, call_id TEXT, position INTEGER, status TEXT, doc BLOB, result BLOB, writes BLOB, created_at INTEGER,
	PRIMARY KEY (session, message_id, call_id)) STRICT, WITHOUT ROWID;
CREATE TABLE checkpoints (
	session INTEGER, checkpoint_id TEXT, number INTEGER, previous TEXT, run_id TEXT, turn INTEGER, step INTEGER, status TEXT, source TEXT,
	version INTEGER, message_count INTEGER, stream_sequence INTEGER, at INTEGER, undone INTEGER DEFAULT 0,
	PRIMARY KEY (session, checkpoint_id)) STRICT, WITHOUT ROWID;
CREATE TABLE state_log (key INTEGER PRIMARY KEY, snapshot INTEGER, body BLOB) STRICT;
CREATE TABLE stream_batches (
	key INTEGER PRIMARY KEY, last_sequence INTEGER, producer TEXT, epoch INTEGER, next INTEGER, run_id TEXT, last_step INTEGER,
	at INTEGER, pieces BLOB, body BLOB) STRICT;`

var sqliteFloorStatements = map[string]string{
	"begin":  `BEGIN IMMEDIATE`,
	"commit": `COMMIT`,
	"new":    `INSERT INTO sessions (number) VALUES (?)`,
	"session": `UPDATE sessions SET version = ?2, step_count = ?2, resume_count = 0, message_count = ?2, last_commit = ?3,
		checkpoint_id = ?4, checkpoint_newest = ?4, checkpoint_number = ?2, checkpoint_source = 'staging', checkpointed_at = ?5,
		snapshot_bytes = 0, delta_bytes = 0, run_steps = ?2, run_usage = ?6, run_reason = '', updated_at = ?5 WHERE number = ?1`,
	"message": `INSERT INTO messages VALUES (?, ?, ?, ?)`,
	"call":    `INSERT INTO calls VALUES (?, ?, ?, 0, 'begun', ?, NULL, NULL, ?)`,
	"uncall":  `DELETE FROM calls WHERE session = ? AND message_id = ?`,
	"checkpoint": `INSERT INTO checkpoints (session, checkpoint_id, number, previous, run_id, turn, step, status, source, version,
		message_count, stream_sequence, at) VALUES (?1, ?2, ?3, ?4, ?5, 1, ?3, 'active', 'staging', ?3, ?3, ?3, ?6)`,
	"bare":   `UPDATE sessions SET updated_at = ?2 WHERE number = ?1`,
	"state":  `INSERT INTO state_log VALUES (?, 0, ?)`,
	"chunks": `INSERT INTO stream_batches VALUES (?1, ?2, ?3, 1, ?2, ?4, ?5, ?6, NULL, ?7)`,
}

func newSQLiteFloor(ctx context.Context, file string) (*sqliteFloor, error) {
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)")
	if err != nil {
		return nil, err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.ExecContext(ctx, sqliteFloorSchema); err != nil {
		return nil, err
	}
	f := &sqliteFloor{payload: newPayload(), db: db, conn: conn, stmt: map[string]*sql.Stmt{}, numbers: map[string]int64{}}
	for name, text := range sqliteFloorStatements {
		if f.stmt[name], err = conn.PrepareContext(ctx, text); err != nil { //nolint:sqlclosecheck // closed with the connection
			return nil, fmt.Errorf("prepare %s: %w", name, err)
		}
	}
	return f, nil
}

// bare is one statement of a floor transaction.
type bare struct {
	name string
	args []any
}

// write makes one transaction of statements.
func (f *sqliteFloor) write(ctx context.Context, statements []bare) error {
	for _, s := range append(append([]bare{{name: "begin"}}, statements...), bare{name: "commit"}) {
		if _, err := f.stmt[s.name].ExecContext(ctx, s.args...); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

func (f *sqliteFloor) begin(ctx context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	number := int64(len(f.numbers) + 1)
	f.numbers[id] = number
	return f.write(ctx, []bare{{"new", []any{number}}})
}

// step writes the rows of the n-th step of a session.
func (f *sqliteFloor) step(ctx context.Context, id string, n int, rows func(sqliteStep) []bare) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.write(ctx, rows(newSQLiteStep(f.numbers[id], n)))
}

// sqliteStep is what the rows of a step have in common.
type sqliteStep struct {
	names
	session, key int64 // key is that of its first message and first chunks
	n            int
	now          int64
	usage        []byte
}

func newSQLiteStep(session int64, n int) sqliteStep {
	return sqliteStep{
		names: namesOf(n), session: session, key: session<<32 + int64(2*n), n: n, now: time.Now().UnixNano(),
		usage: []byte(`{"modelCalls":1}`),
	}
}

func (s sqliteStep) header(key string) bare {
	return bare{"session", []any{s.session, s.n, key, s.checkpoint, s.now, s.usage}}
}

func (s sqliteStep) chunks(offset int64, body []byte) bare {
	return bare{"chunks", []any{s.key + offset, s.key + offset, "s-1", floorRun, s.n, s.now, body}}
}

func (s sqliteStep) point() bare {
	return bare{"checkpoint", []any{s.session, s.checkpoint, s.n, s.checkpoint, floorRun, s.now}}
}

func (f *sqliteFloor) reply(ctx context.Context, id string, n int) error {
	return f.step(ctx, id, n, func(s sqliteStep) []bare {
		return []bare{
			s.chunks(0, lines(f.replyChunks)),
			{"message", []any{s.key, s.message, floorCalls, f.assistant}},
			{"call", []any{s.session, s.message, floorCall, f.call, s.now}},
			s.header(s.model),
		}
	})
}

func (f *sqliteFloor) results(ctx context.Context, id string, n int, growing bool) error {
	return f.step(ctx, id, n, func(s sqliteStep) []bare {
		rows := []bare{
			s.chunks(1, lines(f.payload.chunks(growing))),
			{"message", []any{s.key + 1, s.result, nil, f.tool}},
			{"uncall", []any{s.session, s.message}},
			s.point(), s.header(s.commit),
		}
		if growing {
			rows = append(rows, bare{"state", []any{s.key, floorWrites}})
		}
		return rows
	})
}

func (f *sqliteFloor) whole(ctx context.Context, id string, n int) error {
	return f.step(ctx, id, n, func(s sqliteStep) []bare {
		return append([]bare{s.chunks(0, lines(f.wholeChunks))}, f.rows(s)...)
	})
}

func (f *sqliteFloor) bare(ctx context.Context, id string, n int) error {
	return f.step(ctx, id, n, func(s sqliteStep) []bare { return []bare{{"bare", []any{s.session, s.now}}} })
}

func (f *sqliteFloor) both(ctx context.Context, id string, n int) error {
	return f.step(ctx, id, n, f.rows)
}

// rows are those of a step that is one commit.
func (f *sqliteFloor) rows(s sqliteStep) []bare {
	return []bare{
		{"message", []any{s.key, s.message, floorCalls, f.assistant}},
		{"message", []any{s.key + 1, s.result, nil, f.tool}},
		s.point(), s.header(s.commit),
	}
}

func (f *sqliteFloor) Close() error {
	if err := f.conn.Close(); err != nil {
		return err
	}
	return f.db.Close()
}
