package engine_test

import (
	"context"
	"errors"
	"testing"

	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/memory"
)

// hasty is a store in which the source of a copy changes while it is copied. If used, the
// copy is used as soon as it is there.
type hasty struct {
	session.Store
	used   bool
	copies int
}

func (s *hasty) Clone(ctx context.Context, clone *session.Clone) (*session.State, error) {
	s.copies++
	state, err := s.Store.Clone(ctx, clone)
	if err == nil {
		_, err = session.AppendMessages(ctx, s, clone.From, []session.Message{session.UserText("more")})
	}
	if err == nil && s.used {
		_, err = session.AppendMessages(ctx, s, clone.To.ID, []session.Message{session.UserText("mine")})
	}
	return state, err
}

// A branch whose source changes meanwhile is made anew a few times. It never deletes a
// session that somebody has begun to use.
func TestBranchOfBusySource(t *testing.T) {
	t.Parallel()
	for name, used := range map[string]bool{"used": true, "unused": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			store := &hasty{Store: memory.New(memory.Config{}).Sessions(), used: used}
			if err := session.Create(ctx, store, &session.State{ID: "from", Agent: "a", StreamID: "from", Status: session.Active}); err != nil {
				t.Fatal(err)
			}
			_, err := engine.Branch(ctx, store, &session.Clone{From: "from", To: session.State{ID: "to", StreamID: "to"}})
			_, gone := store.Load(ctx, "to")
			if used {
				if !errors.Is(err, session.ErrStale) || gone != nil || store.copies != 1 {
					t.Errorf("the branch: %v; the session that is in use: %v; %d copies", err, gone, store.copies)
				}
				return
			}
			if !errors.Is(err, session.ErrUnavailable) || !errors.Is(gone, session.ErrNotFound) || store.copies > 3 {
				t.Errorf("the branch: %v; what is left of it: %v; %d copies", err, gone, store.copies)
			}
		})
	}
}
