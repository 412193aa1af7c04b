package redis

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/internal/stored"
	"github.com/helixagents/helix/stream"
)

// Commit implements [session.Turns]. It is one script. Only a commit that changes
// what sessions are found by, such as the last one of a turn, also adds index
// entries before.
func (s *sessions) Commit(ctx context.Context, commit *session.Commit) (*session.Committed, error) {
	if err := commit.Check(); err != nil {
		return nil, err
	}
	out, err := s.commit(ctx, commit)
	return s.committed(ctx, commit, out, err)
}

// commit makes a commit, without the steps that follow.
func (s *sessions) commit(ctx context.Context, commit *session.Commit) (*done, error) {
	name := what(commit.SessionID, "commit")
	if err := s.b.begin(ctx, name); err != nil {
		return nil, err
	}
	var h hints
	r, err := s.committing(ctx, commit, nil, &h)
	if err != nil {
		return nil, err
	}
	if err := s.b.evalBehind(ctx, name, &h, r); err != nil {
		return nil, err
	}
	return s.outcome(commit.SessionID, name, r)
}

// committing returns the script that makes a commit, and adds the index entries
// that must precede it. If there is a batch, the commit is refused unless its
// stream has the batch.
func (s *sessions) committing(ctx context.Context, commit *session.Commit, batch *stream.Batch, h *hints) (*run, error) {
	if isStep(&commit.Change) {
		return s.stepping(commit, batch)
	}
	p, err := s.planCommit(ctx, commit, batch)
	if err != nil {
		return nil, err
	}
	*h = p.hints
	return s.writing(commit.SessionID, "", &p.batch), nil
}

// committed returns the result of a commit for its caller.
func (s *sessions) committed(ctx context.Context, commit *session.Commit, out *done, err error) (*session.Committed, error) {
	if r, refused := errors.AsType[*refusal](err); refused {
		return nil, r.commit(commit)
	}
	if err != nil {
		return nil, err
	}
	if out.Stop != nil {
		out.Stop.RunID = commit.RunID
	}
	if !out.Repeated {
		out.Warnings = commit.Writes.Warnings
		s.afterChange(ctx, commit.SessionID, &commit.Change)
	}
	return &out.Committed, nil
}

// Commit implements [store.Backend]. A session shares its slot with the stream of
// its id: the batch and the commit are sent together, as two scripts; the second
// one applies the commit only if it finds what the first must have left.
func (b *Backend) Commit(ctx context.Context, commit *store.Commit) (*session.Committed, int64, error) {
	id := commit.SessionID
	if commit.Stream != id || len(commit.Batch.Chunks) == 0 {
		return store.AppendThenCommit(ctx, b, commit)
	}
	if err := commit.Check(); err != nil {
		return nil, 0, err
	}
	name := what(id, "commit")
	if err := b.begin(ctx, name); err != nil {
		return nil, 0, err
	}
	s, m := &sessions{b, orDefault(commit.Tenant)}, &streams{b, orDefault(commit.Tenant)}
	appends, err := m.appending(id, &commit.Batch)
	if err != nil {
		return nil, 0, err
	}
	var h hints
	commits, err := s.committing(ctx, commit.Commit, &commit.Batch, &h)
	if err != nil {
		return nil, 0, err
	}
	if err := b.evalBehind(ctx, name, &h, appends, commits); err != nil {
		return nil, 0, err
	}
	last, err := m.appended(id, &commit.Batch, appends)
	if err != nil {
		return nil, 0, err
	}
	out, err := s.outcome(id, name, commits)
	if r, refused := errors.AsType[*refusal](err); refused && r.why == "chunks" {
		// The producer has written since, or the scripts have reached different servers.
		return store.AppendThenCommit(ctx, b, commit)
	}
	done, err := s.committed(ctx, commit.Commit, out, err)
	return done, int64(last), err
}

