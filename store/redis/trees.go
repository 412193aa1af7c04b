package redis

import (
	"context"
	"errors"
	"slices"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/helixagents/helix/session"
)

// heldTree is a tree of sessions whose root an owner holds.
type heldTree struct {
	*sessions
	root, owner string
	until       string      // when the root's lease expires now
	members     []goredis.Z // all sessions that ever belonged to the tree
	stops       []session.Stop
	err         error // why the members could not be changed
}

// index is the key of the index of the tree's members.
func (t *heldTree) index() string { return t.b.keys.listing(t.tenant) + indexRoot + indexed(t.root) }

// list reads the members. In the same round trip it checks whether this program can
// still use the store.
func (t *heldTree) list(ctx context.Context, verb string) (err error) {
	pipe := t.b.client.Pipeline()
	found := pipe.ZRangeWithScores(ctx, t.index(), 0, -1)
	readable := pipe.Get(ctx, t.b.keys.format())
	_, _ = pipe.Exec(ctx) // each command has its own error
	if err := t.b.noteFormat(readable); err != nil {
		return err
	}
	t.members, err = found.Result()
	return failure(what(t.root, verb), err)
}

// member is a session of a tree.
type member struct {
	*heldTree
	id   string
	held bool
	goredis.Z
}

// atOnce is how many sessions of trees are read or changed in one round trip.
const atOnce = 500

// eachHeld changes the members of trees that the owners of the trees hold, except
// their roots. It first reads which these are, because most have ended long ago.
func (b *Backend) eachHeld(ctx context.Context, verb string, trees []*heldTree, change func(*heldTree, *batch)) {
	var all []*member
	for _, t := range trees {
		for _, z := range t.members {
			all = append(all, &member{heldTree: t, id: text(z.Member), Z: z})
		}
	}
	for part := range slices.Chunk(all, atOnce) {
		if err := b.begin(ctx, verb); err != nil {
			for _, m := range part {
				m.err = err
			}
			continue
		}
		b.findHeld(ctx, verb, part)
		var held []*member
		var runs []*run
		for _, m := range part {
			if m.held {
				w := &batch{}
				change(m.heldTree, w)
				held, runs = append(held, m), append(runs, m.writing(m.id, "", w))
			}
		}
		b.evalSlots(ctx, runs)
		for i, m := range held {
			_, err := m.outcome(m.id, what(m.id, verb), runs[i])
			if r, refused := errors.AsType[*refusal](err); err != nil && !(refused && r.why == "missing") {
				m.err = err
			}
		}
	}
}

// findHeld finds out which members of trees the owners of the trees hold, except
// their roots, and the requests to stop these. It removes entries of deleted sessions.
func (b *Backend) findHeld(ctx context.Context, verb string, members []*member) {
	began := time.Now()
	pipe := b.client.Pipeline()
	cmds := make([]*goredis.SliceCmd, len(members))
	for i, m := range members {
		cmds[i] = pipe.HMGet(ctx, m.prefix(m.id)+keyHeader, "root", "owner", "v", "run", "rstatus", "stopk", "stopr", "stopa")
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	var gone []correction
	for i, m := range members {
		v, err := cmds[i].Result()
		switch {
		case err != nil:
			m.err = failure(what(m.id, verb), err)
		case v[2] == nil || text(v[0]) != m.root:
			gone = append(gone, correction{hint{b.keys.listing(m.tenant), indexRoot + indexed(m.root), m.id, score(m.Score), inPlace}, ""})
		case m.id != m.root && text(v[1]) == m.owner && m.owner != "":
			m.held = true
			if kind := text(v[5]); kind != "" && text(v[4]) == string(session.RunRunning) {
				m.stops = append(m.stops, session.Stop{RunID: text(v[3]), Kind: session.StopKind(kind), Reason: text(v[6]), At: moment(text(v[7]))})
			}
		}
	}
	b.settle(ctx, began, gone)
}
