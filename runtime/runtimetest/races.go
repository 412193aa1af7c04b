package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/session"
)

func raceScenarios() []Scenario {
	return []Scenario{
		{"one answer", "of concurrent answers from two processes exactly one is accepted, and the tool runs once", raceSubmits},
		{"one of many answers", "of different concurrent answers the one that was accepted is the one that counts", raceAnswers},
		{"one resume", "of concurrent resumes exactly one runs; the others get an error that says why", raceResumes},
		{"answer a live run", "an answer at any moment of a live run is never lost, and never leaves the session waiting", raceLive},
		{"answers to a live run", "answers to several calls at any moment of a live run are never lost", raceLiveMany},
		{"answer and resume", "answers and resumes from two processes at any moment take the session to its end", raceResuming},
	}
}

// rivals is how many do the same at the same time.
const rivals = 32

// atOnce calls fn for each rival, all at the same time, and waits for them.
func atOnce(fn func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range rivals {
		wg.Go(func() {
			<-start
			fn(i)
		})
	}
	close(start)
	wg.Wait()
}

// outcomes counts what came of submissions.
type outcomes struct {
	tally
	errs []error
}

func (o *outcomes) note(outcome session.SubmitOutcome, err error) {
	if err == nil {
		o.add(string(outcome))
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.errs = append(o.errs, err)
}

func raceSubmits(s *Stage) {
	const rounds = 5
	var ran tally
	agent := waitingAgent(guarded(&ran, "pay"))
	x := s.Start(agent)
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}})
	for round := range rounds {
		id := fmt.Sprintf("s-%d", round)
		p := s.waiting(s.waitsOn(x, agent, id), "pay")
		var got outcomes
		ctx := s.ctx()
		atOnce(func(i int) {
			out, err := []Executor{x, y}[i%2].Submit(ctx, id, approve(p.CallID, p.ApprovalID))
			if err != nil {
				out = &helix.Submitted{}
			}
			got.note(out.Outcome, err)
		})
		s.same([]any{got.of("accepted"), got.of("already_completed"), got.errs}, []any{1, rivals - 1, []error(nil)}, "outcomes")
		s.completes(y, agent, id)
		s.same(ran.of("pay"), round+1, "payments")
	}
}

func raceAnswers(s *Stage) {
	x, agent, res := s.suspended(onClient("pick"))
	y := s.StartOther(Options{})
	p := s.waiting(res, "pick")
	var won journal
	ctx := s.ctx()
	atOnce(func(i int) {
		out, err := []Executor{x, y}[i%2].Submit(ctx, "s-1", helix.ToolResult(p.CallID, i))
		if err != nil || out.Outcome == helix.SubmitAccepted {
			won.add("%d%v", i, map[bool]any{true: "", false: err}[err == nil])
		}
	})
	s.completes(x, agent, "s-1")
	s.transcript("s-1", "user: Hi!", `assistant: pick({"n":1})`, "tool pick: "+won.String(), "assistant: Done.")
}

// typedRefusal reports whether an error says that another caller continues the
// session, or has.
func typedRefusal(err error) bool {
	for _, want := range []error{helix.ErrAlreadyRunning, helix.ErrAwaitingInput, helix.ErrNotResumable, helix.ErrStale} {
		if errors.Is(err, want) {
			return true
		}
	}
	return false
}

func raceResumes(s *Stage) {
	const rounds = 5
	var ran tally
	agent := waitingAgent(guarded(&ran, "pay"))
	x := s.Start(agent)
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}})
	for round := range rounds {
		id := fmt.Sprintf("s-%d", round)
		p := s.waiting(s.waitsOn(x, agent, id), "pay")
		s.Submit(x, id, approve(p.CallID, p.ApprovalID), helix.SubmitAccepted)
		runs := make([]helix.Run, rivals)
		errs := make([]error, rivals)
		ctx := s.ctx()
		atOnce(func(i int) {
			runs[i], errs[i] = []Executor{x, y}[i%2].Resume(ctx, id, helix.ResumeOptions{})
		})
		won := 0
		for i := range runs {
			switch {
			case errs[i] == nil:
				won++
				s.ended(s.Result(runs[i]), helix.Completed)
			case !typedRefusal(errs[i]):
				s.Fatalf("resume %d: %v", i, errs[i])
			}
		}
		s.same(won, 1, "resumes that ran")
		s.same(ran.of("pay"), round+1, "payments")
		s.same(len(s.runs(id)), 2, "runs")
	}
}

// soon is some moment in the time that a run takes to suspend.
//
// waits: any moment will do, and others each time
func soon() { <-time.After(rand.N(3 * time.Millisecond)) }

