package stream_test

import (
	"encoding/json"
	"testing"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// A preview folds to a message that says where the whole result is; what an error or another
// chunk has in its data says nothing of the kind.
func TestFoldOfAPreview(t *testing.T) {
	t.Parallel()
	about := json.RawMessage(`{"id":"a","blobs":["sha256:a"],"bytes":9,"lines":1}`)
	chunks := []stream.Chunk{
		{Kind: stream.StepStarted, AgentID: "s", RunID: "run_1", Step: 1, MessageID: "run_1/1"},
		{Kind: stream.ToolStart, AgentID: "s", RunID: "run_1", Step: 1, CallID: "c1", Tool: "t", Arguments: json.RawMessage(`{}`)},
		{Kind: stream.ToolStart, AgentID: "s", RunID: "run_1", Step: 1, CallID: "c2", Tool: "t", Arguments: json.RawMessage(`{}`)},
		{Kind: stream.ToolEnd, AgentID: "s", RunID: "run_1", Step: 1, CallID: "c1", Tool: "t", Result: json.RawMessage(`"[…]"`), Success: true, Data: about},
		{Kind: stream.ToolEnd, AgentID: "s", RunID: "run_1", Step: 1, CallID: "c2", Tool: "t", Error: &session.Error{Code: "x", Message: "no"}, Data: about},
		{Kind: stream.StepCommitted, AgentID: "s", RunID: "run_1", Step: 1, MessageID: "run_1/1"},
	}
	for i := range chunks { // as a reader has them
		raw, err := chunks[i].Encode()
		if err != nil {
			t.Fatal(err)
		}
		chunks[i] = stream.Chunk{}
		if err := json.Unmarshal(raw, &chunks[i]); err != nil {
			t.Fatal(err)
		}
	}
	got := stream.Fold("s", chunks)
	if len(got) != 3 || got[1].Evicted() == nil || got[1].Evicted().Blobs[0] != "sha256:a" || got[2].Evicted() != nil {
		t.Errorf("it folds to %+v", got)
	}
	for i := range chunks {
		if evicted := chunks[i].Evicted() != nil; evicted != (i == 3) {
			t.Errorf("chunk %d is evicted: %t", i, evicted)
		}
	}
}
