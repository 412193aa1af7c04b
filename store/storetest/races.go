package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

func raceCases() []testCase {
	return []testCase{
		{"create", "of many creations of one id exactly one succeeds", second, raceCreate},
		{"start-create", "of many runs that create one session exactly one succeeds", second, raceStartCreate},
		{"start", "of many runs started from one read exactly one succeeds", second, raceStart},
		{"request", "many starts of one request create one run, and all return it", second, raceRequest},
		{"commit", "of many commits on one version exactly one succeeds", second, raceCommit},
		{"commit-same", "a commit delivered many times is applied once, and all deliveries succeed", second, raceCommitSame},
		{"take-over", "of many takeovers exactly one succeeds", clock | second, raceTakeOver},
		{"take-over-commit", "a takeover against the old holder's commits: commits before it are applied, none after", clock | second, raceTakeOverCommit},
		{"take-over-renew", "a takeover of a lease as it was seen against its renewal: one of them succeeds, or the renewal came first", clock | second, raceTakeOverRenew},
		{"claim", "of many claims of one call exactly one is fresh", second, raceClaim},
		{"settle", "of many results of one call the first is kept, and all callers get it", second, raceSettle},
		{"submit", "of many answers to one call exactly one is accepted", second, raceSubmit},
		{"submit-suspend", "an answer against a suspending commit: the answer is never lost", second, raceSubmitSuspend},
		{"disown-suspend", "answers to calls of a tree against the root's suspending commit: none is lost", second, raceDisownSuspend},
		{"stop", "many stop requests: one is kept, and an abort is never lost", second, raceStop},
		{"stop-outcome", "a stop against the run's last commit: it is accepted or refused, and never stops a later run", second, raceStopOutcome},
		{"status", "of many compare-and-sets from one status exactly one succeeds", second, raceStatus},
		{"save", "of many saves of one version exactly one succeeds", second, raceSave},
		{"increment", "concurrent increments all count, and no two return the same value", second, raceIncrement},
		{"merge", "concurrent appends to one list are all kept", second, raceMerge},
		{"metadata", "concurrent patches of different entries are all kept", second, raceMetadata},
		{"child", "concurrent updates of one reference are all kept", second, raceChild},
		{"send", "an entry sent concurrently is stored once", second, raceSend},
		{"delete", "a deletion against every other write leaves no rows", second, raceDelete},
		{"append", "concurrent deliveries of the same batches append each chunk once", second, raceAppend},
	}
}

// racers is how many operations overlap in a race.
const racers = 8

// race runs many operations at once over two handles on the same data.
func (t *bed) race(n int, f func(ctx context.Context, s session.Store, i int) error) []error {
	t.Helper()
	handles := []session.Store{t.store(), t.sessionsOf(t.second())}
	errs := make([]error, n)
	ctx := t.Context()
	together(n, func(i int) { errs[i] = f(ctx, handles[i%2], i) })
	return errs
}

// oneWinner checks that all but one were refused, each with one of the codes.
func (t *bed) oneWinner(errs []error, refusals ...*session.Error) int {
	t.Helper()
	winner := -1
	for i, err := range errs {
		if err == nil {
			if winner >= 0 {
				t.Fatalf("both %d and %d won", winner, i)
			}
			winner = i
			continue
		}
		if !slices.ContainsFunc(refusals, func(want *session.Error) bool { return errors.Is(err, want) }) {
			t.Fatalf("racer %d: got %v, want one of %v", i, err, refusals)
		}
	}
	if winner < 0 {
		t.Fatalf("nobody won: %v", errs[0])
	}
	return winner
}

func raceCreate(t *bed) {
	errs := t.race(racers, func(ctx context.Context, s session.Store, i int) error {
		state := blank("a")
		state.UserID = fmt.Sprint(i)
		state.Custom = document(fmt.Sprintf(`{"by":%d}`, i))
		return session.Create(ctx, s, state)
	})
	winner := t.oneWinner(errs, session.ErrExists)
	equal(t, "user", t.load("a").UserID, fmt.Sprint(winner))
	t.customIs("a", fmt.Sprintf(`{"by":%d}`, winner))
}

