package simulation

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/store/storetest"
)

// process is one of the fleet. Its writes to the store may fail, or take their time.
type process struct {
	w           *world
	place, life int
	agents      map[string]*helix.Agent
	faults      *storetest.Faults
	runtime     *local.Runtime
	alive       atomic.Bool
	leaves      atomic.Bool // it was asked to end
	since       time.Duration

	mu      sync.Mutex
	random  *rand.Rand
	stopped chan struct{} // closed when it goes on; nil if it does
	busy    map[string]int
}

// start starts a process at a place of the fleet.
func (w *world) start(place, life int) *process {
	p := &process{w: w, place: place, life: life, random: w.random("process", place*1000+life), busy: map[string]int{}, since: w.now()}
	p.alive.Store(true)
	p.agents = p.newAgents()
	p.faults = storetest.NewFaults(w.backend)
	p.faults.Fail(p.decide)
	p.faults.FailReads(func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.weather.dark
	})
	rt, err := local.New(helix.RuntimeOptions{
		Backend: p.faults, Agents: []*helix.Agent{p.agents["clerk"], p.agents["helper"]},
		Logger: slog.New(slog.NewTextHandler(p, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: untimed})),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	p.runtime = rt
	w.mu.Lock()
	if place == len(w.processes) {
		w.processes = append(w.processes, p)
	} else {
		w.processes[place] = p
	}
	w.everybody = append(w.everybody, p)
	w.mu.Unlock()
	w.note("%s starts", p)
	return p
}

func (p *process) String() string { return fmt.Sprintf("process %d.%d", p.place, p.life) }

// kill ends the process at once: nothing that it does from now on reaches anybody.
func (p *process) kill() {
	w := p.w
	p.mu.Lock()
	var sessions []string
	for id, n := range p.busy {
		// One that was lost before without progress since may be what kills processes: it waits until others are done.
		if run, err := w.backend.Sessions().CurrentRun(context.Background(), id); n > 0 && err == nil && run.Attempts == 0 {
			sessions = append(sessions, id)
		}
	}
	p.mu.Unlock()
	w.note("%s is killed at work on %v", p, sessions)
	p.alive.Store(false)
	p.faults.Cut()
	p.goOn()
	w.mu.Lock()
	w.crashes = append(w.crashes, crash{p, w.now(), sessions})
	w.mu.Unlock()
	_ = p.runtime.Close()
}

// replace asks the process to end, and waits for it as a deployment does: for so long.
func (p *process) replace(patience time.Duration) {
	p.leaves.Store(true)
	p.w.note("%s is to end within %s", p, patience)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = p.runtime.Shutdown(ctx)
	p.alive.Store(false)
	p.faults.Cut()
	p.w.note("%s has ended", p)
}

// halt stops the process in the middle of what it does, as SIGSTOP would, until goOn: what it writes arrives late.
func (p *process) halt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped == nil {
		p.stopped = make(chan struct{})
	}
}

func (p *process) goOn() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped != nil {
		close(p.stopped)
		p.stopped = nil
	}
}

// wait returns when the process is not stopped.
func (p *process) wait() {
	for {
		p.mu.Lock()
		stopped := p.stopped
		p.mu.Unlock()
		if stopped == nil {
			return
		}
		<-stopped
	}
}

// decide says what becomes of a write. Chunks are only ordered when they are appended, under a lock, so that takes no time; the
// commits after them do.
func (p *process) decide(op storetest.Op) storetest.When {
	w := p.w
	atOnce := op.Name == "Append"
	if !atOnce {
		p.wait()
	}
	w.mu.Lock()
	weather := w.weather
	w.mu.Unlock()
	p.mu.Lock()
	slow := time.Duration(p.random.Float64() * float64(weather.slow))
	luck := p.random.Float64()
	p.mu.Unlock()
	if slow > 0 && !atOnce {
		time.Sleep(slow)
		p.wait()
	}
	switch {
	case !p.alive.Load(), weather.away:
		return storetest.Before
	case luck < weather.lost:
		return storetest.After
	case luck < 2*weather.lost:
		return storetest.Before
	}
	if op.Name == "TakeOver" {
		w.mu.Lock()
		w.taken = append(w.taken, takeover{op.ID, w.now()})
		w.mu.Unlock()
	}
	return storetest.Pass
}

// begin notes that the process works on a session, until the end that it returns.
func (p *process) begin(session string) (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy[session]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.busy[session]--
	}
}

// anybody returns a process that is alive, or nil.
func (w *world) anybody(r *rand.Rand) *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	alive := slices.DeleteFunc(slices.Clone(w.processes), func(p *process) bool { return !p.alive.Load() || p.leaves.Load() })
	if len(alive) == 0 {
		return nil
	}
	return alive[r.IntN(len(alive))]
}
