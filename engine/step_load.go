package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
)

// stepLoader reads a step in flight from the store, for a turn that resumes or
// recovers in the middle of it.
type stepLoader struct{ t *turn }

func (t *turn) stepLoader() *stepLoader { return &stepLoader{t} }

// load restores a step whose reply is committed and whose calls are not all answered.
func (l *stepLoader) load(ctx context.Context, messages []session.Message) error {
	reply := messages[len(messages)-1]
	rows, err := l.t.sessions.Calls(ctx, l.t.key.ID, reply.ID)
	if err != nil {
		return err
	}
	parts := reply.Calls()
	if len(rows) != len(parts) {
		return session.ErrCorrupt.WithMessage("message %s makes %d calls, of which the store knows %d", reply.ID, len(parts), len(rows))
	}
	if reply.RunID != l.t.run.ID {
		l.t.step = -1 // an earlier run suspended in it
	}
	f := &flight{step: l.t.current(), reply: reply, committed: true}
	byCall, err := l.pendingByCall(ctx, rows)
	if err != nil {
		return err
	}
	reached := true // whether the calls so far leave it possible that later ones began
	for i := range rows {
		c := &call{Call: rows[i], part: parts[i]}
		if c.Status == session.CallSettled && c.Result != nil {
			c.settled, c.unseen = settledRow(&c.Call), true
		}
		if p := byCall[c.WaitID()]; p != nil {
			c.pending = p
		}
		if err := l.readShown(ctx, c); err != nil {
			return err
		}
		f.calls = append(f.calls, c)
		if !rows[i].FinishWith && !rows[i].ReadOnly && rows[i].Rejected == nil &&
			rows[i].Kind != session.CallFinish && c.settled == nil {
			reached = false
		}
	}
	for _, c := range f.calls {
		if !c.FinishWith || c.Rejected != nil {
			continue
		}
		// Phase 2 begins when phase 1 is settled and goes call by call. A call that
		// it did not reach cannot have started, although the reply commit claimed it,
		// as it does where no call waits.
		if !reached && c.Status == session.CallBegun && !f.waits() {
			c.claimed = true
		}
		reached = reached && c.Status == session.CallSettled
	}
	if err := l.readCompanions(ctx, f); err != nil {
		return err
	}
	l.t.setFlight(f)
	return nil
}

// readShown finds out whether watchers saw the agent of a settled call begin. Then
// they have to see its end.
func (l *stepLoader) readShown(ctx context.Context, c *call) error {
	if !c.unseen || !machine.WaitsForAgent(c.Kind) || c.Child == "" {
		return nil
	}
	child, err := loadChild(ctx, l.t.sessions, l.t.key.ID, c.Child)
	if err != nil && !errors.Is(err, session.ErrNotFound) {
		return err
	}
	c.child = &calledAgent{shown: err == nil && child.StreamID == l.t.state.StreamID && c.consults()}
	return nil
}

// pendingByCall reads the entries of calls that wait, or waited, for people.
func (l *stepLoader) pendingByCall(ctx context.Context, rows []session.Call) (map[string]*session.Pending, error) {
	if !slices.ContainsFunc(rows, func(c session.Call) bool { return machine.WaitsForPerson(c.Kind) }) {
		return nil, nil
	}
	list, err := l.t.sessions.PendingCalls(ctx, l.t.key.ID, true)
	if err != nil {
		return nil, err
	}
	found := map[string]*session.Pending{}
	for i := range list {
		found[list[i].CallID] = &list[i]
	}
	return found, nil
}

// readCompanions finds the companions of the calls of a step that is in the store.
func (l *stepLoader) readCompanions(ctx context.Context, f *flight) error {
	var refs []session.ChildRef
	for _, c := range f.calls {
		if c.Kind != session.CallCompanion || c.Child == "" {
			continue
		}
		if refs == nil {
			var err error
			refs, err = retry.Do(ctx, func() ([]session.ChildRef, error) { return l.t.sessions.Children(ctx, l.t.key.ID) })
			if err != nil {
				return err
			}
		}
		ref := findRef(refs, func(r *session.ChildRef) bool { return r.SessionID == c.Child })
		if ref == nil {
			return session.ErrCorrupt.WithMessage("session %s: the companion %s has no reference", l.t.key.ID, c.Child)
		}
		c.companion = readCompanionCall(c, ref.Agent, ref.Blocking)
		c.companion.status = ref.Status
	}
	return nil
}
