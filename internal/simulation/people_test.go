package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
)

// callPatience is how long a person waits for one call.
const callPatience = 30 * time.Second

// person talks to an agent, in one session after the other, until the time of faults is over and the last turn has ended.
type person struct {
	w      *world
	r      *rand.Rand
	number int
	id     string // of the session
	turn   int
}

// turnsPerSession is how many turns a session has.
const turnsPerSession = 6

func (w *world) newPerson(number int) *person {
	return &person{w: w, r: w.random("person", number), number: number}
}

// talk has conversations until there is no time for more.
func (p *person) talk(ctx context.Context) {
	for ctx.Err() == nil && !p.w.failed() {
		if retry.Sleep(ctx, upTo(p.r, 20*time.Second)) != nil {
			return
		}
		if p.w.now() > p.w.length {
			return
		}
		p.id = fmt.Sprintf("session-%d-%d", p.number, p.turn/turnsPerSession)
		p.turn++
		p.w.count("turns")
		if p.say(ctx) {
			p.attend(ctx)
		}
	}
}

// call calls any process that is alive. A call that fails because a process ends or the store is away may be repeated.
func (p *person) call(ctx context.Context, what string, do func(ctx context.Context, x *process) error) (again bool, err error) {
	x := p.w.anybody(p.r)
	if x == nil {
		return true, errGone
	}
	ctx, cancel := context.WithTimeout(ctx, callPatience) // waits: in a bubble
	defer cancel()
	err = do(ctx, x)
	again = err != nil && (session.IsRetryable(err) || errors.Is(err, session.ErrClosed) || !x.alive.Load() || ctx.Err() != nil)
	if err != nil {
		p.w.note("%s: %s in %s: %v", p.id, what, x, err)
	}
	return again, err
}

// say begins a turn, and asks again until it knows what became of it.
func (p *person) say(ctx context.Context) bool {
	text := fmt.Sprintf("turn %d", p.turn)
	in := helix.Input{SessionID: p.id, RequestID: fmt.Sprintf("%s/%d", p.id, p.turn), Message: helix.UserText(text)}
	p.w.expect(p.id, text, false)
	for ctx.Err() == nil {
		again, err := p.call(ctx, "execute", func(ctx context.Context, x *process) error {
			_, err := x.runtime.Execute(ctx, x.agents["clerk"], in)
			return err
		})
		switch {
		case err == nil:
			p.w.expect(p.id, text, true)
			return true
		case !again:
			p.w.fail("%s: execute turn %d: %v", p.id, p.turn, err)
			return false
		}
		_ = retry.Sleep(ctx, upTo(p.r, 3*time.Second))
	}
	return false
}

// expect notes that a message is sent, and once that is certain that it was accepted.
func (w *world) expect(id, text string, certain bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.said[id] == nil {
		w.said[id] = map[string]int{}
	}
	if certain {
		w.said[id][text] = 1
	} else if _, known := w.said[id][text]; !known {
		w.said[id][text] = 0
	}
}

// attend does what a turn needs until it has ended, and sometimes stops it.
func (p *person) attend(ctx context.Context) {
	for ctx.Err() == nil && !p.w.failed() {
		if retry.Sleep(ctx, 100*time.Millisecond+upTo(p.r, 4*time.Second)) != nil {
			return
		}
		run, err := p.w.backend.Sessions().CurrentRun(ctx, p.id)
		if err != nil {
			p.w.fail("%s: read the run: %v", p.id, err)
			return
		}
		switch {
		case run.Status == session.RunCompleted:
			return
		case run.Status == session.RunRunning:
			if p.r.IntN(15) == 0 {
				p.stop(ctx, run.ID)
			}
			p.answer(ctx)
		case run.Status.Suspended():
			p.answer(ctx)
			p.resume(ctx)
		case run.Status == session.RunInterrupted:
			p.resume(ctx)
		case run.Status == session.RunFailed:
			if run.Outcome == nil || !errors.Is(run.Outcome.Error, session.ErrCrashLoop) {
				p.w.fail("%s: the run %s failed: %+v", p.id, run.ID, run.Outcome)
				return
			}
			p.w.count("crash loops")
			p.w.mu.Lock()
			p.w.retried[p.id] = true
			p.w.mu.Unlock()
			p.accept(ctx, "retry", func(ctx context.Context, x *process) error {
				_, err := x.runtime.Retry(ctx, p.id, helix.RetryOptions{})
				return err
			}, session.ErrAlreadyRunning, session.ErrStale)
		}
	}
}

// accept makes a call that may be refused with some errors, and no others.
func (p *person) accept(ctx context.Context, what string, do func(ctx context.Context, x *process) error, refusals ...error) bool {
	again, err := p.call(ctx, what, do)
	if err == nil || again {
		return err == nil
	}
	for _, refusal := range refusals {
		if errors.Is(err, refusal) {
			return false
		}
	}
	p.w.fail("%s: %s: %v", p.id, what, err)
	return false
}

// stop interrupts a run. It may be heard although the answer is an error.
func (p *person) stop(ctx context.Context, runID string) {
	p.w.mu.Lock()
	p.w.mayStop[p.id] = true
	p.w.mu.Unlock()
	if p.accept(ctx, "interrupt", func(ctx context.Context, x *process) error { return x.runtime.Interrupt(ctx, p.id, "enough") },
		session.ErrNotFound, session.ErrStale) {
		p.w.count("stops")
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		p.w.stops = append(p.w.stops, stop{p.id, runID, p.w.now()})
	}
}

// resume continues the session.
func (p *person) resume(ctx context.Context) {
	p.accept(ctx, "resume", func(ctx context.Context, x *process) error {
		_, err := x.runtime.Resume(ctx, p.id, helix.ResumeOptions{})
		return err
	}, session.ErrAlreadyRunning, session.ErrAwaitingInput, session.ErrNotResumable)
}

// answer answers some of the calls that wait.
func (p *person) answer(ctx context.Context) {
	var waiting []session.Pending
	if !p.accept(ctx, "waiting", func(ctx context.Context, x *process) (err error) {
		waiting, err = x.runtime.Waiting(ctx, p.id)
		return err
	}) {
		return
	}
	for _, call := range waiting {
		if call.Tool == "rush" && p.w.chance("late "+call.CallID, 40) || p.r.IntN(3) == 0 && !p.w.quiet.Load() {
			continue
		}
		approve := p.w.chance("approve "+call.CallID, 80)
		submission := helix.Deny(call, helix.User{}, "no")
		switch {
		case call.Kind == session.PendingQuestion:
			submission = helix.Reply(call, "L", helix.User{})
		case approve:
			submission = helix.Approve(call, helix.User{})
		}
		p.w.answered(call.CallID, answered{call.Tool, approve, false})
		var out *helix.Submitted
		if p.accept(ctx, "submit", func(ctx context.Context, x *process) (err error) {
			out, err = x.runtime.Submit(ctx, p.id, submission)
			return err
		}, session.ErrNotFound) && out.Outcome == helix.SubmitAccepted {
			p.w.count("answers")
			p.w.answered(call.CallID, answered{call.Tool, approve, true})
		}
	}
}

func (w *world) answered(callID string, a answered) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a.certain = a.certain || w.answers[callID].certain
	w.answers[callID] = a
}
