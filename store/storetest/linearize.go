package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/session"
)

func linearizeCases() []testCase {
	return []testCase{
		{"cas", "concurrent compare-and-sets of the status are linearizable", second, linearizeCAS},
		{"commit", "concurrent commits and reads are linearizable", second, linearizeCommit},
		{"submit", "concurrent answers and reads are linearizable", second, linearizeSubmit},
		{"stop", "concurrent stop requests and reads are linearizable", second, linearizeStop},
		{"lease", "concurrent takeovers, renewals and reads are linearizable", second, linearizeLease},
	}
}

const (
	historyClients = 4
	historyOps     = 14
)

// history records what clients asked, the answers, and the times.
type history struct {
	t   *bed
	ops [][]porcupine.Operation // by client
	err []error
}

// client makes the operations of one client. do records one of them.
type client func(ctx context.Context, s session.Store, random *rand.Rand, do func(input any, call func() (any, error)))

// record runs clients against two handles and records what they saw.
func (t *bed) record(n int, c client) *history {
	t.Helper()
	h := &history{t: t, ops: make([][]porcupine.Operation, n), err: make([]error, n)}
	handles := []session.Store{t.store(), t.sessionsOf(t.second())}
	begun := time.Now()
	ctx := t.Context()
	together(n, func(i int) {
		random := rand.New(rand.NewPCG(uint64(i), 7))
		c(ctx, handles[i%2], random, func(input any, call func() (any, error)) {
			runtime.Gosched()                       // otherwise a fast store would serve one client after the other
			from := time.Since(begun).Nanoseconds() // waits: the history says which calls overlapped
			output, err := call()
			to := time.Since(begun).Nanoseconds() // waits: see above
			if err != nil && h.err[i] == nil {
				h.err[i] = fmt.Errorf("%+v: %w", input, err)
			}
			h.ops[i] = append(h.ops[i], porcupine.Operation{ClientId: i, Input: input, Call: from, Output: output, Return: to})
		})
	})
	return h
}

