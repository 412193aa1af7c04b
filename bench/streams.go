package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/helixagents/helix/stream"
)

// streams measures how long a chunk takes from its append to its reader.
func streams(ctx context.Context, k kind, quick bool) ([]row, error) {
	return relay(ctx, k, "stream", 1, samples(quick))
}

// fanout measures the same with a hundred readers.
func fanout(ctx context.Context, k kind, quick bool) ([]row, error) {
	return relay(ctx, k, "fanout", 100, samples(quick))
}

func samples(quick bool) int {
	if quick {
		return 100
	}
	return 500
}

// relay has readers follow a stream while chunks that carry their time are
// appended.
func relay(ctx context.Context, k kind, name string, readers, chunks int) ([]row, error) {
	var mu sync.Mutex
	var all []time.Duration
	err := k.on(ctx, func(db *site) error {
		by := stream.Producer{Session: "s", Epoch: 1, RunID: "r"}
		if _, err := db.Streams().Reactivate(ctx, "s", by); err != nil {
			return err
		}
		return each(readers+1, func(i int) error {
			if i == readers {
				return feed(ctx, db.Streams(), by, chunks)
			}
			var took []time.Duration
			for item, err := range db.Streams().Read(ctx, "s", 0, true) {
				if err != nil {
					return err
				}
				if item.Chunk != nil {
					sent, err := strconv.ParseInt(item.Chunk.Delta, 10, 64)
					if err != nil {
						return err
					}
					took = append(took, time.Since(time.Unix(0, sent)))
				}
			}
			if len(took) != chunks {
				return fmt.Errorf("a reader got %d of %d chunks", len(took), chunks)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took...)
			return nil
		})
	})
	var rows []row
	for _, p := range []float64{50, 99} {
		rows = append(rows, row{
			Bench: name, Store: k.name, Runtime: "none", N: readers, Unit: fmt.Sprintf("µs p%.0f", p), Value: percentile(all, p),
		})
	}
	return rows, err
}

func feed(ctx context.Context, m stream.Manager, by stream.Producer, chunks int) error {
	for n := range chunks {
		now := time.Now()
		appended, err := m.Append(ctx, "s", stream.Batch{Producer: by, First: int64(n + 1), Chunks: []stream.Chunk{{
			Kind: stream.TextDelta, AgentID: "s", AgentType: "bench", At: now, RunID: "r", Delta: strconv.FormatInt(now.UnixNano(), 10),
		}}})
		if err != nil {
			return err
		}
		if _, err := appended.Wait(ctx); err != nil {
			return err
		}
		time.Sleep(time.Millisecond) // so that the readers idle between chunks
	}
	return m.End(ctx, "s", by, stream.End{Status: stream.EndCompleted})
}
