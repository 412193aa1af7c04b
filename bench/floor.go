package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"

	_ "modernc.org/sqlite" // the driver that the backend uses
)

// floor is the bare write of the rows that a commit writes, with no checks and
// no logic.
type floor interface {
	// reply and results are the two commits of a tool step; both is the one commit
	// of a step that needs only one.
	reply(ctx context.Context, id string, n int) error
	results(ctx context.Context, id string, n int) error
	both(ctx context.Context, id string, n int) error
	Close() error
}

// payload is the rows' content, of the size that the benchmarks' steps have.
type payload struct {
	assistant, tool, call, checkpoint, replyChunks, resultChunks []byte
}

func newPayload() payload {
	now := time.Now()
	part := session.Part{
		Kind: session.PartToolCall, CallID: session.CallID("floor", "m", 0), ProviderCallID: "call_1", Tool: "work",
		Input: json.RawMessage(`{"n":1}`),
	}
	runID := session.NewRunID()
	assistant := session.Message{
		ID: session.ReplyID(runID, 1), Role: session.RoleAssistant, Parts: []session.Part{session.Text(text), part},
		RunID: runID, Step: 1, At: now,
	}
	tool := session.ToolResult(part, json.RawMessage(`"`+text+`"`))
	tool.RunID, tool.Step, tool.At = runID, 1, now
	chunk := func(kind stream.Kind) stream.Chunk {
		return stream.Chunk{Kind: kind, AgentID: "floor", AgentType: "bench", At: now, Step: 1, RunID: runID}
	}
	delta, start, end := chunk(stream.TextDelta), chunk(stream.ToolStart), chunk(stream.ToolEnd)
	delta.Delta, start.Arguments, end.Result = text, part.Input, json.RawMessage(`"`+text+`"`)
	return payload{
		assistant:    must(session.Encode(&assistant)),
		tool:         must(session.Encode(&tool)),
		call:         must(session.Encode(&session.Call{MessageID: assistant.ID, ID: part.CallID, Tool: "work", Kind: session.CallServer, Status: session.CallBegun, BegunAt: now})),
		checkpoint:   []byte(session.CheckpointID("floor", 1, now, runID)),
		replyChunks:  must(session.Encode([]stream.Chunk{chunk(stream.StepCommitted), chunk(stream.StepStarted), delta, start})),
		resultChunks: must(session.Encode([]stream.Chunk{end})),
	}
}

func must(raw []byte, err error) []byte {
	if err != nil {
		panic(err) // the payload is fixed
	}
	return raw
}

// memoryFloor is maps under a mutex; content is encoded at each write, as it is
// in the store.
type memoryFloor struct {
	mu       sync.Mutex
	messages map[string][][]byte
	chunks   map[string][][]byte
	calls    map[string][]byte
	points   map[string][][]byte
	version  map[string]int
	message  session.Message
	chunk    stream.Chunk
}

func newMemoryFloor(string) (floor, error) {
	p := newPayload()
	f := &memoryFloor{
		messages: map[string][][]byte{}, chunks: map[string][][]byte{}, calls: map[string][]byte{},
		points: map[string][][]byte{}, version: map[string]int{},
	}
	if err := json.Unmarshal(p.assistant, &f.message); err != nil {
		return nil, err
	}
	f.chunk = stream.Chunk{Kind: stream.TextDelta, AgentID: "floor", AgentType: "bench", At: time.Now(), Delta: text}
	return f, nil
}

func (f *memoryFloor) write(id string, messages, chunks int, point bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range messages {
		raw, err := session.Encode(&f.message)
		if err != nil {
			return err
		}
		f.messages[id] = append(f.messages[id], raw)
	}
	for range chunks {
		raw, err := session.Encode(&f.chunk)
		if err != nil {
			return err
		}
		f.chunks[id] = append(f.chunks[id], raw)
	}
	if point {
		f.points[id] = append(f.points[id], []byte("checkpoint"))
		delete(f.calls, id)
	} else {
		f.calls[id] = []byte("begun")
	}
	f.version[id]++
	return nil
}

func (f *memoryFloor) reply(_ context.Context, id string, _ int) error {
	return f.write(id, 1, 4, false)
}

func (f *memoryFloor) results(_ context.Context, id string, _ int) error {
	return f.write(id, 1, 1, true)
}

func (f *memoryFloor) both(_ context.Context, id string, _ int) error { return f.write(id, 2, 0, true) }
func (f *memoryFloor) Close() error                                   { return nil }