// check reports whether the history could have happened one operation at a time.
// step returns the effect of one operation on the state, and whether its output is
// possible.
func check[S any](h *history, start S, step func(s S, input, output any) (bool, S)) {
	t := h.t
	t.Helper()
	t.ok(errors.Join(h.err...), "an operation of the history")
	var ops []porcupine.Operation
	for _, of := range h.ops {
		ops = append(ops, of...)
	}
	model := porcupine.Model{
		Init: func() any { return start },
		Step: func(state, input, output any) (bool, any) {
			ok, next := step(state.(S), input, output)
			return ok, next
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
	}
	switch result := porcupine.CheckOperationsTimeout(model, ops, eventually.Patience); result {
	case porcupine.Ok:
	case porcupine.Unknown:
		t.Fatalf("the checker ran out of time over %d operations, without a result", len(ops))
	default:
		for i, of := range h.ops {
			for _, op := range of {
				t.Logf("client %d, %6d to %6d µs: %s", i, op.Call/1000, op.Return/1000, model.DescribeOperation(op.Input, op.Output))
			}
		}
		t.Fatalf("no order of these %d operations explains the answers", len(ops))
	}
}

// look is the input of an operation that only reads.
type look struct{}

type casState struct {
	status  session.Status
	version int64
}

type casInput struct {
	expect, to session.Status
	version    int64
}

type casOutput struct {
	result session.StatusResult
	code   session.Code
}

func linearizeCAS(t *bed) {
	t.create("a")
	h := t.record(historyClients, func(ctx context.Context, s session.Store, random *rand.Rand, do func(any, func() (any, error))) {
		var seen casState
		for range historyOps {
			if random.IntN(3) == 0 || seen.version == 0 {
				do(look{}, func() (any, error) {
					state, err := s.Load(ctx, "a")
					if err != nil {
						return nil, err
					}
					seen = casState{state.Status, state.Version}
					return seen, nil
				})
				continue
			}
			all := session.Statuses()
			in := casInput{expect: seen.status, to: all[random.IntN(len(all))]}
			if random.IntN(2) == 0 {
				in.version = seen.version
			}
			do(in, func() (any, error) {
				out, err := s.SetStatus(ctx, "a", session.StatusChange{Expect: []session.Status{in.expect}, To: in.to, ExpectVersion: in.version})
				if errors.Is(err, session.ErrTransition) {
					return casOutput{code: session.CodeTransition}, nil
				}
				if err == nil {
					seen = casState{out.Status, out.Version}
				}
				return casOutput{result: out}, err
			})
		}
	})
	check(h, casState{session.Active, 1}, func(s casState, input, output any) (bool, casState) {
		in, isSet := input.(casInput)
		if !isSet {
			return output == s, s
		}
		// The rule is the domain's own; the test checks that it is applied atomically.
		state := &session.State{Status: s.status, Version: s.version}
		change := session.StatusChange{Expect: []session.Status{in.expect}, To: in.to, ExpectVersion: in.version}
		result, err := change.Swap(state)
		if err != nil {
			return output == casOutput{code: session.CodeTransition}, s
		}
		return output == casOutput{result: result}, casState{state.Status, state.Version}
	})
}

type tipState struct {
	version int64
	last    string
}

type commitInput struct {
	version int64
	key     string
}

type commitOutput struct {
	version  int64
	repeated bool
	stale    bool // version is then the store's
}

func linearizeCommit(t *bed) {
	r := t.running("a")
	h := t.record(historyClients, func(ctx context.Context, s session.Store, random *rand.Rand, do func(any, func() (any, error))) {
		who := random.Uint64()
		seen := tipState{version: r.version}
		var in commitInput
		for n := range historyOps {
			switch random.IntN(4) {
			case 0:
				do(look{}, func() (any, error) {
					state, err := s.Load(ctx, "a")
					if err != nil {
						return nil, err
					}
					seen = tipState{state.Version, state.LastCommit}
					return seen, nil
				})
				continue
			case 1: // deliver the last one again
			default:
				in = commitInput{seen.version, fmt.Sprintf("%x/%d", who, n)}
			}
			if in.key == "" {
				continue
			}
			in := in
			do(in, func() (any, error) {
				request := r.request(session.Change{Writes: push("list", `1`)})
				request.Version, request.Key = in.version, in.key
				out, err := s.Commit(ctx, request)
				if errors.Is(err, session.ErrStale) {
					seen.version = session.AsError(err).Saw.Version
					return commitOutput{version: seen.version, stale: true}, nil
				}
				if err != nil {
					return nil, err
				}
				seen.version = out.Version
				return commitOutput{version: out.Version, repeated: out.Repeated}, nil
			})
		}
	})
	final := t.load("a")
	check(h, tipState{version: r.version}, func(s tipState, input, output any) (bool, tipState) {
		in, isCommit := input.(commitInput)
		switch {
		case !isCommit:
			return output == s, s
		case in.key == s.last:
			return output == commitOutput{version: s.version, repeated: true}, s
		case in.version != s.version:
			return output == commitOutput{version: s.version, stale: true}, s
		}
		next := tipState{s.version + 1, in.key}
		return output == commitOutput{version: next.version}, next
	})
	// One item per version: every confirmed write was applied.
	equal(t, "items", int64(len(compact(string(final.Custom.Get("list"))))), 2*(final.Version-r.version)+1)
}

type submitInput struct{ by string }

func linearizeSubmit(t *bed) {
	for round := range 3 {
		id := fmt.Sprintf("s%d", round)
		t.asking(id, waiting("p1"))
		h := t.record(historyClients*2, func(ctx context.Context, s session.Store, random *rand.Rand, do func(any, func() (any, error))) {
			who := fmt.Sprintf("%x", random.Uint64())
			for range 4 {
				if random.IntN(2) == 0 {
					do(look{}, func() (any, error) {
						entries, err := s.PendingCalls(ctx, id, true)
						if err != nil {
							return nil, err
						}
						if entries[0].Response == nil {
							return "", nil
						}
						return entries[0].Response.By, nil
					})
					continue
				}
				do(submitInput{who}, func() (any, error) {
					submission := answer("p1", `1`)
					submission.By = who
					return s.Submit(ctx, id, submission)
				})
			}
		})
		check(h, "", func(winner string, input, output any) (bool, string) {
			in, isSubmit := input.(submitInput)
			switch {
			case !isSubmit:
				return output == winner, winner
			case winner == "":
				return output == session.SubmitAccepted, in.by
			}
			return output == session.SubmitAlreadyCompleted, winner
		})
	}
}

type stopState struct {
	kind   session.StopKind
	reason string
}

func linearizeStop(t *bed) {
	for round := range 3 {
		id := fmt.Sprintf("s%d", round)
		t.running(id)
		h := t.record(historyClients*2, func(ctx context.Context, s session.Store, random *rand.Rand, do func(any, func() (any, error))) {
			who := fmt.Sprintf("%x", random.Uint64())
			for n := range 4 {
				if random.IntN(2) == 0 {
					do(look{}, func() (any, error) {
						stop, err := s.StopRequest(ctx, id, "run-1")
						if stop == nil {
							return stopState{}, err
						}
						return stopState{stop.Kind, stop.Reason}, err
					})
					continue
				}
				in := stopState{session.StopInterrupt, fmt.Sprintf("%s/%d", who, n)}
				if random.IntN(4) == 0 {
					in.kind = session.StopAbort
				}
				do(in, func() (any, error) {
					stop, err := s.RequestStop(ctx, id, session.Stop{RunID: "run-1", Kind: in.kind, Reason: in.reason})
					return stopState{stop.Kind, stop.Reason}, err
				})
			}
		})
		check(h, stopState{}, func(s stopState, input, output any) (bool, stopState) {
			in, isRequest := input.(stopState)
			if isRequest && (s.kind == "" || (s.kind == session.StopInterrupt && in.kind == session.StopAbort)) {
				s = in
			}
			return output == s, s
		})
	}
}

type leaseInput struct {
	take  bool // or renew
	owner string
	epoch int64
}

type leaseOutput struct {
	session.Fence
	stale bool // the fence is then the store's
}

func linearizeLease(t *bed) {
	r := t.running("a")
	h := t.record(historyClients, func(ctx context.Context, s session.Store, random *rand.Rand, do func(any, func() (any, error))) {
		who := fmt.Sprintf("%x", random.Uint64())
		seen := r.fence
		answer := func(fence session.Fence, err error) (any, error) {
			if errors.Is(err, session.ErrStale) {
				saw := session.AsError(err).Saw
				seen = session.Fence{Owner: saw.Owner, Epoch: saw.Epoch}
				return leaseOutput{seen, true}, nil
			}
			if err == nil {
				seen = fence
			}
			return leaseOutput{fence, false}, err
		}
		for range historyOps {
			in := leaseInput{random.IntN(2) == 0, seen.Owner, seen.Epoch}
			if random.IntN(4) == 0 {
				in.epoch-- // a lease that was lost long ago
			}
			switch {
			case random.IntN(4) == 0:
				do(look{}, func() (any, error) {
					state, err := s.Load(ctx, "a")
					if err != nil {
						return nil, err
					}
					seen = state.Lease.Fence()
					return leaseOutput{Fence: seen}, nil
				})
			case in.take:
				in.owner = who
				do(in, func() (any, error) {
					out, err := s.TakeOver(ctx, &session.TakeOver{
						SessionID: "a", RunID: "run-1", Owner: who, TTL: time.Hour, Epoch: in.epoch, Force: true,
					})
					if err != nil {
						return answer(session.Fence{}, err)
					}
					return answer(out.Lease.Fence(), nil)
				})
			default:
				do(in, func() (any, error) {
					fence := session.Fence{Owner: in.owner, Epoch: in.epoch}
					return answer(fence, t.renewAt(ctx, t.Backend, "a", fence, time.Hour))
				})
			}
		}
	})
	check(h, r.fence, func(s session.Fence, input, output any) (bool, session.Fence) {
		in, isWrite := input.(leaseInput)
		out := output.(leaseOutput)
		switch {
		case !isWrite:
			return out == leaseOutput{Fence: s}, s
		case in.epoch != s.Epoch || (!in.take && in.owner != s.Owner):
			return out == leaseOutput{s, true}, s
		case !in.take:
			return !out.stale, s
		}
		return !out.stale && out.Owner == in.owner && out.Epoch > s.Epoch, out.Fence
	})
}