func raceStartCreate(t *bed) {
	errs := t.race(racers, func(ctx context.Context, s session.Store, i int) error {
		start := createAndStart(blank("a"), fmt.Sprintf("run-%d", i))
		start.Messages = []session.Message{user(fmt.Sprintf("u%d", i), "x")}
		_, err := s.StartRun(ctx, start)
		return err
	})
	winner := t.oneWinner(errs, session.ErrExists)
	equal(t, "current run", t.load("a").CurrentRunID, fmt.Sprintf("run-%d", winner))
	t.messagesAre("a", fmt.Sprintf("u%d", winner))
}

func raceStart(t *bed) {
	t.create("a")
	start := t.startOf("a", "")
	errs := t.race(racers, func(ctx context.Context, s session.Store, i int) error {
		mine := *start
		mine.Run.ID, mine.Owner = fmt.Sprintf("run-%d", i), fmt.Sprintf("owner-%d", i)
		mine.Messages = []session.Message{user(fmt.Sprintf("u%d", i), "x")}
		_, err := s.StartRun(ctx, &mine)
		return err
	})
	winner := t.oneWinner(errs, session.ErrStale, session.ErrAlreadyRunning)
	state := t.load("a")
	equal(t, "current run", state.CurrentRunID, fmt.Sprintf("run-%d", winner))
	equal(t, "owner", state.Lease.Owner, fmt.Sprintf("owner-%d", winner))
	equal(t, "turn", state.Turn, 1)
	t.messagesAre("a", fmt.Sprintf("u%d", winner))
	page, err := t.store().Runs(t.Context(), "a", session.PageRequest{})
	t.ok(err, "Runs")
	equal(t, "runs", len(page.Items), 1)
}

func raceRequest(t *bed) {
	t.create("a")
	start := t.startOf("a", "")
	start.Run.RequestID = "request-1"
	outcomes := make([]*session.Started, racers)
	errs := t.race(racers, func(ctx context.Context, s session.Store, i int) error {
		mine := *start
		mine.Run.ID = fmt.Sprintf("run-%d", i)
		var err error
		outcomes[i], err = s.StartRun(ctx, &mine)
		return err
	})
	fresh := 0
	for i, err := range errs {
		t.ok(err, "StartRun of a request")
		if !outcomes[i].Existing {
			fresh++
		}
		equal(t, "run", outcomes[i].Run.ID, t.load("a").CurrentRunID)
	}
	equal(t, "runs started", fresh, 1)
}

func raceCommit(t *bed) {
	r := t.running("a")
	for round := range 3 {
		errs := t.race(racers, func(ctx context.Context, s session.Store, i int) error {
			request := r.request(session.Change{
				Messages: []session.Message{user(fmt.Sprintf("u%d-%d", round, i), "x")}, Writes: push("list", fmt.Sprint(i)),
			})
			request.Key = fmt.Sprintf("round %d racer %d", round, i)
			_, err := s.Commit(ctx, request)
			return err
		})
		winner := t.oneWinner(errs, session.ErrStale)
		for i, err := range errs {
			if i == winner {
				continue
			}
			if e := session.AsError(err); e.Saw == nil || e.Saw.Version != r.version+1 {
				t.Fatalf("the error of a loser carries the state %+v, want version %d", e.Saw, r.version+1)
			}
		}
		state := t.load("a")
		equal(t, "last commit", state.LastCommit, fmt.Sprintf("round %d racer %d", round, winner))
		equal(t, "version", state.Version, r.version+1)
		equal(t, "messages", state.MessageCount, round+1)
		r.version = state.Version
	}
}

