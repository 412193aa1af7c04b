package redis_test

import (
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/store/redis"
	"github.com/helixagents/helix/stream"
)

// Readers that never poll are notified of what another process writes.
func TestReadersAreTold(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"single": single(t), "cluster": cluster(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := eventually.Context(t)
			config := redis.Config{URL: url, Prefix: newPrefix(), PollInterval: time.Hour}
			writer, reader := open(t, config), open(t, config)
			by := stream.Producer{Session: "a", Epoch: 1}
			next, stop := iter.Pull2(reader.Streams().Read(ctx, "a", 0, true))
			defer stop()
			if _, err := writer.Streams().Reactivate(ctx, "a", by); err != nil {
				t.Fatal(err)
			}
			expect := func(frame stream.FrameKind, sequence int64) {
				t.Helper()
				item, err, _ := next()
				if err != nil || item.Frame != frame || item.Sequence != sequence {
					t.Fatalf("got %+v, %v; want %s %d", item, err, frame, sequence)
				}
			}
			expect(stream.FrameCaughtUp, 0)
			for n := range int64(5) {
				_, err := writer.Streams().Append(ctx, "a", stream.Batch{
					Producer: by, First: n + 1, Chunks: []stream.Chunk{{Kind: stream.TextDelta, Delta: fmt.Sprint(n)}},
				})
				if err != nil {
					t.Fatal(err)
				}
				expect(stream.FrameChunk, n+1)
			}
			if err := writer.Streams().End(ctx, "a", by, stream.End{Status: stream.EndCompleted}); err != nil {
				t.Fatal(err)
			}
			expect(stream.FrameEnd, 5)
		})
	}
}
