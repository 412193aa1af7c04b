package memory

import (
	"bytes"
	"testing"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// Callers may modify the bytes they get: they are shared neither with other
// readers nor with the store.
func TestBytesAreNotShared(t *testing.T) {
	t.Parallel()
	b := New(Config{})
	defer b.Close()
	ctx, s := t.Context(), b.Sessions()
	state := &session.State{ID: "a", Agent: "tester", Status: session.Active}
	state.Custom.Set("k", raw(`"value"`))
	if err := session.Create(ctx, s, state); err != nil {
		t.Fatal(err)
	}
	if _, err := session.CreateCheckpoint(ctx, s, "a", session.NewCheckpoint{ID: "cp"}); err != nil {
		t.Fatal(err)
	}

	scribble := map[string]func() []byte{
		"the document passed in": func() []byte { return state.Custom.Get("k") },
		"a loaded document": func() []byte {
			loaded, err := s.Load(ctx, "a")
			if err != nil {
				t.Fatal(err)
			}
			return loaded.Custom.Get("k")
		},
		"a checkpoint": func() []byte {
			cp, err := s.Checkpoint(ctx, "a", "cp")
			if err != nil {
				t.Fatal(err)
			}
			return cp.State.Get("k")
		},
	}
	for what, get := range scribble {
		copy(get(), `"XXXXX"`)
		for read, again := range scribble {
			if read == "the document passed in" {
				continue
			}
			if got := string(again()); got != `"value"` {
				t.Errorf("after writing into %s, %s has %s", what, read, got)
			}
		}
	}
}

func TestChunksAreNotShared(t *testing.T) {
	t.Parallel()
	b := New(Config{})
	defer b.Close()
	ctx, s := t.Context(), b.Streams()
	failure := session.ErrInvalid.WithMessage("before")
	failure.Calls = []string{"before"}
	sent := stream.Chunk{
		Kind: stream.ToolEnd, Arguments: raw(`"before"`), Result: raw(`"before"`), Data: raw(`"before"`),
		MessageCount: new(1), Error: failure, Patches: []session.Patch{{Op: "add", Path: "/x", Value: raw(`"before"`)}},
		Messages: []session.Message{session.UserText("before")},
	}
	if _, err := s.Reactivate(ctx, "a", stream.Producer{Session: "a"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(ctx, "a", stream.Batch{Producer: stream.Producer{Session: "a"}, Chunks: []stream.Chunk{sent}}); err != nil {
		t.Fatal(err)
	}
	read := func() *stream.Chunk {
		items, err := s.Chunks(ctx, "a", 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		return items[0].Chunk
	}
	scribble := func(c *stream.Chunk) {
		for _, raw := range [][]byte{c.Arguments, c.Result, c.Data, c.Patches[0].Value} {
			copy(raw, `"XXXXXX"`)
		}
		*c.MessageCount = 2
		c.Error.Message, c.Error.Calls[0] = "scribbled", "scribbled"
		c.Patches[0].Op = "scribbled"
		c.Messages[0].Parts[0].Text = "scribbled"
	}
	before, err := read().Encode()
	if err != nil {
		t.Fatal(err)
	}
	scribble(&sent)
	scribble(read())
	after, err := read().Encode()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, after) {
		t.Errorf("the stored chunk changed:\nfrom %s\nto   %s", before, after)
	}
}
