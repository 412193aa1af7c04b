package llmtest_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"testing"
)

// mockFault is one way in which a request fails.
type mockFault struct {
	name   string
	weight int
	header map[string]string
	// fixture is laid over every answer to a request of this fault.
	fixture map[string]any
}

const (
	mockAnswer  = "It is blue, as it has always been, and will be."
	contextName = "X-Aimock-Context"
)

// mockSays is everything that the mock ever says.
var mockSays = []string{
	"Both at once.", `search{"query":"compass"}`, `weather{"city":"Zürich"}`, "I take a note of it.", `note{"text":"blue"}`,
	`__finish__{"color":"blue"}`, mockAnswer, "unheard_of{}", "It is bl", "It is",
	`note{"invalid_arguments":"{\"text\": \"no en"}`, // where a wire has arguments as text
	"note{}", // where it has them as an object, which half of one is not
}

// mockFaults are the faults of the mock. Those that it deals out by itself are asked
// for by a header; those that belong to an answer by a context, of which each answer
// has its own variant.
func mockFaults() []mockFault {
	all := []mockFault{
		{name: "none", weight: 120},
		{name: "drop", weight: 10, header: map[string]string{"X-Aimock-Chaos-Drop": "1"}},
		{name: "malformed", weight: 10, header: map[string]string{"X-Aimock-Chaos-Malformed": "1"}},
		{name: "disconnect", weight: 10, header: map[string]string{"X-Aimock-Chaos-Disconnect": "1"}},
		{name: "rate-limit", weight: 1, header: map[string]string{"X-Aimock-Chaos-Ratelimit": "1"}},
		{name: "latency", weight: 10, header: map[string]string{"X-Aimock-Chaos-Latency": "40"}},
	}
	variant := func(name string, weight int, fixture map[string]any) {
		all = append(all, mockFault{name, weight, map[string]string{contextName: name}, fixture})
	}
	for _, n := range []int{1, 2, 3, 4, 6, 9, 14} {
		variant(fmt.Sprintf("cut-after-%d-chunks", n), 4, map[string]any{"truncateAfterChunks": n, "chunkSize": 3})
	}
	for _, n := range []int{0, 5, 15} {
		variant(fmt.Sprintf("cut-after-%d-ms", n), 4, map[string]any{"disconnectAfterMs": n, "latency": 2, "chunkSize": 3})
	}
	variant("slow", 6, map[string]any{
		"streamingProfile": map[string]any{"ttft": 50, "tps": 300, "jitter": 0.9}, "chunkSize": 2,
	})
	for _, e := range []struct {
		status int
		kind   string
	}{
		{http.StatusBadRequest, "invalid_request_error"},
		{http.StatusUnauthorized, "authentication_error"},
		{http.StatusForbidden, "permission_error"},
		{http.StatusNotFound, "not_found_error"},
		{http.StatusRequestTimeout, "timeout_error"},
		{http.StatusConflict, "conflict_error"},
		{http.StatusRequestEntityTooLarge, "request_too_large"},
		{http.StatusTooManyRequests, "rate_limit_error"},
		{http.StatusInternalServerError, "api_error"},
		{http.StatusBadGateway, "api_error"},
		{http.StatusServiceUnavailable, "overloaded_error"},
		{http.StatusGatewayTimeout, "timeout_error"},
		{529, "overloaded_error"},
	} {
		variant(fmt.Sprintf("error-%d", e.status), 2, map[string]any{"response": map[string]any{
			"status": e.status, "retryAfter": 0, "error": map[string]any{"type": e.kind, "message": "It went wrong."},
		}})
	}
	variant("bad-arguments", 4, map[string]any{"response": map[string]any{
		"toolCalls": []any{map[string]any{"name": "note", "arguments": `{"text": "no en`}},
	}})
	variant("unknown-tool", 4, map[string]any{"response": map[string]any{
		"toolCalls": []any{map[string]any{"name": "unheard_of", "arguments": `{}`}},
	}})
	variant("length", 4, map[string]any{"response": map[string]any{"content": "It is bl", "finishReason": "length"}})
	variant("filtered", 2, map[string]any{"response": map[string]any{"content": "It is", "finishReason": "content_filter"}})
	variant("empty", 3, map[string]any{"response": map[string]any{"content": ""}})
	return all
}

func draw(rng *rand.Rand) mockFault {
	all := mockFaults()
	sum := 0
	for i := range all {
		sum += all[i].weight
	}
	at := rng.IntN(sum)
	for i := range all {
		if at -= all[i].weight; at < 0 {
			return all[i]
		}
	}
	panic("unreachable")
}

// mockAnswers are what the mock says at each point of a turn, the first that fits.
func mockAnswers() []map[string]any {
	call := func(name string, arguments any) map[string]any {
		return map[string]any{"name": name, "arguments": arguments}
	}
	finish := map[string]any{"toolCalls": []any{call("__finish__", map[string]any{"color": "blue"})}}
	return []map[string]any{
		{
			"match": map[string]any{"hasToolResult": false},
			"response": map[string]any{
				"reasoning": "Both at once.", "toolCalls": []any{
					call("search", map[string]any{"query": "compass"}), call("weather", map[string]any{"city": "Zürich"}),
				},
			},
		},
		{
			"match": map[string]any{"toolResultContains": "sunny"},
			"response": map[string]any{
				"content": "I take a note of it.", "toolCalls": []any{call("note", map[string]any{"text": "blue"})},
			},
		},
		{"match": map[string]any{"hasToolResult": true, "toolName": "__finish__"}, "response": finish},
		{"match": map[string]any{"hasToolResult": true}, "response": map[string]any{"content": mockAnswer}},
	}
}

// encodeFixtures makes the mock's fixtures: the answers of every fault that has its
// own, then the plain ones.
func encodeFixtures(t testing.TB) []byte {
	t.Helper()
	var out []map[string]any
	for _, fault := range append(mockFaults(), mockFault{}) {
		if fault.fixture == nil && fault.name != "" {
			continue
		}
		for _, answer := range mockAnswers() {
			fixture := maps.Clone(answer)
			maps.Copy(fixture, fault.fixture)
			match := maps.Clone(answer["match"].(map[string]any))
			if fault.name != "" {
				match["context"] = fault.name
			}
			fixture["match"] = match
			out = append(out, fixture)
		}
	}
	raw, err := json.Marshal(map[string]any{"fixtures": out})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