// commit explains a refused commit.
func (r *refusal) commit(commit *session.Commit) error {
	if r.why != "guard" {
		return r.domain(commit.SessionID)
	}
	if _, err := commit.Guard(&r.header.State, r.header.run()); err != nil {
		return err
	}
	return session.ErrInternal.WithMessage("session %s: a commit was refused without a reason", commit.SessionID)
}

func (s *sessions) planCommit(ctx context.Context, commit *session.Commit, batch *stream.Batch) (*plan, error) {
	p := &plan{}
	from := ""
	if commit.Status != "" {
		from = precedents(commit.Status)
	}
	p.do("commit", "", commit.Key, commit.Version, commit.Fence.Owner, commit.Fence.Epoch, commit.RunID, from)
	if batch != nil {
		field, value := trace(batch)
		p.do("chunks", keyStream, field, value)
	}
	p.do("bump", "", commit.Key)
	c := &commit.Change
	at := time.Now()
	if c.Outcome != nil || c.Wake != nil || len(c.Tasks) > 0 {
		var err error
		if at, err = s.b.notAfter(ctx); err != nil {
			return nil, err
		}
	}
	if err := p.change(commit.SessionID, commit.RunID, c, nil, at); err != nil {
		return nil, err
	}
	s.changeHints(&p.hints, commit.SessionID, c, at)
	if c.Status == "" && c.Outcome == nil && len(c.Pending) == 0 {
		return p, nil
	}
	is, err := s.placeOf(ctx, commit.SessionID)
	if err != nil || is == nil {
		return p, err
	}
	if c.Status != "" {
		p.hints.list(s.b.keys, s.tenant, indexStatus+indexed(string(c.Status)), is.ID, micros(is.CreatedAt))
	}
	s.activityHints(&p.hints, is, activityAfter(c), inPlace)
	s.waitingHints(&p.hints, is, c.Pending, asOfNow)
	return p, nil
}

// activityAfter returns a session's activity after a change of its running run.
func activityAfter(c *session.Change) session.Activity {
	run := session.RunRunning
	if c.Outcome != nil {
		run = c.Outcome.Status
	}
	return session.ActivityOf(cmp.Or(c.Status, session.Active), run)
}

// precedents returns the statuses that may change to one, in the form that the
// script searches.
func precedents(to session.Status) string {
	var b strings.Builder
	b.WriteByte(' ')
	for _, status := range session.Statuses() {
		if status.CanBecome(to) {
			b.WriteString(string(status) + " ")
		}
	}
	return b.String()
}

// afterChange does what remains after a change, and what later operations would do
// otherwise.
func (s *sessions) afterChange(ctx context.Context, id string, c *session.Change) {
	var over []string
	for _, r := range c.Resolve {
		if r.State != "" && r.State != session.PendingWaiting {
			over = append(over, r.CallID)
		}
	}
	s.answered(ctx, id, over)
	if c.Wake != nil {
		if err := s.moveWake(ctx, id, c.Wake); err != nil {
			s.b.config.Logger.WarnContext(ctx, "a wake could not be moved; a sweep will deliver it", "tenant", s.tenant, "session", id, "error", err)
		}
		s.b.signal(session.Signal{Key: session.Key{Tenant: s.tenant, ID: c.Wake.SessionID}})
	}
}

// StartRun implements [session.Turns].
func (s *sessions) StartRun(ctx context.Context, start *session.StartRun) (*session.Started, error) {
	return s.startRun(ctx, start, nil)
}

