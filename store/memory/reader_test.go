package memory

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/helixagents/helix/stream"
)

// A reader that stops waiting for a stream leaks nothing.
func TestReadersLeakNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New(Config{})
		defer b.Close()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		const readers = 3
		for range readers {
			go func() {
				var last error
				for _, err := range b.Streams().Read(ctx, "nobody", 0, true) {
					last = err
				}
				done <- last
			}()
		}
		synctest.Wait()
		if n := len(b.hub.readers.Keys()); n != 1 {
			t.Errorf("%d readers have %d registrations", readers, n)
		}
		cancel()
		for range readers {
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("the reader ended with %v", err)
			}
		}
		if n := len(b.hub.readers.Keys()); n != 0 {
			t.Errorf("nobody waits, but %d registrations are left", n)
		}
	})
}

// A reader that does not pull blocks nobody, and finally gets everything.
func TestSlowReaderBlocksNobody(t *testing.T) {
	t.Parallel()
	b := New(Config{})
	defer b.Close()
	ctx, s := t.Context(), b.Streams()
	by := stream.Producer{Session: "a", Epoch: 1}
	if _, err := s.Reactivate(ctx, "a", by); err != nil {
		t.Fatal(err)
	}
	write := func(first int64, n int) {
		for i := range n {
			batch := stream.Batch{Producer: by, First: first + int64(i), Chunks: []stream.Chunk{{Kind: stream.TextDelta, Delta: "x"}}}
			if _, err := s.Append(ctx, "a", batch); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(1, 1)
	seen := int64(0)
	for item, err := range s.Read(ctx, "a", 0, false) {
		if err != nil {
			t.Fatal(err)
		}
		if seen == 0 { // while this reader pauses, everything else continues
			write(2, 1000)
			for _, err := range s.Read(ctx, "a", 1000, false) {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			if err := s.End(ctx, "a", by, stream.End{Status: stream.EndCompleted}); err != nil {
				t.Fatal(err)
			}
		}
		if item.Chunk != nil {
			seen++
			if item.Sequence != seen {
				t.Fatalf("got chunk %d, want %d", item.Sequence, seen)
			}
		}
	}
	if seen != 1001 {
		t.Errorf("the reader saw %d chunks of 1001", seen)
	}
}
