package host

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// workers carries out jobs side by side. A job may call user code, which may take long: one
// that has not ended after patience is slow and gives its place to the next. Each agent has a
// limit of slow jobs. A key whose job took very long rests for a while, and only half of the
// slow jobs are of such keys, so that the jobs behind them have their turn.
type workers struct {
	log     *slog.Logger
	places  chan struct{}   // has an element for each job that is not slow
	ctx     context.Context //nolint:containedctx // that of all jobs
	cancel  context.CancelFunc
	working sync.WaitGroup // the jobs

	mu     sync.Mutex           // guards what follows
	keys   map[string]int       // jobs by key
	slow   map[*job]bool        // jobs
	agents map[string]int       // slow jobs by agent
	again  map[string]int       // those of keys that took very long before, by agent
	rests  map[string]rest      // by key that took very long: kept for a while after the rest
	logged map[string]time.Time // by list: when it was last logged that jobs were passed over
}

// rest is the time in which no job of a key begins.
type rest struct {
	until  time.Time
	length time.Duration
}

const (
	patience       = time.Second
	maxSlow        = 512              // jobs of all agents; an agent that has none may have one
	maxSlowOfAgent = 64               // jobs
	restsAfter     = 10 * time.Second // a job that has taken so long
	minRest        = 10 * time.Second // doubled each time that happens again, up to maxRest
	maxRest        = 10 * time.Minute
	sweepers       = 8 // jobs of sweeps that are not slow
)