func raceCommitSame(t *bed) {
	r := t.running("a")
	request := r.request(step(1, "cp1", user("u1", "one")))
	fresh := make([]bool, racers)
	errs := t.race(racers, func(ctx context.Context, s session.Store, i int) error {
		out, err := s.Commit(ctx, request)
		if err == nil {
			fresh[i] = !out.Repeated
			if out.Version != r.version+1 {
				return fmt.Errorf("version %d, want %d", out.Version, r.version+1)
			}
		}
		return err
	})
	t.ok(errors.Join(errs...), "the same commit from many")
	n := 0
	for _, f := range fresh {
		if f {
			n++
		}
	}
	equal(t, "commits that were not repeated", n, 1)
	t.messagesAre("a", "u1")
}

func raceTakeOver(t *bed) {
	r := t.brief("a")
	t.pass(2 * t.ttl())
	errs := t.race(racers, func(ctx context.Context, s session.Store, i int) error {
		_, err := s.TakeOver(ctx, r.takeOver(fmt.Sprintf("taker-%d", i)))
		return err
	})
	winner := t.oneWinner(errs, session.ErrStale, session.ErrAlreadyRunning)
	equal(t, "owner", t.load("a").Lease.Owner, fmt.Sprintf("taker-%d", winner))
}

func raceTakeOverCommit(t *bed) {
	r := t.brief("a")
	t.pass(2 * t.ttl())
	var taken *session.TakenOver
	committed := 0
	errs := t.race(2, func(ctx context.Context, s session.Store, i int) error {
		if i == 0 {
			var err error
			taken, err = s.TakeOver(ctx, r.takeOver("taker"))
			return err
		}
		for n := range 20 {
			request := r.request(session.Change{Messages: []session.Message{user(fmt.Sprintf("u%d", n), "x")}})
			request.Version, request.Key = r.version+int64(n), fmt.Sprint(n)
			if _, err := s.Commit(ctx, request); err != nil {
				return err
			}
			committed++
		}
		return nil
	})
	t.ok(errs[0], "the taker")
	if errs[1] != nil {
		t.refused(errs[1], session.ErrStale, "the old holder after the takeover")
	}
	state := t.load("a")
	equal(t, "messages", state.MessageCount, committed)
	equal(t, "owner", state.Lease.Owner, "taker")
	r.fence, r.version = taken.Lease.Fence(), state.Version
	r.commit(session.Change{})
}

func raceTakeOverRenew(t *bed) {
	for round := range 10 {
		r := t.brief(fmt.Sprint("a-", round))
		take := r.takeOver("taker")
		take.Expires = t.load(r.id).Lease.ExpiresAt
		t.pass(2 * t.ttl())
		var renewed error
		errs := t.race(2, func(ctx context.Context, s session.Store, i int) error {
			if i == 0 {
				_, err := s.TakeOver(ctx, take)
				return err
			}
			renewed = t.renewAt(ctx, t.Backend, r.id, r.fence, time.Hour)
			return nil
		})
		state := t.load(r.id)
		switch {
		case errs[0] == nil && renewed != nil:
			t.refused(renewed, session.ErrStale, "a renewal after the takeover")
			equal(t, "owner", state.Lease.Owner, "taker")
		case renewed == nil && errs[0] != nil:
			t.refused(errs[0], session.ErrAlreadyRunning, "a takeover after the renewal")
			equal(t, "owner", state.Lease.Owner, r.fence.Owner)
		default:
			t.Fatalf("round %d: the takeover: %v; the renewal: %v", round, errs[0], renewed)
		}
	}
}

func raceClaim(t *bed) {
	r := t.replied("a")
	fresh := make([]bool, racers)
	errs := t.race(racers, func(ctx context.Context, s session.Store, i int) error {
		c, ok, err := s.Claim(ctx, "a", r.version, r.fence, "m1", "c1")
		fresh[i] = ok
		if err == nil && c.Status != session.CallBegun {
			return fmt.Errorf("the call is %s", c.Status)
		}
		return err
	})
	t.ok(errors.Join(errs...), "claim")
	n := 0
	for _, f := range fresh {
		if f {
			n++
		}
	}
	equal(t, "fresh claims", n, 1)
}

