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
// commit, and rows under integer keys: the least that SQLite can do with them.
type sqliteFloor struct {
	payload
	mu      sync.Mutex
	db      *sql.DB
	conn    *sql.Conn
	stmt    map[string]*sql.Stmt
	numbers map[string]int64 // of sessions
	last    int64            // key of the last row
}

const floorSchema = `
CREATE TABLE sessions (number INTEGER PRIMARY KEY, version INTEGER, steps INTEGER, messages INTEGER, last_commit TEXT, checkpoint TEXT, updated INTEGER);
CREATE TABLE messages (key INTEGER PRIMARY KEY, id TEXT, body BLOB);
CREATE TABLE calls (key INTEGER PRIMARY KEY, body BLOB);
CREATE TABLE checkpoints (key INTEGER PRIMARY KEY, id TEXT, step INTEGER, messages INTEGER, at INTEGER);
CREATE TABLE chunks (key INTEGER PRIMARY KEY, last INTEGER, at INTEGER, body BLOB);`

var floorStatements = map[string]string{
	"begin":      `BEGIN IMMEDIATE`,
	"commit":     `COMMIT`,
	"new":        `INSERT INTO sessions VALUES (?, 0, 0, 0, '', '', 0)`,
	"session":    `UPDATE sessions SET version = version + 1, steps = ?2, messages = messages + 1, last_commit = ?3, checkpoint = ?3, updated = ?4 WHERE number = ?1`,
	"message":    `INSERT INTO messages VALUES (?, ?, ?)`,
	"call":       `INSERT INTO calls VALUES (?, ?)`,
	"uncall":     `DELETE FROM calls WHERE key = ?`,
	"checkpoint": `INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?)`,
	"chunks":     `INSERT INTO chunks VALUES (?, ?, ?, ?)`,
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

// write makes one transaction of the statements for a session's number and the
// next key.
func (f *sqliteFloor) write(ctx context.Context, id string, statements func(number, key int64) []bare) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	number, known := f.numbers[id]
	if !known {
		number = int64(len(f.numbers) + 1)
		f.numbers[id] = number
	}
	f.last += 2
	all := append([]bare{{name: "begin"}}, statements(number, f.last)...)
	if !known {
		all = append(all, bare{"new", []any{number}})
	}
	for _, s := range append(all, bare{name: "commit"}) {
		if _, err := f.stmt[s.name].ExecContext(ctx, s.args...); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

func (f *sqliteFloor) reply(ctx context.Context, id string, n int) error {
	return f.write(ctx, id, func(number, key int64) []bare {
		now, message := time.Now().UnixNano(), fmt.Sprintf("run/%d", n)
		return []bare{
			{"chunks", []any{key, n, now, f.replyChunks}},
			{"message", []any{key, message, f.assistant}},
			{"call", []any{key, f.call}},
			{"session", []any{number, n, message, now}},
		}
	})
}

func (f *sqliteFloor) results(ctx context.Context, id string, n int) error {
	return f.write(ctx, id, func(number, key int64) []bare {
		now, message := time.Now().UnixNano(), fmt.Sprintf("run/%d", n)
		return []bare{
			{"chunks", []any{key, n, now, f.resultChunks}},
			{"message", []any{key, message + ".r", f.tool}},
			{"uncall", []any{key - 2}},
			{"checkpoint", []any{key, f.checkpoint, n, 2 * n, now}},
			{"session", []any{number, n, message, now}},
		}
	})
}

func (f *sqliteFloor) both(ctx context.Context, id string, n int) error {
	return f.write(ctx, id, func(number, key int64) []bare {
		now, message := time.Now().UnixNano(), fmt.Sprintf("run/%d", n)
		return []bare{
			{"message", []any{key, message, f.assistant}},
			{"message", []any{key + 1, message + ".r", f.tool}},
			{"checkpoint", []any{key, f.checkpoint, n, 2 * n, now}},
			{"session", []any{number, n, message, now}},
		}
	})
}

func (f *sqliteFloor) Close() error {
	if err := f.conn.Close(); err != nil {
		return err
	}
	return f.db.Close()
}
