package session_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/helixagents/helix/session"
)

func TestChildRefUpdate(t *testing.T) {
	t.Parallel()
	created := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	failed := errors.New("failed")
	for name, test := range map[string]struct {
		change func(*session.ChildRef) error
		want   error
	}{
		"a status":         {func(c *session.ChildRef) error { c.Status = session.ChildWaiting; return nil }, nil},
		"its remote field": {func(c *session.ChildRef) error { c.Remote = nil; return nil }, nil},
		"in place": {func(c *session.ChildRef) error {
			c.Remote[0] = 'x'
			c.Remote, c.CreatedAt = nil, time.Time{}
			return nil
		}, nil},
		"another session": {func(c *session.ChildRef) error { c.SessionID = "other"; return nil }, session.ErrInvalid},
		"broken JSON":     {func(c *session.ChildRef) error { c.Remote = json.RawMessage("{"); return nil }, session.ErrInvalid},
		"a failure":       {func(*session.ChildRef) error { return failed }, failed},
	} {
		ref := session.ChildRef{SessionID: "kid", CreatedAt: created, Remote: json.RawMessage(`{}`)}
		err := ref.Update(test.change)
		switch {
		case !errors.Is(err, test.want):
			t.Errorf("%s: got %v, want %v", name, err, test.want)
		case err == nil && (string(ref.Remote) != `{}` || !ref.CreatedAt.Equal(created)):
			t.Errorf("%s: the reference is now %+v", name, ref)
		}
	}
}