// sqliteFloor is one connection with prepared statements, one transaction a
// commit, and the very rows that a commit of the backend writes, under the same
// keys: nothing is read and nothing is checked.
type sqliteFloor struct {
	payload
	mu      sync.Mutex
	db      *sql.DB
	conn    *sql.Conn
	stmt    map[string]*sql.Stmt
	numbers map[string]int64 // of sessions
	growing bool             // a step also writes state
}

const floorSchema = `
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

var floorStatements = map[string]string{
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
	"state":  `INSERT INTO state_log VALUES (?, 0, ?)`,
	"chunks": `INSERT INTO stream_batches VALUES (?1, ?2, ?3, 1, ?2, ?4, ?5, ?6, NULL, ?7)`,
}

func newSQLiteFloor(dir string) (floor, error) {
	db, err := sql.Open("sqlite", "file:"+dir+"/floor.db?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)")
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.ExecContext(ctx, floorSchema); err != nil {
		return nil, err
	}
	f := &sqliteFloor{payload: newPayload(), db: db, conn: conn, stmt: map[string]*sql.Stmt{}, numbers: map[string]int64{}}
	for name, text := range floorStatements {
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

// write makes one transaction of the statements for the n-th step of a session.
func (f *sqliteFloor) write(ctx context.Context, id string, statements func(session int64) []bare) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	session, known := f.numbers[id]
	all := []bare{{name: "begin"}}
	if !known {
		session = int64(len(f.numbers) + 1)
		f.numbers[id] = session
		all = append(all, bare{"new", []any{session}})
	}
	all = append(all, statements(session)...)
	for _, s := range append(all, bare{name: "commit"}) {
		if _, err := f.stmt[s.name].ExecContext(ctx, s.args...); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// floorStep is what the rows of a step have in common.
type floorStep struct {
	session, key int64 // key is that of its first message and first chunks
	n            int
	now          int64
	message      string
	checkpoint   string
	usage        []byte
}

func newFloorStep(session int64, n int) floorStep {
	return floorStep{
		session: session, key: session<<32 + int64(2*n), n: n, now: time.Now().UnixNano(),
		message: fmt.Sprintf("run_06gxtm3jvmftg2p8j98xr4hc6w/%d", n), usage: []byte(`{"modelCalls":1}`),
		checkpoint: fmt.Sprintf("cpv1-s-1-s%d-t1794714399461-c37189", n),
	}
}

func (s floorStep) header() bare {
	return bare{"session", []any{s.session, s.n, s.message, s.checkpoint, s.now, s.usage}}
}

func (s floorStep) chunks(offset int64, body []byte) bare {
	return bare{"chunks", []any{s.key + offset, s.key + offset, "s-1", "run_06gxtm3jvmftg2p8j98xr4hc6w", s.n, s.now, body}}
}

func (s floorStep) point() bare {
	return bare{"checkpoint", []any{s.session, s.checkpoint, s.n, s.checkpoint, "run_06gxtm3jvmftg2p8j98xr4hc6w", s.now}}
}

var floorWrites = []byte(`{"ops":[{"kind":"append","key":"items","items":["an item of the list, some forty bytes long"]}]}`)

var floorCalls = []byte(`["call_5fa839b497ea10dd46d6f095"]`)

func (f *sqliteFloor) reply(ctx context.Context, id string, n int) error {
	return f.write(ctx, id, func(session int64) []bare {
		s := newFloorStep(session, n)
		return []bare{
			s.chunks(0, f.replyChunks),
			{"message", []any{s.key, s.message, floorCalls, f.assistant}},
			{"call", []any{s.session, s.message, "call_5fa839b497ea10dd46d6f095", f.call, s.now}},
			s.header(),
		}
	})
}

func (f *sqliteFloor) results(ctx context.Context, id string, n int) error {
	return f.write(ctx, id, func(session int64) []bare {
		s := newFloorStep(session, n)
		rows := []bare{
			s.chunks(1, f.resultChunks),
			{"message", []any{s.key + 1, s.message + ".r", nil, f.tool}},
			{"uncall", []any{s.session, s.message}},
			s.point(), s.header(),
		}
		if f.growing {
			rows = append(rows, bare{"state", []any{s.key, floorWrites}})
		}
		return rows
	})
}

func (f *sqliteFloor) both(ctx context.Context, id string, n int) error {
	return f.write(ctx, id, func(session int64) []bare {
		s := newFloorStep(session, n)
		return []bare{
			{"message", []any{s.key, s.message, floorCalls, f.assistant}},
			{"message", []any{s.key + 1, s.message + ".r", nil, f.tool}},
			s.point(), s.header(),
		}
	})
}

func (f *sqliteFloor) Close() error {
	if err := f.conn.Close(); err != nil {
		return err
	}
	return f.db.Close()
}
