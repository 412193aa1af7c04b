package session_test

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"github.com/helixagents/helix/session"
)

func TestReplyUsageIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.Int64Range(0, 1<<40)
		want := session.ReplyUsage{
			Model: genText().Draw(t, "model"), In: count.Draw(t, "in"), Out: count.Draw(t, "out"),
			CacheRead: count.Draw(t, "cacheRead"), CacheWrite: count.Draw(t, "cacheWrite"),
		}
		want.Model = string([]rune(want.Model)) // valid text, as adapters return it
		raw := want.AppendJSON(nil)
		sameJSON(t, "hand-written", raw, encode(want))
		m := session.Message{Role: session.RoleAssistant, Metadata: map[string]json.RawMessage{session.MetaUsage: raw, session.MetaPrompt: json.RawMessage(`"abc"`)}}
		if got := m.ReplyUsage(); got == nil || *got != want {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		if m.PromptDigest() != "abc" {
			t.Fatalf("the digest is %q", m.PromptDigest())
		}
	})
	if user := session.UserText("x"); user.ReplyUsage() != nil || user.PromptDigest() != "" {
		t.Error("a user's message has the usage of a reply")
	}
}
