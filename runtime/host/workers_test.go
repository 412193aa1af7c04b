package host

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var discard = slog.New(slog.DiscardHandler)

// Jobs that end soon run a few at a time, and all of them are waited for.
func TestWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorkers(4, discard)
		defer w.close()
		var now, most, ended atomic.Int32
		jobs := w.newBatch("things")
		for i := range 20 {
			jobs.begin(t.Context(), fmt.Sprint(i), "cook", func(context.Context, *job) {
				n := now.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				time.Sleep(patience / 10)
				now.Add(-1)
				ended.Add(1)
			})
		}
		jobs.wait()
		if most.Load() != 4 || ended.Load() != 20 || w.longest() != 0 {
			t.Errorf("%d ended, at most %d at a time", ended.Load(), most.Load())
		}
	})
}

// Of a key one job is under way at a time.
func TestWorkersKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorkers(4, discard)
		defer w.close()
		jobs, sleep := w.newBatch("things"), func(context.Context, *job) { time.Sleep(2 * patience) }
		if at := jobs.begin(t.Context(), "1", "cook", sleep); at != begun {
			t.Errorf("the first is not begun: %d", at)
		}
		if at := jobs.begin(t.Context(), "1", "cook", sleep); at != busy {
			t.Errorf("while the first is under way: %d", at)
		}
		jobs.wait()
		if at := jobs.begin(t.Context(), "1", "cook", sleep); at != passed {
			t.Errorf("while the first is slow: %d", at)
		}
		time.Sleep(patience)
		synctest.Wait()
		if at := jobs.begin(t.Context(), "1", "cook", sleep); at != begun {
			t.Errorf("after the first has ended: %d", at)
		}
	})
}

// Jobs that hang give their places to others, and of each agent only a few do. They rest when
// they have ended, so that those behind them have their turn.
func TestWorkersPassHanging(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const stuck, hang = 3 * maxSlowOfAgent, 30 * time.Second
		var log bytes.Buffer
		w := newWorkers(sweepers, slog.New(slog.NewTextHandler(&log, nil)))
		defer w.close()
		var mu sync.Mutex // guards tries
		tries := map[string]int{}
		sweep := func() (took time.Duration) {
			start, jobs := time.Now(), w.newBatch("things")
			for i := range stuck + 1 { // the last one of the agent does not hang
				for _, agent := range []string{"stuck", "cook"} {
					key := fmt.Sprint(agent, i)
					jobs.begin(t.Context(), key, "", func(ctx context.Context, j *job) { // as with wakes
						if !j.setAgent(agent) {
							return
						}
						mu.Lock()
						tries[key]++
						mu.Unlock()
						if agent == "stuck" && i < stuck {
							select {
							case <-time.After(hang):
							case <-ctx.Done():
							}
						}
					})
				}
			}
			jobs.wait()
			return time.Since(start)
		}
		tried := func(agent string, n int) (sum int) {
			mu.Lock()
			defer mu.Unlock()
			for i := range n {
				sum += min(tries[fmt.Sprint(agent, i)], 1)
			}
			return sum
		}
		took := sweep()
		if n := tried("stuck", stuck+1); tried("cook", stuck+1) != stuck+1 || n < maxSlowOfAgent || n > maxSlowOfAgent+sweepers || took > 2*maxSlowOfAgent/sweepers*patience {
			t.Errorf("%d that hang and %d others began in %s", n, tried("cook", stuck+1), took)
		}
		if took := sweep(); took > patience {
			t.Errorf("a sweep while they hang took %s", took)
		}
		for start := time.Now(); tried("stuck", stuck+1) < stuck+1; time.Sleep(2 * time.Second) {
			if sweep(); time.Since(start) > 8*hang {
				t.Fatalf("of %d that hang %d were tried", stuck, tried("stuck", stuck))
			}
		}
		if lines := strings.Count(log.String(), "sweep.passed_over"); lines == 0 || lines > 4 || !strings.Contains(log.String(), "agents=[stuck]") {
			t.Errorf("the log says:\n%s", log.String())
		}
		time.Sleep(hang)
		synctest.Wait()
		if len(w.slow)+len(w.keys)+len(w.agents)+len(w.again) != 0 || w.longest() != 0 {
			t.Errorf("after they have ended, %v, %v and %v are kept", w.slow, w.keys, w.agents)
		}
	})
}

// Closing ends the context of jobs and waits for them, and no job begins after that.
func TestWorkersClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorkers(1, discard)
		var ended atomic.Bool
		jobs := w.newBatch("things")
		jobs.begin(t.Context(), "1", "cook", func(ctx context.Context, _ *job) {
			<-ctx.Done()
			time.Sleep(time.Second)
			ended.Store(true)
		})
		time.Sleep(time.Minute)
		if jobs.wait(); ended.Load() || w.longest() != time.Minute {
			t.Error("a job that hangs is waited for")
		}
		w.close()
		if !ended.Load() || jobs.begin(t.Context(), "2", "cook", nil) != passed {
			t.Error("a job outlives its workers")
		}
	})
}
