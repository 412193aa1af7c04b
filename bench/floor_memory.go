package main

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

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

func newMemoryFloor() (*memoryFloor, error) {
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

func (f *memoryFloor) begin(context.Context, string) error { return nil }

func (f *memoryFloor) reply(_ context.Context, id string, _ int) error {
	return f.write(id, 1, 4, false)
}

func (f *memoryFloor) results(_ context.Context, id string, _ int, _ bool) error {
	return f.write(id, 1, 1, true)
}

func (f *memoryFloor) whole(_ context.Context, id string, _ int) error {
	return f.write(id, 2, 5, true)
}

// bare changes one field under the mutex.
func (f *memoryFloor) bare(_ context.Context, id string, _ int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version[id]++
	return nil
}

func (f *memoryFloor) both(_ context.Context, id string, _ int) error { return f.write(id, 2, 0, true) }
func (f *memoryFloor) Close() error                                   { return nil }
