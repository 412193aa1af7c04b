package session_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix/session"
)

// BenchmarkDecodeMessage measures the cost of reading one message of a transcript,
// which determines how long resuming a long session takes.
func BenchmarkDecodeMessage(b *testing.B) {
	m := session.Message{
		ID: "run_06gxtm3jvmftg2p8j98xr4hc6w/1", Role: session.RoleAssistant, RunID: "run_06gxtm3jvmftg2p8j98xr4hc6w", Step: 1, At: time.Now(),
		Parts: []session.Part{session.Text(strings.Repeat("all work and no play ", 25)), {
			Kind: session.PartToolCall, CallID: "call_5fa839b497ea10dd46d6f095", ProviderCallID: "call_1", Tool: "search",
			Input: json.RawMessage(`{"query":"compass","limit":10}`),
		}},
	}
	raw, err := session.Encode(&m)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		var got session.Message
		if err := session.Decode("message", raw, &got); err != nil {
			b.Fatal(err)
		}
	}
}
