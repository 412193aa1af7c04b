package postgres

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/helixagents/helix/session"
)

// TestKnownKeys lets one process rely on what it knows of a session's keys, while
// another one changes them, and while the session is replaced by another with the
// same id.
func TestKnownKeys(t *testing.T) {
	t.Parallel()
	b := openTest(t)
	other := openTest(t, func(c *Config) { c.Schema = b.config.Schema })
	turn := newWireTurn(t, b)
	write := func(kind session.OpKind, value string) error {
		op := session.Op{Kind: kind, Key: "k", Value: []byte(value)}
		if kind == session.OpAppend {
			op.Value, op.Items = nil, []json.RawMessage{[]byte(value)}
		}
		return turn.change(t.Context(), session.Change{Writes: session.Writes{Ops: []session.Op{op}}})
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		must(write(session.OpReplace, "1"))
	}
	if err := write(session.OpAppend, "1"); !errors.Is(err, session.ErrInvalid) {
		t.Errorf("an append to a value that is not a list: %v", err)
	}
	turn.s = other.Sessions().(tenantStore).sessions
	must(write(session.OpReplace, "[]"))
	turn.s = b.Sessions().(tenantStore).sessions
	must(write(session.OpAppend, "1"))
	must(write(session.OpAppend, "2"))
	must(write(session.OpDelete, ""))
	must(write(session.OpReplace, "1"))
	if err := write(session.OpAppend, "1"); !errors.Is(err, session.ErrInvalid) {
		t.Errorf("a second append to a value that is not a list: %v", err)
	}

	// A session with the same id that has reached the same version, without the key.
	want := turn.version
	_, err := other.Sessions().Delete(t.Context(), "a")
	must(err)
	again := newRunner(t, other, "a")
	turn.fence, turn.version = again.fence, again.version
	turn.s = other.Sessions().(tenantStore).sessions
	for turn.version < want {
		must(turn.change(t.Context(), session.Change{}))
	}
	turn.s = b.Sessions().(tenantStore).sessions
	must(write(session.OpReplace, "1"))
	if err := write(session.OpAppend, "1"); !errors.Is(err, session.ErrInvalid) {
		t.Errorf("an append to a value that is not a list in the other session: %v", err)
	}
}
