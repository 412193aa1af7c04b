package simulation

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/helixagents/helix/internal/testshare"
)

var (
	seedFlag    = flag.Uint64("seed", 0, "the seed of the only fleet to simulate; 0 means those of this commit")
	minutesFlag = flag.Int("minutes", 5, "how many minutes of a fleet have faults")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// realTime is how long a run of all tests simulates, for as many fleets as fit.
const realTime = 20 * time.Second

// healing is how long everything may take to come to its end after the faults. A clock that was set back keeps the leases of
// dead processes alive for so much longer.
const healing = time.Hour

// TestSimulation simulates fleets, others for each commit.
func TestSimulation(t *testing.T) {
	if *seedFlag != 0 {
		simulate(t, *seedFlag)
		return
	}
	first, _ := strconv.ParseUint(os.Getenv("HELIX_SCENARIOS"), 10, 64)
	limit := realTime
	if testshare.Soak() {
		limit = 10 * time.Minute
	}
	began, fleets := time.Now(), uint64(0)
	for time.Since(began) < limit && !t.Failed() { // waits: as many fleets as there is time for
		fleets++
		simulate(t, first*1000+fleets)
	}
	t.Logf("%d fleets, %d minutes each, in %s", fleets, *minutesFlag, time.Since(began).Round(time.Second)) // waits: only printed
}

// simulate simulates one fleet.
func simulate(t *testing.T, seed uint64) {
	t.Helper()
	began := time.Now()
	t.Run(fmt.Sprint(seed), func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, seed, time.Duration(*minutesFlag)*time.Minute)
			defer w.report()
			w.live()
			w.check()
		})
	})
	t.Logf("seed %d took %s", seed, time.Since(began).Round(time.Millisecond)) // waits: only printed
}

// live lets people and processes work until all is done.
func (w *world) live() {
	r := w.random("world", 0)
	w.calm, w.steady = w.seed%3 == 0, w.seed%3 != 1 // others excuse what a process that was stopped may do
	for place := range 2 + r.IntN(3) {
		w.start(place, 0)
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.length+healing)
	defer cancel()
	var trouble, people sync.WaitGroup
	trouble.Go(w.trouble)
	for i := range 4 + r.IntN(6) {
		people.Go(func() { w.newPerson(i).talk(ctx) })
	}
	people.Wait()
	trouble.Wait()
	if ctx.Err() != nil {
		w.fail("not everything has come to its end %s after the last fault", healing)
	}
	// For streams that are still to be closed, and for tasks, which a clock that was set back delays.
	time.Sleep(time.Minute + time.Duration(w.setBack.Load()))
	w.mu.Lock()
	processes := slices.Clone(w.processes)
	w.mu.Unlock()
	for _, p := range processes {
		if err := p.runtime.Shutdown(context.Background()); err != nil {
			w.fail("%s: shut down: %v", p, err)
		}
	}
}

// report fails the test if something is that must not be, and says what happened.
func (w *world) report() {
	w.mu.Lock()
	defer w.mu.Unlock()
	var counts []string
	for _, what := range slices.Sorted(maps.Keys(w.counts)) {
		counts = append(counts, fmt.Sprintf("%d %s", w.counts[what], what))
	}
	w.t.Logf("calm: %t, steady: %t; %s", w.calm, w.steady, strings.Join(counts, ", "))
	if len(w.broken) == 0 && !w.t.Failed() {
		return
	}
	w.t.Errorf("%s\nrepeat it with: make sim SEED=%d MINUTES=%d", strings.Join(w.broken, "\n"), w.seed, *minutesFlag)
	if path := os.Getenv("HELIX_SIM_LOG"); path != "" {
		if err := os.WriteFile(path, []byte(strings.Join(w.log, "\n")), 0o600); err != nil {
			w.t.Error(err)
		}
	}
}
