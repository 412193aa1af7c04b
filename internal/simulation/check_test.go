package simulation

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/runtime/runtimetest"
	"github.com/helixagents/helix/session"
)

// judged is how long after the death of a process another one may take to continue its runs, if nothing else is wrong.
const judged = 10 * time.Second

// check compares what is in the store with what people were told and what the service outside has counted. Nothing runs any
// more.
func (w *world) check() {
	if w.failed() {
		return
	}
	ctx := context.Background()
	sessions := w.backend.Sessions()
	recorded := map[string]bool{} // the effects whose calls are in a transcript
	query := session.Query{PageRequest: session.PageRequest{Limit: session.MaxPageSize}}
	for more := true; more; {
		page, err := sessions.List(ctx, query)
		if err != nil {
			w.fail("list: %v", err)
			return
		}
		for i := range page.Items {
			w.checkSession(ctx, page.Items[i].ID, recorded)
		}
		query.Cursor, more = page.Next, page.HasMore
	}
	for key, starts := range w.effects {
		tool, call, _ := strings.Cut(key, " ")
		id, _, _ := strings.Cut(call, "/")
		if !recorded[key] && tool != "look" && !w.retried[rootOf(id)] { // looking may begin before the reply is stored
			w.fail("%s was started by %s, and no transcript has it", key, starts[0].by)
		}
	}
	w.checkStops(ctx)
	w.checkWork()
	w.checkJudgements()
	if !w.failed() {
		runtimetest.CheckSessions(w.t, w.backend)
	}
}

// checkSession checks one session.
func (w *world) checkSession(ctx context.Context, id string, recorded map[string]bool) {
	sessions := w.backend.Sessions()
	state, err := sessions.Load(ctx, id)
	if err != nil {
		w.fail("load %s: %v", id, err)
		return
	}
	messages, err := sessions.AllMessages(ctx, id)
	if err != nil {
		w.fail("messages of %s: %v", id, err)
		return
	}
	var paid []string
	said := map[string]int{}
	for i := range messages {
		switch m := &messages[i]; m.Role {
		case session.RoleUser:
			if !m.Hidden() {
				said[m.Content()]++
			}
		case session.RoleAssistant:
			for _, call := range m.Calls() {
				recorded[effectKey(id, &call)] = true
			}
		case session.RoleTool:
			part := &m.Parts[0]
			if part.Tool == "pay" && part.Error == nil {
				paid = append(paid, part.CallID)
			}
			w.checkResult(id, part)
		}
	}
	if state.ParentID == "" {
		for text, certain := range w.said[id] {
			if n := said[text]; n > 1 || n < certain {
				w.fail("%s: the message %q was accepted %d times, and is there %d times", id, text, certain, n)
			}
		}
		w.checkNotes(ctx, id)
	}
	var got []string
	if raw := state.Custom.Get("paid"); raw != nil {
		err = json.Unmarshal(raw, &got)
	}
	slices.Sort(got) // calls of one step end in any order
	slices.Sort(paid)
	if err != nil || !slices.Equal(got, paid) {
		w.fail("%s: the state has the payments %v, the transcript %v (%v)", id, got, paid, err)
	}
}

// checkResult checks the result of a call against what the service has counted and people have answered.
func (w *world) checkResult(id string, p *session.Part) {
	stopped := p.Error != nil && w.isStopped(id) && (p.Error.Code == session.CodeRunStopped || p.Error.Code == session.CodeToolNotRun)
	if strings.HasPrefix(p.Tool, helix.SubAgentPrefix) {
		if p.Error != nil && !stopped {
			w.fail("%s: %s %s failed: %v", id, p.Tool, p.CallID, p.Error)
		}
		return
	}
	key := effectKey(id, p)
	starts, answer := w.effects[key], w.answers[p.CallID]
	again := p.Tool == "look" || p.Tool == "send" // they may be repeated
	waits := p.Tool == "sign" || p.Tool == "rush"
	code := session.Code("")
	if p.Error != nil {
		code = p.Error.Code
	}
	if waits && len(starts) > 0 && !answer.approve {
		w.fail("%s: %s was started without an approval", id, key)
	}
	switch {
	case len(starts) > 1 && !again:
		w.fail("%s: %s was started %d times, after %s by %s and after %s by %s", id, key, len(starts),
			starts[0].at, starts[0].by, starts[1].at, starts[1].by)
	case code == "" && len(starts) == 0:
		w.fail("%s: %s has a result and was never started", id, key)
	case code == session.CodeToolOutcome && !again:
		w.count("unknown outcomes")
		if w.steady && len(starts) > 0 && starts[0].by.alive.Load() {
			w.fail("%s: the outcome of %s is unknown, though %s lives", id, key, starts[0].by)
		}
	case code == session.CodeToolDenied && waits:
		if answer.approve || len(starts) > 0 {
			w.fail("%s: %s was approved (%t) and started %d times, and is denied", id, key, answer.approve, len(starts))
		}
	case code == session.CodeClientTimeout && p.Tool == "rush":
		if answer.certain || len(starts) > 0 {
			w.fail("%s: %s was answered (%t) and started %d times, and is late", id, key, answer.certain, len(starts))
		}
	case code != "" && !stopped:
		w.fail("%s: %s failed: %v", id, key, p.Error)
	}
}