func raceSettle(t *bed) {
	r := t.replied("a")
	got := make([]session.Call, racers)
	errs := t.race(racers, func(ctx context.Context, s session.Store, i int) error {
		var err error
		got[i], err = s.Settle(ctx, "a", r.fence, settled(call("m1", "c1", 0), fmt.Sprint(i)))
		return err
	})
	t.ok(errors.Join(errs...), "settle")
	rows, err := t.store().Calls(t.Context(), "a", "m1")
	t.ok(err, "Calls")
	for i := range got {
		sameJSON(t, "what a racer got", &got[i], &rows[0])
	}
}

func raceSubmit(t *bed) {
	t.asking("a", waiting("p1"))
	outcomes := make([]session.SubmitOutcome, racers)
	errs := t.race(racers, func(ctx context.Context, s session.Store, i int) error {
		var err error
		outcomes[i], err = s.Submit(ctx, "a", answer("p1", fmt.Sprint(i)))
		return err
	})
	t.ok(errors.Join(errs...), "submit")
	winner := -1
	for i, outcome := range outcomes {
		switch outcome {
		case session.SubmitAccepted:
			if winner >= 0 {
				t.Fatalf("the answers of both %d and %d were accepted", winner, i)
			}
			winner = i
		case session.SubmitAlreadyCompleted:
		default:
			t.Fatalf("outcome %s", outcome)
		}
	}
	if winner < 0 {
		t.Fatalf("no answer was accepted")
	}
	equal(t, "the answer kept", string(t.entry("a", "p1").Response.Result), fmt.Sprint(winner))
}

func raceSubmitSuspend(t *bed) {
	for round := range 8 {
		id := fmt.Sprintf("s%d", round)
		r := t.running(id)
		r.commit(session.Change{Pending: []session.Pending{waiting("p1")}})
		var outcome session.SubmitOutcome
		errs := t.race(2, func(ctx context.Context, s session.Store, i int) error {
			var err error
			if i == round%2 {
				outcome, err = s.Submit(ctx, id, answer("p1", `1`))
				return err
			}
			_, err = s.Commit(ctx, r.request(session.Change{
				Waits: []string{"p1"}, Outcome: &session.Outcome{Status: session.RunSuspendedClientTool},
			}))
			return err
		})
		t.ok(errs[round%2], "submit")
		equal(t, "outcome", outcome, session.SubmitAccepted)
		if err := errs[1-round%2]; err != nil {
			t.refused(err, session.ErrAnswered, "the suspending commit")
		}
		equal(t, "state of the entry", t.entry(id, "p1").State, session.PendingAnswered)
	}
}

