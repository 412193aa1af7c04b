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

// sqliteFloor is one connection and prepared statements; one transaction a
// commit.
type sqliteFloor struct {
	payload
	mu   sync.Mutex
	db   *sql.DB
	conn *sql.Conn
	stmt map[string]*sql.Stmt
}

const floorSchema = `
CREATE TABLE sessions (id TEXT PRIMARY KEY, version INTEGER, steps INTEGER, messages INTEGER, last_commit TEXT, checkpoint TEXT, updated INTEGER) WITHOUT ROWID;
CREATE TABLE messages (session TEXT, seq INTEGER, id TEXT, body BLOB, PRIMARY KEY (session, seq)) WITHOUT ROWID;
CREATE TABLE calls (session TEXT, message TEXT, id TEXT, body BLOB, PRIMARY KEY (session, message, id)) WITHOUT ROWID;
CREATE TABLE checkpoints (session TEXT, version INTEGER, id TEXT, step INTEGER, messages INTEGER, at INTEGER, writes BLOB, PRIMARY KEY (session, version)) WITHOUT ROWID;
CREATE TABLE runs (session TEXT, id TEXT, steps INTEGER, body BLOB, PRIMARY KEY (session, id)) WITHOUT ROWID;
CREATE TABLE streams (id TEXT PRIMARY KEY, last INTEGER, updated INTEGER) WITHOUT ROWID;
CREATE TABLE chunks (stream TEXT, first INTEGER, n INTEGER, body BLOB, PRIMARY KEY (stream, first)) WITHOUT ROWID;`

var floorStatements = map[string]string{
	"session": `INSERT INTO sessions VALUES (?1, 1, ?2, ?2, ?3, ?3, ?4) ON CONFLICT (id) DO UPDATE SET
		version = version + 1, steps = ?2, messages = messages + 1, last_commit = ?3, checkpoint = ?3, updated = ?4`,
	"message":    `INSERT INTO messages VALUES (?, ?, ?, ?)`,
	"call":       `INSERT INTO calls VALUES (?, ?, 'call', ?)`,
	"uncall":     `DELETE FROM calls WHERE session = ? AND message = ?`,
	"checkpoint": `INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, '{}')`,
	"run":        `INSERT INTO runs VALUES (?1, 'run', ?2, '{}') ON CONFLICT (session, id) DO UPDATE SET steps = ?2`,
	"stream":     `INSERT INTO streams VALUES (?1, ?2, ?3) ON CONFLICT (id) DO UPDATE SET last = ?2, updated = ?3`,
	"chunks":     `INSERT INTO chunks VALUES (?, ?, ?, ?)`,
}

func newSQLiteFloor(dir string) (floor, error) {
	db, err := sql.Open("sqlite", "file:"+dir+"/floor.db?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)&_txlock=immediate")
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
	f := &sqliteFloor{payload: newPayload(), db: db, conn: conn, stmt: map[string]*sql.Stmt{}}
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

func (f *sqliteFloor) write(ctx context.Context, statements ...bare) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	tx, err := f.conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, s := range statements {
		if _, err := tx.StmtContext(ctx, f.stmt[s.name]).ExecContext(ctx, s.args...); err != nil { //nolint:sqlclosecheck // closed with the transaction
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return tx.Commit()
}

func (f *sqliteFloor) reply(ctx context.Context, id string, n int) error {
	now, message := time.Now().UnixNano(), fmt.Sprintf("run/%d", n)
	return f.write(ctx,
		bare{"chunks", []any{id, 5 * n, 4, f.replyChunks}}, bare{"stream", []any{id, 5 * n, now}},
		bare{"message", []any{id, 2 * n, message, f.assistant}}, bare{"call", []any{id, message, f.call}},
		bare{"run", []any{id, n}}, bare{"session", []any{id, n, message, now}})
}

func (f *sqliteFloor) results(ctx context.Context, id string, n int) error {
	now, message := time.Now().UnixNano(), fmt.Sprintf("run/%d", n)
	return f.write(ctx,
		bare{"chunks", []any{id, 5*n + 4, 1, f.resultChunks}}, bare{"stream", []any{id, 5*n + 4, now}},
		bare{"message", []any{id, 2*n + 1, message + ".r", f.tool}}, bare{"uncall", []any{id, message}},
		bare{"checkpoint", []any{id, n, f.checkpoint, n, 2 * n, now}}, bare{"run", []any{id, n}},
		bare{"session", []any{id, n, message, now}})
}

func (f *sqliteFloor) both(ctx context.Context, id string, n int) error {
	now, message := time.Now().UnixNano(), fmt.Sprintf("run/%d", n)
	return f.write(ctx,
		bare{"message", []any{id, 2 * n, message, f.assistant}}, bare{"message", []any{id, 2*n + 1, message + ".r", f.tool}},
		bare{"checkpoint", []any{id, n, f.checkpoint, n, 2 * n, now}}, bare{"run", []any{id, n}},
		bare{"session", []any{id, n, message, now}})
}

func (f *sqliteFloor) Close() error {
	if err := f.conn.Close(); err != nil {
		return err
	}
	return f.db.Close()
}
