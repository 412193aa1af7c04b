package session_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/helixagents/helix/session"
)

// TestCallKeepsEveryField sets one field after the other: a field that the
// hand-written encoding omits would come back empty.
func TestCallKeepsEveryField(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 4, 3, 2, 1, 987654321, time.UTC)
	full := session.Call{
		MessageID: "run/1", ID: "call_1", Index: 2, Tool: "pay", Kind: session.CallServer, Status: session.CallSettled,
		ReadOnly: true, Idempotent: true, FinishWith: true, Serial: true, Child: "s-sub-call_1", Name: "writer", Rejected: session.ErrStale.WithMessage("no"),
		Asked: 2, Memo: []byte(`{"a":1}`),
		Result:  &session.Message{ID: "m", Role: session.RoleTool},
		Writes:  session.Writes{Ops: []session.Op{{Kind: session.OpDelete, Key: "k"}}},
		BegunAt: at, SettledAt: at.Add(time.Second), Extra: session.Extra{"new": []byte("1")},
	}
	for i := range reflect.TypeFor[session.Call]().NumField() {
		name := reflect.TypeFor[session.Call]().Field(i).Name
		value := reflect.ValueOf(full).Field(i)
		if value.IsZero() {
			t.Fatalf("the test has no value for %s", name)
		}
		var call, back session.Call
		reflect.ValueOf(&call).Elem().Field(i).Set(value)
		raw, err := session.Encode(&call)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := session.Decode("call", raw, &back); err != nil {
			t.Fatalf("%s: %s: %v", name, raw, err)
		}
		again, err := session.Encode(&back)
		if err != nil || string(again) != string(raw) || reflect.ValueOf(back).Field(i).IsZero() {
			t.Errorf("%s was written as %s and read as %s, %v", name, raw, again, err)
		}
	}
}