// raceDisownSuspend makes the root's commit wait on calls that others disown at
// the same time. Each of them reads the root afterwards: if it finds the root
// running, it leaves the rest to the commit, which must then be refused because of
// that call.
func raceDisownSuspend(t *bed) {
	for round := range 2 * racers {
		id := fmt.Sprintf("s%d", round)
		calls := make([]string, 1+round/2)
		for i := range calls {
			calls[i] = fmt.Sprintf("c%d", i)
		}
		r := t.running(id)
		r.commit(session.Change{Own: owned(calls...)})
		var (
			begun, done   [racers]atomic.Bool
			before, after [racers]bool // done before the commit began, begun before it returned
			left          [racers]bool // to the commit
		)
		first := make(chan struct{}) // closed when one is done
		var once sync.Once
		errs := t.race(len(calls)+1, func(ctx context.Context, s session.Store, i int) error {
			if i < len(calls) {
				begun[i].Store(true)
				err := s.Disown(ctx, id, calls[i:i+1])
				done[i].Store(err == nil)
				once.Do(func() { close(first) })
				if err != nil {
					return err
				}
				run, err := s.CurrentRun(ctx, id)
				left[i] = err == nil && run.Status == session.RunRunning
				return err
			}
			if round%4 == 0 { // the others overlap at random
				<-first
			}
			for j := range done {
				before[j] = done[j].Load()
			}
			_, err := s.Commit(ctx, r.request(waitingOn(calls...)))
			for j := range begun {
				after[j] = begun[j].Load()
			}
			return err
		})
		t.ok(errors.Join(errs[:len(calls)]...), "Disown")
		var named []string
		refused := errs[len(calls)]
		if refused != nil {
			named = t.refusal(refused, session.ErrAnswered, "the suspending commit").Calls
		}
		for i, callID := range calls {
			switch {
			case slices.Contains(named, callID):
				equal(t, "a call that the commit names was being disowned", after[i], true)
			case before[i]:
				t.Fatalf("call %s was disowned before the commit began, which ended with %v", callID, refused)
			case left[i] && refused == nil:
				t.Fatalf("call %s was disowned while the run was running, but the commit was applied", callID)
			}
		}
	}
}

func raceStop(t *bed) {
	t.running("a")
	errs := t.race(racers, func(ctx context.Context, s session.Store, i int) error {
		kind := session.StopInterrupt
		if i == 3 {
			kind = session.StopAbort
		}
		_, err := s.RequestStop(ctx, "a", session.Stop{RunID: "run-1", Kind: kind, Reason: fmt.Sprint(i)})
		return err
	})
	t.ok(errors.Join(errs...), "RequestStop")
	standing := t.standing()
	equal(t, "kind", standing.Kind, session.StopAbort)
	equal(t, "reason", standing.Reason, "3")
}

func raceStopOutcome(t *bed) {
	for round := range 6 {
		id := fmt.Sprintf("s%d", round)
		r := t.running(id)
		errs := t.race(2, func(ctx context.Context, s session.Store, i int) error {
			if i == round%2 {
				_, err := s.RequestStop(ctx, id, session.Stop{RunID: "run-1", Kind: session.StopAbort})
				return err
			}
			_, err := s.Commit(ctx, r.request(outcome(session.RunCompleted)))
			return err
		})
		t.ok(errs[1-round%2], "the last commit")
		if err := errs[round%2]; err != nil {
			t.refused(err, session.ErrStale, "the stop")
		}
		t.ok(t.store().CloseRun(t.Context(), id, r.fence, true), "close run")
		next := t.start(id, "run-2")
		if out := next.commit(session.Change{}); out.Stop != nil {
			t.Fatalf("a stop of the previous run reaches the next: %+v", *out.Stop)
		}
	}
}

func raceStatus(t *bed) {
	t.create("a")
	results := make([]session.StatusResult, racers)
	targets := []session.Status{session.Completed, session.Failed, session.Interrupted, session.Paused}
	errs := t.race(racers, func(ctx context.Context, s session.Store, i int) error {
		var err error
		results[i], err = s.SetStatus(ctx, "a", session.StatusChange{Expect: []session.Status{session.Active}, To: targets[i%4]})
		return err
	})
	t.ok(errors.Join(errs...), "SetStatus")
	winner := -1
	for i, out := range results {
		if !out.OK {
			continue
		}
		if winner >= 0 {
			t.Fatalf("both %d and %d won", winner, i)
		}
		winner = i
	}
	if winner < 0 {
		t.Fatalf("nobody won")
	}
	state := t.load("a")
	for _, out := range results {
		equal(t, "status that was seen", out.Status, state.Status)
		equal(t, "version that was seen", out.Version, state.Version)
	}
	equal(t, "status", state.Status, targets[winner%4])
}

