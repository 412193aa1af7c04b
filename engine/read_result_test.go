package engine

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/helixagents/helix"
)

// A user who reads much does not keep others from reading.
func TestReadsAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newReadResult().Execute.(*resultReader)
		waits := func(scope helix.Scope) bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			input := json.RawMessage(`{"id":"` + strings.Repeat("0", 64) + `"}`)
			_, err := r.Call(ctx, &helix.Call{Scope: scope}, input)
			return errors.Is(err, context.DeadlineExceeded)
		}
		alice := helix.Scope{Tenant: "north", UserID: "alice", SessionID: "s1"}
		done, err := r.reads.Take(t.Context(), newReader(&alice))
		if err != nil {
			t.Fatal(err)
		}
		alice.SessionID = "s2"
		nobody := helix.Scope{Tenant: "north", SessionID: "s1-sub", RootID: "s1"}
		for name, c := range map[string]struct {
			scope helix.Scope
			waits bool
		}{
			"the same user":                   {alice, true},
			"another user":                    {helix.Scope{Tenant: "north", UserID: "bob"}, false},
			"the user of another tenant":      {helix.Scope{Tenant: "south", UserID: "alice"}, false},
			"a conversation without its user": {nobody, false},
		} {
			if got := waits(c.scope); got != c.waits {
				t.Errorf("%s waits: %t", name, got)
			}
		}
		done()
		if waits(alice) {
			t.Error("the user waits for ever")
		}
		done, err = r.reads.Take(t.Context(), newReader(&nobody))
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		if !waits(helix.Scope{Tenant: "north", SessionID: "s1"}) {
			t.Error("a conversation reads twice at a time")
		}
	})
}