// startRun starts a run and sends then, if it is not nil, along; see plan.
func (s *sessions) startRun(ctx context.Context, start *session.StartRun, then func() *run) (started *session.Started, err error) {
	if err := start.Check(); err != nil {
		return nil, err
	}
	id := start.SessionID
	q := func() *batch {
		q := leaseQuery()
		q.do("run", keyRuns, "q", start.Run.RequestID)
		q.do("run", keyRuns, "i", start.Run.ID)
		return q
	}
	out, err := s.edit(ctx, id, "start run", q, func(v *view) (p *plan, err error) {
		if started, p, err = s.planStart(start, v); err != nil || p == nil {
			return p, err
		}
		if then != nil {
			p.then = then()
		}
		return p, s.stayForRun(ctx, start, v.header)
	})
	if err != nil {
		return nil, err
	}
	if started.Existing {
		return started, nil
	}
	if start.Create != nil { // the script assigns the first epoch
		started.Lease.Epoch = number(text(out.results[0])) + 1
	}
	started.Committed = out.Committed
	started.Stop, started.Warnings = nil, start.Writes.Warnings
	s.afterChange(ctx, id, &start.Change)
	if start.Change.Run != nil || start.Outcome != nil {
		run, err := s.Run(ctx, id, start.Run.ID)
		if err != nil {
			return nil, err
		}
		started.Run = *run
	}
	return started, nil
}

// planStart plans a start. If there is no plan, started is the run that the
// request had begun before.
func (s *sessions) planStart(start *session.StartRun, v *view) (*session.Started, *plan, error) {
	h := v.header
	if h != nil && start.Run.RequestID != "" {
		run, err := h.decodeRun(v.parts[0])
		if err != nil {
			return nil, nil, err
		}
		if run != nil {
			committed := session.Committed{Version: h.Version, MessageCount: h.MessageCount, CheckpointID: h.CheckpointID, Inbox: h.inbox, Stop: h.stop}
			return &session.Started{Committed: committed, Lease: h.Lease, Turn: run.Turn, Run: *run, Existing: true}, nil, nil
		}
	}
	var same *session.Run
	if h != nil && len(list(v.parts[1])) > 0 {
		same = &session.Run{ID: start.Run.ID}
	}
	if err := start.Guard(h.state(), h.run(), same, v.now); err != nil {
		return nil, nil, err
	}
	p := &plan{}
	var was *session.State
	var custom *session.CustomState
	if h == nil {
		state := newState(s.tenant, start.Create, v.now)
		if err := p.create(&state, s.b.tokens.next()); err != nil {
			return nil, nil, err
		}
		s.b.places.put(s.tenant, state.ID, place{micros(state.CreatedAt), state.UserID}) // the next reader corrects it if the session is not created
		h, custom = &header{State: state}, &start.Create.Custom
	} else {
		old := h.State
		was = &old
		p.do("same", "", append(h.unmoved(), "mortal", "")...)
	}
	p.do("bump", "", "")
	started, err := p.begin(h, start, v.now)
	if err != nil {
		return nil, nil, err
	}
	if err := p.change(h.ID, start.Run.ID, &start.Change, custom, v.now); err != nil {
		return nil, nil, err
	}
	is := h.State
	if start.Status != "" {
		is.Status = start.Status
	}
	if start.ExpiresAt != nil {
		is.ExpiresAt = *start.ExpiresAt
	}
	s.stateHints(&p.hints, &is, was)
	move := inPlace
	if was == nil {
		move = moved
	}
	s.runningHints(&p.hints, &is, start.Run.ID, move)
	s.activityHints(&p.hints, &is, activityAfter(&start.Change), move)
	s.waitingHints(&p.hints, &is, start.Pending, asOfNow)
	s.leaseHint(&p.hints, &is)
	s.changeHints(&p.hints, h.ID, &start.Change, v.now)
	p.hints.list(s.b.keys, s.tenant, indexCalls, h.ID, micros(is.CreatedAt)) // their order does not matter
	return started, p, nil
}

// leaseHint adds the entry with which sweeps examine a session's own lease when it
// ends.
func (s *sessions) leaseHint(h *hints, is *session.State) {
	if is.RootID == "" && !is.Lease.ExpiresAt.IsZero() {
		h.sweep(s.b.keys, sweepLeases, s.tenant, is.ID, "", is.Lease.ExpiresAt)
	}
}

