package redis

import (
	"cmp"
	"context"
	"errors"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/helixagents/helix/session"
)

// renewal is the renewal of one lease.
type renewal struct {
	heldTree
	epoch  int64
	run    *run
	listed *goredis.ZSliceCmd // the members of the tree
}

// RenewLeases implements [store.Backend]. All leases are renewed in one round trip to
// each node. The root's lease is the tree's: members follow in further round trips,
// and the next renewal repeats what failed.
//
// Sweeps examine a lease at its former end and then find the new one; an entry is
// written only if the new end is sooner, or in case a failover has lost the old entry.
func (b *Backend) RenewLeases(ctx context.Context, leases []session.Held, ttl time.Duration) []session.Renewed {
	const verb = "renew leases"
	if len(leases) == 0 {
		return nil
	}
	if err := b.begin(ctx, verb); err != nil {
		return session.NotRenewed(leases, err)
	}
	renewals := make([]*renewal, len(leases))
	for i, held := range leases {
		r := &renewal{epoch: held.Epoch}
		r.heldTree = heldTree{sessions: &sessions{b, orDefault(held.Tenant)}, root: held.ID, owner: held.Owner}
		r.run = r.script(ttl, "")
		renewals[i] = r
	}
	if err := b.sendRenewals(ctx, renewals, ttl); err != nil {
		return session.NotRenewed(leases, failure(verb, err))
	}
	out := make([]session.Renewed, len(leases))
	var trees []*heldTree
	for i, r := range renewals {
		if out[i].Stops, out[i].Err = r.settle(ctx, ttl); out[i].Err == nil && len(r.members) > 0 {
			trees = append(trees, &r.heldTree)
		}
	}
	b.eachHeld(ctx, verb, trees, func(t *heldTree, w *batch) { w.do("follow", "", t.root, t.owner, t.until) })
	for i, r := range renewals {
		out[i].Stops = append(out[i].Stops, r.stops...)
		out[i].Err = cmp.Or(out[i].Err, r.err)
	}
	return out
}

// ProbeLeases implements [store.Backend], in one round trip to each node.
func (b *Backend) ProbeLeases(ctx context.Context, leases []session.Held) []error {
	const verb = "probe leases"
	out, runs := make([]error, len(leases)), make([]*run, len(leases))
	if len(leases) == 0 {
		return out
	}
	err := b.begin(ctx, verb)
	for i, held := range leases {
		w := &batch{}
		w.do("fence", "", held.Owner, held.Epoch)
		w.do("rewrite", "")
		runs[i] = (&sessions{b, orDefault(held.Tenant)}).writing(held.ID, "", w)
		out[i] = err
	}
	if err != nil {
		return out
	}
	b.evalSlots(ctx, runs)
	for i, held := range leases {
		_, err := (&sessions{b, orDefault(held.Tenant)}).outcome(held.ID, what(held.ID, verb), runs[i])
		if refused, is := errors.AsType[*refusal](err); is {
			err = refused.domain(held.ID)
		}
		out[i] = err
	}
	return out
}

// script returns the script that renews the lease. Without force it refuses to let the
// lease end sooner.
func (r *renewal) script(ttl time.Duration, force string) *run {
	length := ""
	if ttl > 0 {
		length = itoa(ttl.Microseconds())
	}
	w := &batch{}
	w.do("fence", "", r.owner, r.epoch)
	w.do("renew", "", length, force)
	return r.writing(r.root, "", w)
}

// sendRenewals sends the renewals, lists the members of the trees, restores entries of
// leases and checks whether this program can still use the store.
func (b *Backend) sendRenewals(ctx context.Context, renewals []*renewal, ttl time.Duration) error {
	reminders, err := b.remindSweepers(ctx, renewals, ttl)
	if err != nil {
		return err
	}
	runs := make([]*run, len(renewals))
	for i, r := range renewals {
		runs[i] = r.run
	}
	if b.config.WaitReplicas > 0 {
		b.evalSlots(ctx, runs)
	}
	pipe := b.client.Pipeline()
	renewed, reminded := make([]*goredis.Cmd, len(renewals)), make([]*goredis.Cmd, len(reminders))
	for i, r := range renewals {
		if b.config.WaitReplicas == 0 {
			renewed[i] = pipe.EvalSha(ctx, r.run.sha, r.run.keys, r.run.args...)
		}
		r.listed = pipe.ZRangeWithScores(ctx, r.index(), 0, -1)
	}
	for i, r := range reminders {
		reminded[i] = pipe.EvalSha(ctx, r.sha, r.keys, r.args...)
	}
	readable := pipe.Get(ctx, b.keys.format())
	_, _ = pipe.Exec(ctx) // each command has its own error
	if err := b.noteFormat(readable); err != nil {
		return err
	}
	var missed []*run // by servers that do not have the script
	for i, r := range runs {
		if renewed[i] == nil {
			continue
		}
		if r.out, r.err = renewed[i].Result(); goredis.HasErrorPrefix(r.err, "NOSCRIPT") {
			r.whole = true
			missed = append(missed, r)
		}
	}
	b.evalSlots(ctx, missed)
	for i, r := range reminders {
		err := reminded[i].Err()
		if goredis.HasErrorPrefix(err, "NOSCRIPT") {
			_, err = b.eval(ctx, r.script, r.keys, r.args)
		}
		if err != nil { // it is left to the next renewal
			b.config.Logger.WarnContext(ctx, "index entries of leases could not be restored", "error", err)
		}
	}
	return nil
}

// remindSweepers returns the scripts that restore the entries of leases which a
// failover may have lost. The entry of a lease that was lost meanwhile, or whose
// session has a parent, is not true; sweeps remove it.
func (b *Backend) remindSweepers(ctx context.Context, renewals []*renewal, ttl time.Duration) ([]*run, error) {
	if ttl <= 0 {
		return nil, nil
	}
	now, err := b.notAfter(ctx)
	if err != nil {
		return nil, err
	}
	var h hints
	for _, r := range renewals {
		h.sweep(b.keys, sweepLeases, r.tenant, r.root, "", now.Add(ttl))
	}
	for i := range h.entries {
		h.entries[i].how = known
	}
	return groupRuns(addHints, b.hintGroups(&h)), nil
}

// settle reads the result of a renewal. One that makes the lease end sooner is sent
// again, after the entry for sweeps.
func (r *renewal) settle(ctx context.Context, ttl time.Duration) ([]session.Stop, error) {
	const verb = "renew lease"
	out, err := r.outcome(r.root, what(r.root, verb), r.run)
	refused, is := errors.AsType[*refusal](err)
	if is && refused.why == "sooner" {
		var h hints
		h.sweep(r.b.keys, sweepLeases, r.tenant, r.root, "", session.LeaseEnd(refused.now, ttl))
		if err := r.b.addHints(ctx, what(r.root, verb), &h); err != nil {
			return nil, err
		}
		again := r.script(ttl, "force")
		r.b.evalAll(ctx, again)
		out, err = r.outcome(r.root, what(r.root, verb), again)
		refused, is = errors.AsType[*refusal](err)
	}
	switch {
	case is:
		return nil, refused.domain(r.root)
	case err != nil:
		return nil, err
	}
	if r.members, err = r.listed.Result(); err != nil {
		return nil, failure(what(r.root, verb), err)
	}
	r.until = text(out.results[0])
	runID := text(out.results[1])
	if out.Stop == nil || runID == "" {
		return nil, nil
	}
	stop := *out.Stop
	stop.RunID = runID
	return []session.Stop{stop}, nil
}
