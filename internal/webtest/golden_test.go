package webtest

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/helixagents/helix/server/aisdk"
)

// The chunks of the translation's golden files, of every version, are what the real
// packages read, and come to the same message there as here.
func TestGoldenChunks(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"5", "6", "7"} {
		t.Run("ai "+version, func(t *testing.T) {
			t.Parallel()
			paths, err := filepath.Glob(filepath.Join("..", "..", "server", "aisdk", "testdata", "*.v"+version+".jsonl"))
			if err != nil || len(paths) == 0 {
				t.Fatalf("there are no golden files: %v", err)
			}
			var stories bytes.Buffer
			for _, path := range paths {
				stories.Write(append(tell(t, path), '\n'))
			}
			if passed := run(t, "ai"+version, "golden.mjs", nil, &stories); passed != len(paths) {
				t.Errorf("%d of %d stories passed", passed, len(paths))
			}
		})
	}
}

// tell makes a line of a golden file: its chunks, and the message that they come to.
func tell(t *testing.T, path string) []byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	story := struct {
		Name   string            `json:"name"`
		Chunks []json.RawMessage `json:"chunks"`
		Want   aisdk.Message     `json:"want"`
	}{Name: strings.TrimSuffix(filepath.Base(path), ".jsonl"), Want: aisdk.Message{Role: "assistant", Parts: []aisdk.Part{}}}
	for line := range bytes.Lines(raw) {
		var c aisdk.Chunk
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		story.Chunks = append(story.Chunks, bytes.TrimSpace(line))
		story.Want.Apply(&c)
	}
	out, err := json.Marshal(story)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
