package enginetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/storetest"
)

// CrashPoints stops turns after every effect, and before and after every store write,
// recovers them with nothing but the store, and requires the outcome of an
// uninterrupted turn. It prints how many points it covered.
func CrashPoints(t *testing.T, open Open) { Part{}.CrashPoints(t, open) }

// CrashPoints is [CrashPoints] for a share of the points.
func (p Part) CrashPoints(t *testing.T, open Open) {
	points := 0
	for _, a := range p.acts() {
		t.Run(a.name, func(t *testing.T) {
			backend := open(t)
			r := rehearse(t, backend, a)
			for n := range r.most(r.effects) {
				for _, s := range a.pick(n, func(course int) bool { return n < r.effects[course] }) {
					points++
					t.Run(fmt.Sprintf("after effect %d %s", n+1, s.people), func(t *testing.T) {
						crashAfterEffect(testContext(t), t, backend, s, r.want, n+1)
					})
				}
			}
			r.eachWrite(t, func(t *testing.T, s scenario, n int, when storetest.When) {
				points++
				crashAtWrite(testContext(t), t, backend, s, r.want, n, when)
			})
		})
	}
	t.Logf("%d crash points covered", points)
	fmt.Printf("%s: %d crash points covered\n", t.Name(), points)
}

// rehearsal is the outcome of an act that is not interrupted, and how many effects
// and store writes each course takes.
type rehearsal struct {
	act             act
	want            outcome
	effects, writes []int
	blobs           int // how many of the writes put a blob
}

// rehearse plays an act without interruption, in all its courses.
func rehearse(t *testing.T, backend store.Backend, a act) *rehearsal {
	t.Helper()
	r := &rehearsal{act: a}
	for i, s := range a.courses {
		ctx := testContext(t)
		w := newWorld(t, backend, s)
		faults := storetest.NewFaults(w.backend)
		p := w.process(faults)
		effects := 0
		err := w.play(ctx, p, p, func(machine.Effect, machine.Result) bool { effects++; return true })
		if err != nil {
			t.Fatalf("%s: %v", s.people, err)
		}
		r.effects, r.writes = append(r.effects, effects), append(r.writes, faults.Count())
		r.blobs += faults.Count("PutBlob")
		got := w.inspect(ctx)
		if i == 0 {
			r.want = got
		}
		w.sameTurn(got, r.want)
		if t.Failed() {
			t.Fatalf("in the course %q", s.people)
		}
	}
	if a.name == "blobs" && r.blobs != 4 {
		t.Fatalf("%d blobs were put, so these writes are not interrupted", r.blobs)
	}
	if a.name == "evictions" && r.blobs != evictions {
		t.Fatalf("%d results were evicted, so these writes are not interrupted", r.blobs)
	}
	if whole := strconv.Quote(report("issue", "g")); a.name == "evictions" && r.want.output != whole {
		t.Fatalf("the output is\n%s\nwant\n%s", r.want.output, whole)
	}
	return r
}

func (r *rehearsal) most(counts []int) int {
	most := 0
	for _, n := range counts {
		most = max(most, n)
	}
	return most
}

// eachWrite runs a test for every store write that fails, before and after it is
// made, each time in other courses.
func (r *rehearsal) eachWrite(t *testing.T, test func(t *testing.T, s scenario, n int, when storetest.When)) {
	for n := range r.most(r.writes) {
		for i, when := range []storetest.When{storetest.Before, storetest.After} {
			for _, s := range r.act.pick(n+i*len(r.act.courses)/2, func(course int) bool { return n < r.writes[course] }) {
				t.Run(fmt.Sprintf("%s write %d %s", when, n+1, s.people), func(t *testing.T) { test(t, s, n+1, when) })
			}
		}
	}
}

func crashAfterEffect(ctx context.Context, t *testing.T, backend store.Backend, s scenario, want outcome, n int) {
	t.Helper()
	w := newWorld(t, backend, s)
	p := w.process(w.backend)
	if err := w.play(ctx, p, p, func(machine.Effect, machine.Result) bool { n--; return n > 0 }); !errors.Is(err, errKilled) {
		t.Fatalf("%d effects early, the turn ended: %v", n, err)
	}
	p.kill()
	w.compare(ctx, want)
}

func crashAtWrite(ctx context.Context, t *testing.T, backend store.Backend, s scenario, want outcome, n int, when storetest.When) {
	t.Helper()
	w := newWorld(t, backend, s)
	faults := storetest.NewFaults(w.backend)
	faults.FailWith(errKilled)
	killed := false
	faults.Fail(func(op storetest.Op) storetest.When {
		if op.N != n {
			return storetest.Pass
		}
		killed = true
		faults.Cut()
		return when
	})
	p := w.process(faults)
	err := w.play(ctx, p, p, nil)
	if !killed {
		t.Fatalf("write %d did not happen (%v)", n, err)
	}
	p.kill()
	w.compare(ctx, want)
}

// compare has fresh processes finish the turn and compares its outcome.
func (w *world) compare(ctx context.Context, want outcome) {
	w.t.Helper()
	unchanged := w.prefix(ctx)
	w.cutOff = w.begun(ctx)
	w.finish(ctx)
	unchanged()
	w.sameTurn(w.inspect(ctx), want)
}