func raceSave(t *bed) {
	t.create("a")
	states := make([]*session.State, racers)
	for i := range states {
		states[i] = t.load("a")
		states[i].UserID = fmt.Sprint(i)
		states[i].Custom = document(fmt.Sprintf(`{"by":%d}`, i))
	}
	errs := t.race(racers, func(ctx context.Context, s session.Store, i int) error { return session.Save(ctx, s, states[i]) })
	winner := t.oneWinner(errs, session.ErrStale)
	equal(t, "user", t.load("a").UserID, fmt.Sprint(winner))
	t.customIs("a", fmt.Sprintf(`{"by":%d}`, winner))
}

func raceIncrement(t *bed) {
	t.create("a")
	seen := make([]int, racers*2)
	errs := t.race(len(seen), func(ctx context.Context, s session.Store, i int) error {
		var err error
		seen[i], err = session.IncrementSteps(ctx, s, "a")
		return err
	})
	t.ok(errors.Join(errs...), "IncrementSteps")
	slices.Sort(seen)
	for i, n := range seen {
		equal(t, "count", n, i+1)
	}
	equal(t, "steps", t.load("a").StepCount, len(seen))
}

func raceMerge(t *bed) {
	t.create("a", custom(`{"list":[]}`))
	errs := t.race(racers, func(ctx context.Context, s session.Store, i int) error {
		_, err := session.Merge(ctx, s, "a", session.Compose(push("list", fmt.Sprint(i)), put(fmt.Sprintf("k%d", i), `1`)))
		return err
	})
	t.ok(errors.Join(errs...), "Merge")
	state := t.load("a")
	equal(t, "keys", state.Custom.Len(), racers+1)
	equal(t, "version", state.Version, racers+1)
	equal(t, "length of the list", len(compact(string(state.Custom.Get("list")))), racers*2+1)
}

func raceMetadata(t *bed) {
	t.create("a")
	errs := t.race(racers, func(ctx context.Context, s session.Store, i int) error {
		return session.PatchMetadata(ctx, s, "a", map[string]*string{fmt.Sprint(i): new("v")})
	})
	t.ok(errors.Join(errs...), "PatchMetadata")
	equal(t, "entries", len(t.load("a").Metadata), racers)
}

func raceChild(t *bed) {
	t.create("a")
	ref := child("kid")
	ref.Remote = raw(`0`)
	t.ok(session.PutChildren(t.Context(), t.store(), "a", []session.ChildRef{ref}), "PutChildren")
	errs := t.race(racers, func(ctx context.Context, s session.Store, _ int) error {
		_, err := s.UpdateChild(ctx, "a", "kid", func(c *session.ChildRef) error {
			var n int
			if _, err := fmt.Sscan(string(c.Remote), &n); err != nil {
				return err
			}
			c.Remote = raw(fmt.Sprint(n + 1))
			return nil
		})
		return err
	})
	t.ok(errors.Join(errs...), "UpdateChild")
	equal(t, "count", string(t.children("a")[0].Remote), fmt.Sprint(racers))
}

func raceSend(t *bed) {
	t.create("a")
	errs := t.race(racers, func(ctx context.Context, s session.Store, i int) error {
		return errors.Join(
			s.Send(ctx, "a", session.InboxEntry{ID: "same", Kind: "note", Body: raw(fmt.Sprint(i))}),
			s.Send(ctx, "a", session.InboxEntry{ID: fmt.Sprintf("own-%d", i), Kind: "note"}))
	})
	t.ok(errors.Join(errs...), "Send")
	entries, err := t.store().Inbox(t.Context(), "a")
	t.ok(err, "Inbox")
	equal(t, "entries", len(entries), racers+1)
}

