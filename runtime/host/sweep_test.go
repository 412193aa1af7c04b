package host

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/helixagents/helix/session"
)

// A sweep that ends before it has seen all is continued by the next one, which then begins
// anew.
func TestSweepIsContinued(t *testing.T) {
	t.Parallel()
	const all = sweepPages*sweepPage + sweepPage + 10
	h := &Host{sweptTo: map[string]*session.Due{}, sweeping: newWorkers(sweepers, slog.New(slog.DiscardHandler))}
	t.Cleanup(h.sweeping.close)
	var asked [][]string
	list := func(_ context.Context, request session.SweepRequest) (page []session.Due, err error) {
		asked = append(asked, request.Agents)
		from := 0
		if request.After != nil {
			from = int(request.After.At.Unix()) + 1
		}
		for i := from; i < min(all, from+request.Limit); i++ {
			page = append(page, session.Due{Key: session.Key{ID: strconv.Itoa(i)}, At: time.Unix(int64(i), 0)})
		}
		return page, nil
	}
	var mu sync.Mutex // guards what jobs count
	seen := map[int64]int{}
	sweep := func() (n int) {
		h.each(t.Context(), "things", list, []string{"cook"}, always, func(_ context.Context, _ *job, due session.Due) {
			mu.Lock()
			defer mu.Unlock()
			seen[due.At.Unix()]++
			n++
		})
		return n
	}
	if n := sweep(); n != sweepPages*sweepPage || seen[all-1] != 0 {
		t.Errorf("the first sweep saw %d, the last of them %d times", n, seen[all-1])
	}
	if n := sweep(); n != (sweepPages-2)*sweepPage+sweepPage+10 || len(seen) != all {
		t.Errorf("the second sweep saw %d, and both together %d of %d", n, len(seen), all)
	}
	for i := range int64(all) {
		if seen[i] == 0 || seen[i] > 2 {
			t.Fatalf("two sweeps saw %d %d times", i, seen[i])
		}
	}
	if !slices.Equal(slices.Compact(slices.Concat(asked...)), []string{"cook"}) {
		t.Errorf("sweeps ask for the agents %q", asked)
	}
	few := 0
	one := func(context.Context, session.SweepRequest) ([]session.Due, error) { return make([]session.Due, 1), nil }
	for range 3 {
		h.each(t.Context(), "few", one, nil, always, func(context.Context, *job, session.Due) { few++ })
	}
	if few != 3 {
		t.Errorf("three sweeps of one thing saw it %d times", few)
	}
	asks := 0
	not := func() bool { asks++; return false }
	none := func(context.Context, session.SweepRequest) ([]session.Due, error) { return nil, nil }
	h.each(t.Context(), "nothing", none, nil, not, func(context.Context, *job, session.Due) { few++ })
	if asks != 0 {
		t.Error("a sweep that finds nothing asks whether it is its turn")
	}
	h.each(t.Context(), "few", one, nil, not, func(context.Context, *job, session.Due) { few++ })
	if asks != 1 || few != 3 {
		t.Errorf("a sweep whose turn it is not has asked %d times, and handled %d", asks, few-3)
	}
}

// The lock for sweeping that nobody releases, because its owner died and the store's clock was
// set back after it, keeps a process from sweeping for a while only.
func TestSweepUnderLock(t *testing.T) {
	t.Parallel()
	holdTurns(t, 0, nil, func(t *testing.T, o *office) {
		name := "sweep/standing/" + o.handler.AgentSet()
		if _, ours, err := o.db.Locks().TryAcquire(t.Context(), name, "dead", 10*time.Minute); err != nil || !ours {
			t.Fatal("the lock is not free", err)
		}
		for i := range maxRefusedSweeps {
			if o.acquireSweep(t.Context()) {
				t.Fatalf("sweep %d did not wait for the one that has the lock", i)
			}
		}
		if !o.acquireSweep(t.Context()) {
			t.Error("the process does not sweep")
		}
		if o.acquireSweep(t.Context()) {
			t.Error("after a sweep the process does not leave the next ones to others")
		}
	})
}

// Blobs are swept again while there are many, for a limited time.
func TestSweepAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		left, sweeps := 3*blobSweepLimit+5, 0
		err := sweepAgain(func() (int, error) {
			sweeps++
			n := min(left, blobSweepLimit)
			left -= n
			return n, nil
		})
		if err != nil || left != 0 || sweeps != 4 {
			t.Errorf("%d sweeps left %d blobs: %v", sweeps, left, err)
		}
		sweeps = 0
		err = sweepAgain(func() (int, error) {
			sweeps++
			time.Sleep(blobSweepTime / 4)
			return blobSweepLimit, nil
		})
		if err != nil || sweeps != 4 {
			t.Errorf("%d sweeps of endless blobs: %v", sweeps, err)
		}
		sweeps = 0
		err = sweepAgain(func() (int, error) {
			sweeps++
			return blobSweepLimit, session.ErrUnavailable
		})
		if !errors.Is(err, session.ErrUnavailable) || sweeps != 1 {
			t.Errorf("%d sweeps that fail: %v", sweeps, err)
		}
	})
}
