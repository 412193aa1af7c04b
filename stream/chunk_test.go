package stream_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

func chunk(kind stream.Kind) stream.Chunk {
	return stream.Chunk{
		Kind: kind, AgentID: "s-1", AgentType: "researcher", RunID: "run_1", Step: 2,
		At: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC),
	}
}

func TestSplitKeepsTheText(t *testing.T) {
	t.Parallel()
	texts := rapid.OneOf(
		rapid.StringN(0, 3000, -1),
		rapid.Custom(func(t *rapid.T) string {
			unit := rapid.SampledFrom([]string{"a", "\n", "\"\\", "\x00", "é", "日", "🧭", "<&>", "\u2028", "a\u0301"}).Draw(t, "unit")
			return strings.Repeat(unit, rapid.IntRange(0, 3000).Draw(t, "times"))
		}),
	)
	rapid.Check(t, func(t *rapid.T) {
		c := chunk(rapid.SampledFrom([]stream.Kind{stream.TextDelta, stream.Thinking, stream.ToolArgsDelta}).Draw(t, "kind"))
		c.Delta, c.MessageID = texts.Draw(t, "text"), "run_1/2"
		limit := rapid.IntRange(500, 4000).Draw(t, "limit")
		pieces, err := stream.Split(c, limit)
		if err != nil {
			t.Fatal(err)
		}
		var joined strings.Builder
		for _, raw := range pieces {
			if len(raw) > limit {
				t.Fatalf("a piece has %d bytes of %d", len(raw), limit)
			}
			var piece stream.Chunk
			if err := json.Unmarshal(raw, &piece); err != nil {
				t.Fatal(err)
			}
			if !utf8.ValidString(piece.Delta) || strings.ContainsRune(piece.Delta, utf8.RuneError) && !strings.ContainsRune(c.Delta, utf8.RuneError) {
				t.Fatalf("a rune was cut: %q", piece.Delta)
			}
			joined.WriteString(piece.Delta)
			if piece.Kind != c.Kind || piece.MessageID != c.MessageID || piece.AgentID != c.AgentID || piece.Step != c.Step || !piece.At.Equal(c.At) {
				t.Fatalf("%+v became %+v", c, piece)
			}
		}
		if joined.String() != c.Delta {
			t.Fatalf("%q became %q", c.Delta, joined.String())
		}
	})
}

func TestSplitTable(t *testing.T) {
	t.Parallel()
	text := func(s string) stream.Chunk { c := chunk(stream.TextDelta); c.Delta = s; return c }
	data := chunk(stream.Custom)
	data.Data = json.RawMessage(`"` + strings.Repeat("x", 2000) + `"`)
	both := text(strings.Repeat("x", 2000))
	both.Reason = strings.Repeat("y", 2000)
	broken := chunk(stream.Custom)
	broken.Data = json.RawMessage(`{`)
	for name, test := range map[string]struct {
		chunk stream.Chunk
		limit int
		want  *session.Error // nil if the chunk is split
	}{
		"short text":            {text("x"), 1000, nil},
		"escapes alone":         {text(strings.Repeat("\x00", 5000)), 1000, nil},
		"invalid bytes":         {text(strings.Repeat("\x80", 5000)), 1000, nil},
		"large data":            {data, 1000, session.ErrTooLarge},
		"large text and more":   {both, 1000, session.ErrTooLarge},
		"no room for text":      {text("hello"), 100, session.ErrTooLarge},
		"a later kind":          {chunk("gossip"), 1000, nil},
		"no kind":               {chunk(""), 1000, session.ErrInvalid},
		"a kind without a name": {chunk("go ssip"), 1000, session.ErrInvalid},
		"a kind too long":       {chunk(stream.Kind(strings.Repeat("x", 65))), 1000, session.ErrInvalid},
		"what is not even JSON": {broken, 1000, session.ErrInvalid},
	} {
		pieces, err := stream.Split(test.chunk, test.limit)
		if test.want == nil && (err != nil || len(pieces) == 0) || test.want != nil && !errors.Is(err, test.want) {
			t.Errorf("%s: %d pieces, %v, want %v", name, len(pieces), err, test.want)
		}
		for _, piece := range pieces {
			if len(piece) > test.limit {
				t.Errorf("%s: a piece has %d bytes of %d", name, len(piece), test.limit)
			}
		}
	}
}

func TestKinds(t *testing.T) {
	t.Parallel()
	seen := map[stream.Kind]bool{}
	for _, kind := range stream.Kinds() {
		if seen[kind] || !kind.Valid() {
			t.Errorf("%q: twice, or not valid", kind)
		}
		seen[kind] = true
	}
	if stream.Kind("").Valid() || stream.Kind("gossip").Valid() {
		t.Error("an unknown kind is valid")
	}
}

