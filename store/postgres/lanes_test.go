package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/helixagents/helix/session"
)

// crowd returns sessions that commit at the same time, many more than there are
// lanes.
func crowd(t *testing.T, b *Backend) []*runner {
	t.Helper()
	out := make([]*runner, 8*maxLanes)
	for i := range out {
		out[i] = newRunner(t, b, fmt.Sprint("s", i))
		if err := out[i].work(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// TestLanesFailures lets some of many sessions make commits that an index refuses,
// which fails everything sent with them: the commits of the others are applied,
// once.
func TestLanesFailures(t *testing.T) {
	t.Parallel()
	const rounds = 20
	b := openTest(t)
	all := crowd(t, b)
	var done sync.WaitGroup
	for i, r := range all {
		done.Go(func() {
			for range rounds {
				if i%7 != 3 {
					if err := r.commit(t.Context()); err != nil {
						t.Errorf("session %d: %v", i, err)
					}
					continue
				}
				r.step = 0
				if err := r.commit(t.Context()); !errors.Is(err, session.ErrExists) {
					t.Errorf("session %d: got %v of a checkpoint that is there", i, err)
				}
			}
		})
	}
	done.Wait()
	for i, r := range all {
		want := 2 + rounds
		if i%7 == 3 {
			want = 2
		}
		if n, err := session.MessageCount(t.Context(), r.s, r.id); err != nil || n != want {
			t.Errorf("session %d has %d messages, %v", i, n, err)
		}
	}
}

// TestLanesHeldUp locks the rows of more sessions than there are lanes: the
// commits of all others are applied nevertheless. The callers give up the commits
// of the locked sessions, which succeed when they are repeated.
func TestLanesHeldUp(t *testing.T) {
	t.Parallel()
	b := openTest(t)
	all := crowd(t, b)
	const held = maxLanes + 2
	var ids []string
	for _, r := range all[:held] {
		ids = append(ids, r.id)
	}
	unlock := lockSessions(t, b, ids...)
	impatient, cancel := context.WithCancel(t.Context())
	var stuck, done sync.WaitGroup
	for i, r := range all {
		if i < held {
			stuck.Go(func() {
				if err := r.commit(impatient); !errors.Is(err, context.Canceled) {
					t.Errorf("session %d, which is held: %v", i, err)
				}
			})
			continue
		}
		done.Go(func() {
			for range 5 {
				if err := r.commit(t.Context()); err != nil {
					t.Errorf("session %d: %v", i, err)
				}
			}
		})
	}
	done.Wait() // regardless of the locked ones
	cancel()
	stuck.Wait()
	unlock()
	for i, r := range all[:held] {
		r.step-- // the abandoned commit may still be applied
		if err := r.commit(t.Context()); err != nil {
			t.Errorf("session %d, which was held: %v", i, err)
		}
	}
	if b.lanes.busy != 0 || len(b.lanes.waiting) != 0 {
		t.Errorf("%d lanes are busy, %d commits wait", b.lanes.busy, len(b.lanes.waiting))
	}
}