// newWorkers returns workers for so many jobs at a time that are not slow.
func newWorkers(places int, log *slog.Logger) *workers {
	w := &workers{
		log: log, places: make(chan struct{}, places), keys: map[string]int{}, slow: map[*job]bool{}, agents: map[string]int{},
		again: map[string]int{}, rests: map[string]rest{}, logged: map[string]time.Time{},
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// close ends the context of all jobs and waits for them.
func (w *workers) close() {
	w.mu.Lock()
	w.cancel()
	w.mu.Unlock()
	w.working.Wait()
}

// longest returns for how long the oldest job has been under way.
func (w *workers) longest() (longest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for j := range w.slow {
		longest = max(longest, time.Since(j.began))
	}
	return longest
}

// job is one job of a batch.
type job struct {
	b     *batch
	key   string
	began time.Time
	leave func() // gives the place up, once

	// The lock of the workers guards what follows.
	agent   string // nothing if it is not known yet
	repeats bool   // the key took very long before
	refused bool   // too many of its agent are slow
	ended   bool
}

// batch is the jobs of one list, which are waited for together. It belongs to one goroutine.
type batch struct {
	w     *workers
	list  string
	quick sync.WaitGroup // the jobs that have neither ended nor become slow

	// The lock of the workers guards what follows.
	over map[string]int // by agent: jobs that were not carried out, because too many of the agent are slow
}

func (w *workers) newBatch(list string) *batch {
	return &batch{w: w, list: list, over: map[string]int{}}
}

// beginning says whether a job was begun.
type beginning int

const (
	begun  beginning = iota
	busy             // a job of the same key is under way, and ends soon
	passed           // the key rests or its job is slow, too many of its agent are, or it is over
)

// begin waits for a place and begins a job, unless ctx ends before. agent is empty if it is
// not known yet: then the job calls [job.setAgent].
func (b *batch) begin(ctx context.Context, key, agent string, do func(context.Context, *job)) beginning {
	if at := b.admit(key, agent); at != begun {
		return at
	}
	w := b.w
	select {
	case w.places <- struct{}{}:
	case <-ctx.Done():
		return passed
	case <-w.ctx.Done():
		return passed
	}
	b.quick.Add(1)
	j := &job{b: b, key: key, agent: agent, began: time.Now(), leave: sync.OnceFunc(func() {
		<-w.places
		b.quick.Done()
	})}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil { // the jobs may have been waited for
		j.leave()
		return passed
	}
	w.keys[key]++
	_, j.repeats = w.rests[key]
	w.working.Go(func() {
		timer := time.AfterFunc(patience, j.becomeSlow)
		defer timer.Stop()
		defer j.finish()
		do(w.ctx, j)
	})
	return begun
}

// wait waits until each job of the batch has ended or become slow, and logs now and then which
// were passed over.
func (b *batch) wait() {
	b.quick.Wait()
	b.w.mu.Lock()
	over := maps.Clone(b.over)
	clear(b.over)
	quiet := len(over) == 0 || time.Since(b.w.logged[b.list]) < time.Minute
	if !quiet {
		b.w.logged[b.list] = time.Now()
	}
	b.w.mu.Unlock()
	if quiet {
		return
	}
	count := 0
	for _, n := range over {
		count += n
	}
	b.w.log.Warn("sweep.passed_over", "what", b.list, "count", count, "agents", slices.Sorted(maps.Keys(over)),
		"why", "many others of these agents take long: hooks or factories may hang, or the store is slow")
}

// admit says whether a job may begin.
func (b *batch) admit(key, agent string) beginning {
	w := b.w
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.keys[key] > 0 && !w.isSlow(key):
		return busy
	case w.keys[key] > 0, time.Now().Before(w.rests[key].until):
		return passed
	}
	if _, repeats := w.rests[key]; !b.admitsAgent(agent, repeats) {
		return passed
	}
	return begun
}

// isSlow reports whether a job of a key is slow. The lock is held.
func (w *workers) isSlow(key string) bool {
	for j := range w.slow {
		if j.key == key {
			return true
		}
	}
	return false
}

// admitsAgent reports whether one more job of an agent may become slow. The lock is held.
func (b *batch) admitsAgent(agent string, repeats bool) bool {
	n := b.w.agents[agent]
	admitted := n < maxSlowOfAgent && (n == 0 || len(b.w.slow) < maxSlow) && (!repeats || b.w.again[agent] < maxSlowOfAgent/2)
	if !admitted {
		b.over[agent]++
	}
	return admitted
}

// setAgent sets the agent of a job that has just learned it. It reports whether the job may
// go on.
func (j *job) setAgent(agent string) bool {
	w := j.b.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if agent == j.agent {
		return true
	}
	if w.slow[j] {
		w.count(j, -1)
		defer w.count(j, 1)
	}
	j.agent = agent
	j.refused = !w.slow[j] && !j.b.admitsAgent(agent, j.repeats)
	return !j.refused
}

// becomeSlow makes a job one of the slow ones, unless it has ended.
func (j *job) becomeSlow() {
	w := j.b.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if j.ended {
		return
	}
	w.slow[j] = true
	w.count(j, 1)
	j.leave()
}

// finish ends a job. If it took very long, its key rests.
func (j *job) finish() {
	w := j.b.w
	w.mu.Lock()
	defer w.mu.Unlock()
	j.ended = true
	if w.keys[j.key]--; w.keys[j.key] == 0 {
		delete(w.keys, j.key)
	}
	if w.slow[j] {
		delete(w.slow, j)
		w.count(j, -1)
	}
	if now := time.Now(); now.Sub(j.began) >= restsAfter {
		length := min(max(2*w.rests[j.key].length, minRest), maxRest)
		w.rests[j.key] = rest{until: now.Add(length), length: length}
		maps.DeleteFunc(w.rests, func(_ string, r rest) bool { return now.Sub(r.until) > maxRest })
	} else if !j.refused {
		delete(w.rests, j.key)
	}
	j.leave()
}

// count counts a slow job of its agent. The lock is held.
func (w *workers) count(j *job, n int) {
	add(w.agents, j.agent, n)
	if j.repeats {
		add(w.again, j.agent, n)
	}
}

// add adds to a count of a map that has only those above zero.
func add(counts map[string]int, key string, n int) {
	if counts[key] += n; counts[key] == 0 {
		delete(counts, key)
	}
}