func TestTerminalFrames(t *testing.T) {
	t.Parallel()
	for frame, terminal := range map[stream.FrameKind]bool{
		stream.FrameChunk: false, stream.FrameCaughtUp: false, stream.FrameRewound: false,
		stream.FrameEnd: true, stream.FrameFail: true, stream.FrameTruncated: true,
	} {
		if (stream.Item{Frame: frame}).Terminal() != terminal {
			t.Errorf("%s: terminal is not %v", frame, terminal)
		}
	}
}

// fixtures returns chunks as the first version wrote them. They never change.
func fixtures(t testing.TB) map[string][]byte {
	files, err := filepath.Glob("testdata/v1/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	out := map[string][]byte{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimSuffix(filepath.Base(file), ".json")] = raw
	}
	return out
}

func TestFixturesAreReadAndWrittenBack(t *testing.T) {
	t.Parallel()
	all := fixtures(t)
	chunks := map[string]stream.Chunk{}
	for name, raw := range all {
		var c stream.Chunk
		if err := json.Unmarshal(raw, &c); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := c.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		again, err := c.Encode()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(decoded(t, again), decoded(t, raw)) {
			t.Errorf("%s: %s became %s", name, raw, again)
		}
		if c.AgentID != "s-1" || c.AgentType != "researcher" || c.RunID != "run_1" || c.Step != 2 || c.At.Nanosecond() != 890123456 {
			t.Errorf("%s: %+v", name, c)
		}
		chunks[name] = c
	}
	if c := chunks["chunk-text"]; c.Kind != stream.TextDelta || c.Delta != "日本 <🧭>\n" || c.MessageID != "run_1/2" {
		t.Errorf("text: %+v", c)
	}
	if c := chunks["chunk-input"]; c.Messages[0].Content() != "Who?" || c.Turn != 4 || len(c.Messages[0].Extra) != 1 {
		t.Errorf("input: %+v", c)
	}
	if c := chunks["chunk-tool-start"]; c.CallID != "call_1" || c.Tool != "search" || c.Arguments == nil {
		t.Errorf("tool start: %+v", c)
	}
	if c := chunks["chunk-tool-end"]; !c.Success || c.Result == nil || !errors.Is(chunks["chunk-tool-error"].Error, session.ErrTooLarge) {
		t.Errorf("tool end: %+v", c)
	}
	if c := chunks["chunk-patch"]; len(c.Patches) != 2 || string(c.Patches[0].Value) != "null" || c.Patches[1].Value != nil {
		t.Errorf("patch: %+v", c)
	}
	if c := chunks["chunk-discarded"]; c.Scope != stream.ScopeResults || c.Attempt != 2 || c.Reason != "takeover" {
		t.Errorf("discarded: %+v", c)
	}
	if c := chunks["chunk-rewound"]; c.MessageCount == nil || *c.MessageCount != 3 {
		t.Errorf("rewound: %+v", c)
	}
	if c := chunks["chunk-approval"]; c.ApprovalID != "apr_1" || c.Child != "s-1-sub-call_1" {
		t.Errorf("approval: %+v", c)
	}
	if c := chunks["chunk-custom"]; c.Name != "hits" || c.Data == nil {
		t.Errorf("custom: %+v", c)
	}
}

func decoded(t testing.TB, raw []byte) any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// FuzzDecode passes arbitrary bytes to the decoder of chunks: it must not panic,
// and every chunk that it decodes can be encoded, split and folded.
func FuzzDecode(f *testing.F) {
	for _, raw := range fixtures(f) {
		f.Add(raw)
	}
	for _, seed := range []string{`null`, `{}`, `{"type":"rewound","messageCount":-1}`, `{"type":"input","messages":[null]}`, `{"type":"tool_end","error":{}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var c stream.Chunk
		if json.Unmarshal(data, &c) != nil {
			return
		}
		raw, err := c.Encode()
		if err == nil {
			var again stream.Chunk
			if err := json.Unmarshal(raw, &again); err != nil {
				t.Fatalf("%s was written as %s, which cannot be read: %v", data, raw, err)
			}
		}
		pieces, err := stream.Split(c, 400)
		if err != nil && !errors.Is(err, session.ErrTooLarge) && !errors.Is(err, session.ErrInvalid) {
			t.Errorf("%v is not typed", err)
		}
		for _, piece := range pieces {
			if len(piece) > 400 {
				t.Errorf("a piece has %d bytes", len(piece))
			}
		}
		start := chunk(stream.StepStarted)
		start.AgentID, start.RunID, start.Step = c.AgentID, c.RunID, c.Step
		stream.Fold(c.AgentID, []stream.Chunk{c, start, c, c})
	})
}
