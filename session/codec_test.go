package session_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/helixagents/helix/session"
)

// TestAppendString has every ASCII character, and one that is not, at every place
// of a string.
func TestAppendString(t *testing.T) {
	t.Parallel()
	for c := range rune(0x81) {
		for at := range 20 {
			s := strings.Repeat("a", at) + string(c) + strings.Repeat(" ", 20-at)
			var got string
			if err := json.Unmarshal(session.AppendString(nil, s), &got); err != nil || got != s {
				t.Fatalf("%q became %q: %v", s, got, err)
			}
		}
	}
}