// begin adds the new run and its lease to the session.
func (p *plan) begin(h *header, start *session.StartRun, now time.Time) (*session.Started, error) {
	run := start.Begin(&h.State, 0, now) // the script assigns a new session's epoch
	doc, err := encodeRun(&run)
	if err != nil {
		return nil, err
	}
	p.do("set", "",
		"status", string(h.Status), "steps", h.StepCount, "resumes", h.ResumeCount, "turn", h.Turn, "owed", "", "stopk", "", "endk", "",
		"owner", h.Lease.Owner, "lease", micros(h.Lease.ExpiresAt),
		"run", run.ID, "rstatus", string(run.Status), "runtime", run.Runtime, "needs", stored.JoinNames(run.Requires), "rsteps", run.StepCount,
		"rreason", string(run.CompletionReason), "usage", "", "attempts", run.Attempts, "progress", run.ProgressVersion)
	p.do("raise", "")
	p.do("hset", keyDoc, keyDoc, "end", "")
	p.do("run", keyRuns, run.Turn, run.ID, run.RequestID, doc)
	return &session.Started{Lease: h.Lease, Turn: h.Turn, Run: run}, nil
}

// TakeOver implements [session.Turns].
func (s *sessions) TakeOver(ctx context.Context, take *session.TakeOver) (taken *session.TakenOver, err error) {
	if err := take.Check(); err != nil {
		return nil, err
	}
	_, err = s.edit(ctx, take.SessionID, "take over", leaseQuery, func(v *view) (*plan, error) {
		h := v.header
		if h == nil {
			return nil, session.NotFound(take.SessionID)
		}
		run := h.run()
		if err := take.Guard(&h.State, run, v.now); err != nil {
			return nil, err
		}
		p := &plan{}
		p.do("same", "", h.unmoved()...)
		taken = take.Apply(&h.State, run, v.now)
		lease := taken.Lease
		p.do("set", "", "owner", lease.Owner, "epoch", lease.Epoch, "lease", micros(lease.ExpiresAt),
			"attempts", run.Attempts, "progress", run.ProgressVersion)
		s.leaseHint(&p.hints, &h.State)
		return p, nil
	})
	if err != nil {
		return nil, err
	}
	return taken, nil
}

// CloseRun implements [session.Turns]. The lease of the root is released first: a
// process that takes it over may take its children's, should the following steps
// be missed.
func (s *sessions) CloseRun(ctx context.Context, id string, fence session.Fence, settled bool) error {
	const verb = "close run"
	var running bool
	var until string
	_, err := s.edit(ctx, id, verb, query, func(v *view) (*plan, error) {
		h := v.header
		if h == nil {
			return nil, session.NotFound(id)
		}
		if err := h.CheckFence(fence); err != nil {
			return nil, err
		}
		p := &plan{}
		p.do("same", "", h.unmoved()...)
		h.Release(h.run(), v.now)
		if running, until = h.isRunning(), micros(h.Lease.ExpiresAt); running {
			s.leaseHint(&p.hints, &h.State)
		} else {
			s.runningHints(&p.hints, &h.State, h.CurrentRunID, gone)
		}
		fields := []any{"owner", h.Lease.Owner, "lease", until}
		if settled {
			fields = append(fields, "owed", "")
		}
		p.do("set", "", fields...)
		return p, nil
	})
	if err == nil && !running {
		s.rests(ctx, id)
	}
	if err != nil || !running {
		return err
	}
	tree := &heldTree{sessions: s, root: id, owner: fence.Owner, until: until}
	if err := tree.list(ctx, verb); err != nil {
		return err
	}
	s.b.eachHeld(ctx, verb, []*heldTree{tree}, func(t *heldTree, w *batch) { w.do("release", "", t.root, t.owner, t.until) })
	return tree.err
}

// SettleClose implements [session.Turns].
func (s *sessions) SettleClose(ctx context.Context, id, runID string) error {
	w := &batch{}
	w.do("settleclose", "", runID)
	err := s.write(ctx, id, "settle close", w)
	if err == nil {
		s.rests(ctx, id)
	}
	return err
}
