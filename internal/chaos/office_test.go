package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// office is many clerks' sessions at work, in two runtimes that share a store with
// which a test interferes.
type office struct {
	t        *testing.T
	sessions int
	steps    int // of each session at least, without the last, which answers
	sweep    time.Duration
	// runtime starts one of the runtimes; by default a local one.
	runtime func(db store.Backend, agent *helix.Agent) (helix.Runtime, error)

	backends []store.Backend
	asked    atomic.Int64
	log      journal

	leave context.CancelCauseFunc // ends the work

	mu     sync.Mutex
	starts map[string]int
}

// openOffice makes an office on a store that is opened once for each runtime.
func openOffice(t *testing.T, sessions, steps int, open func() (store.Backend, error)) *office {
	t.Helper()
	o := &office{t: t, sessions: sessions, steps: steps, sweep: 500 * time.Millisecond, starts: map[string]int{}}
	o.runtime = o.local
	for range 2 {
		db, err := open()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() }) // its server may be gone
		o.backends = append(o.backends, db)
	}
	return o
}

// work runs all sessions while disturb interferes. They have their steps and then go on until
// disturb returns, so that no trouble comes too late. disturb gets the share of the steps that is
// done. When it returns true everybody leaves, whatever is unfinished.
func (o *office) work(disturb func(ctx context.Context, done func() float64) (leave bool)) {
	o.t.Helper()
	limit := eventually.Patience
	if testshare.Soak() {
		limit = 30 * time.Minute
	}
	ctx, cancel := context.WithTimeout(o.t.Context(), limit) // waits: the common patience, and more for the work of a soak
	defer cancel()
	var over atomic.Bool
	agent := clerkAgent(clerk{
		enough: func(replies int) bool { return replies >= o.steps && over.Load() },
		asked:  func() { o.asked.Add(1) },
	}, o.start)
	var runtimes []helix.Runtime
	for _, db := range o.backends {
		rt, err := o.runtime(db, agent)
		if err != nil {
			o.t.Fatal(err)
		}
		runtimes = append(runtimes, rt)
	}
	working, leave := context.WithCancelCause(ctx)
	o.leave = leave
	var trouble, clerks sync.WaitGroup
	trouble.Go(func() {
		defer over.Store(true)
		if disturb(working, func() float64 { return float64(o.asked.Load()) / float64(o.sessions*(o.steps+1)) }) {
			leave(errLeft)
		}
	})
	for i := range o.sessions {
		clerks.Go(func() { o.session(working, runtimes[i%len(runtimes)], agent, name(i)) })
	}
	clerks.Wait()
	leave(nil)
	trouble.Wait()
	for _, rt := range runtimes {
		stop := func() error { return rt.Shutdown(ctx) }
		if errors.Is(context.Cause(working), errLeft) {
			stop = rt.Close
		}
		if err := stop(); err != nil {
			o.t.Error(err)
		}
	}
	if o.t.Failed() {
		o.t.Logf("the log ends with:\n%s", o.log.tail(30))
	}
}

func (o *office) local(db store.Backend, agent *helix.Agent) (helix.Runtime, error) {
	return local.New(local.Config{
		Backend: db, Agents: []*helix.Agent{agent}, LeaseTTL: lease, Sweep: o.sweep, Logger: slog.New(&o.log),
	})
}

// errLeft ends the work of an office that everybody leaves.
var errLeft = errors.New("everybody has left")

func name(i int) string { return fmt.Sprintf("clerk-%d", i) }

// session runs one session, asking again for as long as the store is away. If it fails,
// everybody leaves.
func (o *office) session(ctx context.Context, rt helix.Executor, agent *helix.Agent, id string) {
	input := helix.Input{SessionID: id, RequestID: "request", Message: helix.UserText("Work.")}
	for {
		res, err := execute(ctx, rt, agent, input)
		switch {
		case err == nil && res.Status == session.RunCompleted, errors.Is(context.Cause(ctx), errLeft):
			return
		case err == nil:
			o.t.Errorf("%s ended %s: %v", id, res.Status, res.Error)
			o.leave(errLeft)
			return
		case ctx.Err() != nil || !session.IsRetryable(err):
			o.t.Errorf("%s: %v", id, err)
			o.leave(errLeft)
			return
		}
		time.Sleep(20 * time.Millisecond) // waits: a store that is away comes back in its own time
	}
}

func execute(ctx context.Context, rt helix.Executor, agent *helix.Agent, input helix.Input) (*helix.Result, error) {
	run, err := rt.Execute(ctx, agent, input)
	if err != nil {
		return nil, err
	}
	return run.Result(ctx)
}

// start notes that a call has begun.
func (o *office) start(call string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.starts[call]++
	return nil
}

// verify requires that every session is complete and valid, and returns how many
// payments were cut off.
func (o *office) verify(db store.Backend) (unknown int) {
	o.t.Helper()
	o.mu.Lock()
	starts := maps.Clone(o.starts)
	o.mu.Unlock()
	for i := range o.sessions {
		steps, cut := verifyClerk(o.t, db, name(i), starts)
		if steps < o.steps+1 {
			o.t.Errorf("%s has %d steps, want at least %d", name(i), steps, o.steps+1)
		}
		unknown += cut
	}
	return unknown
}

// journal keeps the log of a test.
type journal struct {
	mu    sync.Mutex
	lines []string
}

// Enabled implements [slog.Handler].
func (j *journal) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements [slog.Handler].
func (j *journal) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s", r.Time.Format("15:04:05.000"), r.Level, r.Message)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	})
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, b.String())
	return nil
}

// WithAttrs implements [slog.Handler].
func (j *journal) WithAttrs([]slog.Attr) slog.Handler { return j }

// WithGroup implements [slog.Handler].
func (j *journal) WithGroup(string) slog.Handler { return j }

// tail is the last lines.
func (j *journal) tail(n int) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines[max(0, len(j.lines)-n):], "\n")
}

// find is the lines that have all the texts in them.
func (j *journal) find(texts ...string) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []string
	for _, line := range j.lines {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			found = append(found, line)
		}
	}
	return found
}

// progress waits until every session has begun a call that it had not, and so has committed
// a reply. A run that is disturbed in one step again and again fails as a crash loop.
func (o *office) progress(ctx context.Context) bool {
	before := o.begun()
	return until(ctx, func() float64 {
		ahead := 0
		for id, n := range o.begun() {
			if n > before[id] {
				ahead++
			}
		}
		return float64(ahead) / float64(o.sessions)
	}, 1)
}

// begun counts the calls that each session has begun.
func (o *office) begun() map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	calls := map[string]int{}
	for start := range o.starts {
		_, key, _ := strings.Cut(start, " ")
		id, _, _ := strings.Cut(key, "/")
		calls[id]++
	}
	return calls
}

// until waits for a share of the work to be done; false when the work has ended.
func until(ctx context.Context, done func() float64, share float64) bool {
	return eventually.PollContext(ctx, func() bool { return done() >= share }) == nil
}