func raceDelete(t *bed) {
	for round := range 3 {
		id := fmt.Sprintf("s%d", round)
		r := t.crowd(id)
		t.open(id, producer(id, r.fence.Epoch))
		writes := []func(ctx context.Context, s session.Store) error{
			func(ctx context.Context, s session.Store) error { _, err := s.Delete(ctx, id); return err },
			func(ctx context.Context, s session.Store) error {
				_, err := s.Commit(ctx, r.request(session.Change{Messages: []session.Message{user("u9", "x")}, Writes: put("k", `1`)}))
				return err
			},
			func(ctx context.Context, s session.Store) error {
				_, err := s.Settle(ctx, id, r.fence, settled(call("m1", "c1", 0), `1`))
				return err
			},
			func(ctx context.Context, s session.Store) error {
				return s.Send(ctx, id, session.InboxEntry{ID: "e9", Kind: "note"})
			},
			func(ctx context.Context, s session.Store) error {
				_, err := s.Submit(ctx, id, answer("p1", `1`))
				return err
			},
			func(ctx context.Context, s session.Store) error {
				return session.PatchMetadata(ctx, s, id, map[string]*string{"k": new("v")})
			},
			func(ctx context.Context, _ session.Store) error {
				// A renewal does not wait long for a lock.
				return unless(t.renewAt(ctx, t.Backend, id, r.fence, time.Hour), session.ErrUnavailable)
			},
			func(ctx context.Context, _ session.Store) error {
				_, err := t.tryAppend(id, producer(id, r.fence.Epoch), 1, text("late"))
				return err
			},
			func(ctx context.Context, s session.Store) error {
				_, err := s.StartRun(ctx, &session.StartRun{
					SessionID: id, ExpectVersion: r.version, ExpectRun: r.run, Run: newRun("run-2"), Owner: "o", TTL: time.Hour,
				})
				return unless(err, session.ErrAlreadyRunning, session.ErrStale)
			},
			func(ctx context.Context, s session.Store) error {
				_, err := s.TakeOver(ctx, &session.TakeOver{SessionID: id, RunID: r.run, Owner: "o", Epoch: r.fence.Epoch})
				return unless(err, session.ErrAlreadyRunning)
			},
			func(ctx context.Context, s session.Store) error {
				return session.PutChildren(ctx, s, id, []session.ChildRef{child("late")})
			},
			func(ctx context.Context, s session.Store) error {
				return s.PutTasks(ctx, []session.Task{t.task(id, "late")})
			},
		}
		errs := t.race(len(writes), func(ctx context.Context, s session.Store, i int) error {
			return writes[(i+round)%len(writes)](ctx, s)
		})
		for i, err := range errs {
			if (i+round)%len(writes) == 0 {
				t.ok(err, "delete")
			} else if err != nil {
				t.refused(err, session.ErrNotFound, "a write that came too late")
			}
		}
		t.gone(id)
		t.create(id)
		t.inboxIs(id)
		t.pendingAre(id)
		equal(t, "children", len(t.children(id)), 0)
	}
}

// unless drops an error that is one of those expected.
func unless(err error, expected ...*session.Error) error {
	for _, e := range expected {
		if errors.Is(err, e) {
			return nil
		}
	}
	return err
}

func raceAppend(t *bed) {
	managers := []stream.Manager{t.streams(), t.streamsOf(t.second())}
	const batches = 10
	errs := make([]error, 4)
	p := producer("a", 1)
	t.open("a", p)
	ctx := t.Context()
	together(len(errs), func(i int) {
		for n := range batches {
			out, err := managers[i%2].Append(ctx, "a", stream.Batch{Producer: p, First: int64(n*3 + 1), Chunks: numberedTexts(n*3+1, n*3+3)})
			if err == nil {
				_, err = out.Wait(ctx)
			}
			if err != nil {
				errs[i] = err
				return
			}
		}
	})
	t.ok(errors.Join(errs...), "append")
	got := t.deltas("a", 0)
	equal(t, "chunks", len(got), batches*3)
	for i, delta := range got {
		equal(t, "chunk", delta, fmt.Sprintf("t%d", i+1))
	}
}