// effectKey is what the service outside knows a call by.
func effectKey(id string, call *session.Part) string {
	key := call.Tool + " " + id + "/" + call.CallID
	if call.Tool == "order" {
		key += "/answer/1"
	}
	return key
}

// isStopped reports whether a person may have stopped a run of a session, or of the one that called its agent.
func (w *world) isStopped(id string) bool { return w.mayStop[rootOf(id)] }

// rootOf returns the session whose run a sub-agent's session is part of.
func rootOf(id string) string {
	root, _, _ := strings.Cut(id, "-sub-")
	return root
}

// checkNotes checks that there is one task of each run, and that it was carried out.
func (w *world) checkNotes(ctx context.Context, id string) {
	noted := map[string]int{}
	for _, run := range w.notes {
		noted[run]++
	}
	page := session.PageRequest{Limit: session.MaxPageSize}
	for more := true; more; {
		runs, err := w.backend.Sessions().Runs(ctx, id, page)
		if err != nil {
			w.fail("runs of %s: %v", id, err)
			return
		}
		for i := range runs.Items {
			if run := &runs.Items[i]; noted[run.ID] != 1 {
				w.fail("%s: the run %s, which is %s, has %d notes", id, run.ID, run.Status, noted[run.ID])
			}
		}
		page.Cursor, more = runs.Next, runs.HasMore
	}
}

// checkStops checks that a run that was to stop did: it begins at most one more model call.
func (w *world) checkStops(ctx context.Context) {
	for _, stop := range w.stops {
		run, err := w.backend.Sessions().Run(ctx, stop.session, stop.run)
		if err != nil {
			w.fail("%s: read the run %s: %v", stop.session, stop.run, err)
			continue
		}
		ended := run.EndedAt.Sub(w.began)
		later := 0
		for _, use := range w.asked[stop.session] {
			if use.from > stop.at && use.from < ended {
				later++
			}
		}
		if later > 1 && w.clock.Load() == 0 {
			w.fail("%s: the run %s was stopped after %s, ended after %s as %s, and asked its model %d times in between",
				stop.session, stop.run, stop.at, ended, run.Status, later)
		}
	}
}

// checkWork checks that two processes did not work on a session at the same time, where no fault excuses that.
func (w *world) checkWork() {
	if !w.steady {
		return
	}
	for id, uses := range w.asked {
		for i := 1; i < len(uses); i++ {
			before := uses[i-1]
			if before.by != uses[i].by && before.till > uses[i].from && before.by.alive.Load() {
				w.fail("%s: %s asked the model from %s to %s, and %s from %s", id, before.by, before.from, before.till, uses[i].by, uses[i].from)
			}
		}
	}
}

// checkJudgements checks that the runs of processes that were killed were taken over in time, where others lived all along.
func (w *world) checkJudgements() {
	if !w.calm {
		return
	}
	for _, crash := range w.crashes {
		if !w.livedOn(crash) {
			continue
		}
		for _, id := range crash.sessions {
			if rootOf(id) != id { // a sub-agent's is taken over with its caller's
				continue
			}
			if !slices.ContainsFunc(w.taken, func(t takeover) bool {
				return t.session == id && t.at > crash.at && t.at <= w.lastCrash(crash.at)+judged
			}) {
				w.fail("%s: %s was killed after %s, and nobody took the run over within %s", id, crash.by, crash.at, judged)
			}
		}
	}
}

// lastCrash returns when the last process was killed of those that were killed one soon after the other, beginning at a
// time: the one that was about to take the runs over may be among them.
func (w *world) lastCrash(at time.Duration) time.Duration {
	for _, crash := range w.crashes { // in their order
		if crash.at > at && crash.at <= at+judged {
			at = crash.at
		}
	}
	return at
}

// livedOn reports whether another process lived when one was killed, and for as long as a judgement may take.
func (w *world) livedOn(crash crash) bool {
	died := map[*process]time.Duration{}
	for _, other := range w.crashes {
		died[other.by] = other.at
	}
	for _, p := range w.everybody {
		end, dead := died[p]
		if p != crash.by && p.since < crash.at && !p.leaves.Load() && (!dead || end > crash.at+judged) {
			return true
		}
	}
	return false
}