// answerSoon answers a call of a session that may still run, at some moment.
func (s *Stage) answerSoon(ctx context.Context, x helix.Executor, id, tool string) (*helix.Submitted, error) {
	for {
		list, err := x.Waiting(ctx, id)
		if err != nil {
			return nil, err
		}
		for _, p := range list {
			if p.Tool != tool {
				continue
			}
			soon()
			if p.Kind == session.PendingApproval {
				return x.Submit(ctx, id, approve(p.CallID, p.ApprovalID))
			}
			return x.Submit(ctx, id, helix.ToolResult(p.CallID, "blue"))
		}
		select {
		case <-time.After(100 * time.Microsecond): // waits: the race is over soon after the call waits, and a longer pause would miss it
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func raceLive(s *Stage) {
	const rounds = 20
	var ran tally
	agent := waitingAgent(double(), guarded(&ran, "pay"))
	x := s.Start(agent)
	y := s.StartOther(Options{})
	for round := range rounds {
		id := fmt.Sprintf("s-%d", round)
		run := s.Begin(x, agent, id, "Hi!")
		out, err := s.answerSoon(s.ctx(), y, id, "pay")
		s.ok(err, "submit")
		s.same(out.Outcome, helix.SubmitAccepted, "outcome")
		res := s.Result(run)
		if out.Continuation == helix.CallerResumes {
			s.ended(res, helix.SuspendedStepPartial)
			res = s.Result(s.Resume(x, id, helix.ResumeOptions{}))
		}
		s.ended(res, helix.Completed)
		s.same(ran.of("pay"), round+1, "payments")
	}
}

func raceLiveMany(s *Stage) {
	const rounds = 10
	var ran tally
	agent := waitingAgent(guarded(&ran, "pay"), onClient("pick"), double())
	x := s.Start(agent)
	y := s.StartOther(Options{})
	for round := range rounds {
		id := fmt.Sprintf("s-%d", round)
		run := s.Begin(x, agent, id, "Hi!")
		var got [2]*helix.Submitted
		var errs [2]error
		var wg sync.WaitGroup
		ctx := s.ctx()
		for i, tool := range []string{"pay", "pick"} {
			wg.Go(func() { got[i], errs[i] = s.answerSoon(ctx, []Executor{x, y}[i], id, tool) })
		}
		wg.Wait()
		s.ok(errors.Join(errs[:]...), "submit")
		res := s.Result(run)
		s.same([]any{got[0].Outcome, got[1].Outcome}, []any{helix.SubmitAccepted, helix.SubmitAccepted}, "outcomes")
		if got[0].Continuation == helix.CallerResumes || got[1].Continuation == helix.CallerResumes {
			if res.Status == helix.Completed {
				s.Fatalf("run %s has completed, and somebody was told to resume it", run.ID())
			}
			res = s.Result(s.Resume(x, id, helix.ResumeOptions{}))
		}
		s.ended(res, helix.Completed)
		s.same(ran.of("pay"), round+1, "payments")
		s.transcript(id, "user: Hi!", `assistant: pay({"n":1}), pick({"n":2}), double({"n":3})`, "tool pay: 2", `tool pick: "blue"`, "tool double: 6", "assistant: Done.")
	}
}

func raceResuming(s *Stage) {
	const rounds = 10
	var ran tally
	agent := waitingAgent(guarded(&ran, "a"), guarded(&ran, "b"), onClient("c"), onClient("d"))
	x := s.Start(agent)
	y := s.StartOther(Options{Agents: []*helix.Agent{agent}})
	for round := range rounds {
		id := fmt.Sprintf("s-%d", round)
		s.Begin(x, agent, id, "Hi!")
		ctx := s.ctx()
		var wg sync.WaitGroup
		errs := make([]error, 4)
		for i, tool := range []string{"a", "b", "c", "d"} {
			on := []Executor{x, y}[i%2]
			wg.Go(func() {
				out, err := s.answerSoon(ctx, on, id, tool)
				switch {
				case err != nil:
					errs[i] = err
				case out.Outcome != helix.SubmitAccepted:
					errs[i] = fmt.Errorf("the answer to %s was %s", tool, out.Outcome)
				case out.Continuation == helix.CallerResumes:
					// Another answer's caller may have resumed the session, and taken this one in.
					if _, err := on.Resume(ctx, id, helix.ResumeOptions{}); err != nil && !typedRefusal(err) {
						errs[i] = err
					}
				}
			})
		}
		wg.Wait()
		s.ok(errors.Join(errs...), "answer")
		// Whoever was told to resume has; nobody needs to look after the session again.
		s.until("the session has completed", func() bool { return s.load(id).Status == session.Completed })
		s.same([]int{ran.of("a"), ran.of("b")}, []int{round + 1, round + 1}, "how often the tools ran")
		s.transcript(id, "user: Hi!", `assistant: a({"n":1}), b({"n":2}), c({"n":3}), d({"n":4})`, "tool a: 2", "tool b: 4", `tool c: "blue"`, `tool d: "blue"`, "assistant: Done.")
	}
}
