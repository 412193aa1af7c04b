package aisdk_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/helixagents/helix/server/aisdk"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// Clients refuse chunks whose texts are missing, and an empty one is left out of the
// JSON.
func TestEmptyTexts(t *testing.T) {
	t.Parallel()
	e := aisdk.NewEncoder(aisdk.Config{Version: aisdk.V6, SessionID: "s", MessageID: "m", RunID: "r"})
	chunks := e.Start()
	for i, c := range []stream.Chunk{
		{Kind: stream.StepStarted, MessageID: "r/1"},
		{Kind: stream.TextDelta},
		{Kind: stream.Thinking},
		{Kind: stream.ToolArgsStart, CallID: "c", Tool: "t"},
		{Kind: stream.ToolArgsDelta, CallID: "c"},
		{Kind: stream.ToolStart, CallID: "c", Tool: "t", Arguments: json.RawMessage(`{}`)},
		{Kind: stream.ToolEnd, CallID: "c", Tool: "t", Error: &session.Error{Code: session.CodeToolFailed}},
	} {
		c.AgentID, c.RunID, c.Step = "s", "r", 1
		chunks = append(chunks, e.Encode(int64(i+1), &c)...)
	}
	failed := false
	for i := range chunks {
		c := &chunks[i]
		if strings.HasSuffix(c.Type, "-delta") && c.Delta == "" && c.InputTextDelta == "" {
			t.Errorf("there is an empty %s", c.Type)
		}
		if c.Type == aisdk.TypeOutputError {
			failed = true
			if c.ErrorText == "" {
				t.Error("the failure has no text")
			}
		}
	}
	if !failed {
		t.Error("the call has not failed")
	}
}
