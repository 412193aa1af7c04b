package redis

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/session"
)

// blobs is the blob store of one tenant.
//
// The references of a session are in its own slot, the bytes of a blob in another, with
// the sessions that have it. A session first claims the bytes, which keeps them from
// being removed and writes them if necessary, then gets the reference, and at last
// confirms the claim. Bytes without a confirmed claim have a time to live. A put that was
// interrupted leaves a reference that Missing does not count.
type blobs struct {
	b      *Backend
	tenant string
}

var _ blob.Store = (*blobs)(nil)

// Fields of a session's blobs beside the references.
const (
	blobTotal = "total"
	blobCount = "count"
)

// maxPuts is how often a blob is put again because its session was replaced, or its
// bytes were removed, in the meantime.
const maxPuts = 10

// Tenant implements [blob.Store].
func (s *blobs) Tenant(tenant string) blob.Store { return &blobs{s.b, orDefault(tenant)} }

func (s *blobs) sessions() *sessions { return &sessions{s.b, s.tenant} }

// root reads the root of a session's tree, with some of its references.
func (s *blobs) root(ctx context.Context, id, verb string, refs ...string) (*view, error) {
	if err := s.b.begin(ctx, what(id, verb)); err != nil {
		return nil, err
	}
	root, err := s.sessions().rootOf(ctx, id)
	if err != nil {
		return nil, err
	}
	q := query()
	args := []any{keyBlobs, blobTotal}
	for _, ref := range refs {
		args = append(args, ref)
	}
	q.do("get", keyBlobs, args...)
	v, err := s.sessions().look(ctx, root, verb, q)
	if err == nil && v.header == nil {
		err = session.NotFound(id)
	}
	return v, err
}

// owner returns the name under which a session has bytes. A session that is created
// again under the same id has another.
func (v *view) owner() string { return v.header.ID + "\x00" + v.header.raw["born"] }

// useBytes runs the script on the bytes of a blob.
func (b *Backend) useBytes(tenant, ref string, args ...any) *run {
	const letters = keyOwners + keyPieces
	return &run{
		script: useBlob, keys: keyNamesOf(b.keys.blob(tenant, ref), letters),
		args: append([]any{letters, b.stamp()}, args...),
	}
}

// useBytes runs the script on the bytes of a blob of the tenant.
func (s *blobs) useBytes(ctx context.Context, name, ref string, args ...any) ([]any, error) {
	r := s.b.useBytes(s.tenant, ref, args...)
	s.b.evalAll(ctx, r)
	return list(r.out), failure(name, r.err)
}

// bytesTTL is how long bytes are kept that no session has for certain.
const bytesTTL = blob.SweepAge

// Put implements [blob.Store].
func (s *blobs) Put(ctx context.Context, put *blob.Put) (blob.Stored, error) {
	const verb = "put blob"
	if err := put.Check(); err != nil {
		return blob.Stored{}, err
	}
	name := what(put.SessionID, verb)
	if err := s.b.begin(ctx, name); err != nil {
		return blob.Stored{}, err
	}
	if err := s.b.requireBlobs(ctx, name); err != nil {
		return blob.Stored{}, err
	}
	out := blob.Stored{Ref: blob.RefOf(put.Data), Size: int64(len(put.Data))}
	for range maxPuts {
		done, err := s.try(ctx, name, put, &out)
		if err != nil {
			return blob.Stored{}, err
		}
		if done {
			return out, nil
		}
	}
	return blob.Stored{}, session.ErrUnavailable.WithMessage("%s: the session or the bytes were removed too often", name)
}

// try puts a blob, and reports whether that is done. If not, something has changed in
// the meantime.
func (s *blobs) try(ctx context.Context, name string, put *blob.Put, out *blob.Stored) (done bool, err error) {
	v, err := s.root(ctx, put.SessionID, "put blob", out.Ref)
	if err != nil {
		return false, err
	}
	found := list(v.parts[0])
	out.Total = number(text(found[0]))
	if had := found[1] != nil; !had {
		if err := put.Exceeds(out.Total + blob.Charge(out.Size)); err != nil {
			return false, err
		}
	}
	if v.header.raw["mortal"] == "1" {
		if err := s.sessions().listBlobs(ctx, []string{out.Ref}, v.now.Add(s.b.config.SessionTTL)); err != nil {
			return false, err
		}
	}
	var pieces [][]byte
	if !put.Elsewhere {
		pieces = blob.Pieces(put.Data)
	}
	if err := s.claim(ctx, name, v.owner(), out.Ref, pieces); err != nil {
		return false, err
	}
	done, err = s.refer(ctx, v, put, out)
	if err != nil || !done {
		_, _ = s.useBytes(ctx, name, out.Ref, "unclaim", v.owner()) // else it ends by itself
		return false, err
	}
	answer, err := s.useBytes(ctx, name, out.Ref, "confirm", v.owner(), len(pieces))
	return err == nil && text(answer[0]) == "ok", err
}

// claim keeps the bytes of a blob from being removed, and writes them if necessary.
func (s *blobs) claim(ctx context.Context, name, owner, ref string, pieces [][]byte) error {
	answer, err := s.useBytes(ctx, name, ref, "claim", owner, bytesTTL.Milliseconds(), "")
	if err != nil || number(text(answer[1])) >= int64(len(pieces)) {
		return err
	}
	for i, piece := range pieces { // one at a time, so that others are served in between
		if _, err := s.useBytes(ctx, name, ref, "piece", i, piece, bytesTTL.Milliseconds()); err != nil {
			return err
		}
	}
	return nil
}

// refer gives a session the reference to bytes that it has claimed. It reports false if
// the session was replaced by another one.
func (s *blobs) refer(ctx context.Context, v *view, put *blob.Put, out *blob.Stored) (bool, error) {
	w := &batch{}
	w.do("same", "", "born", v.header.raw["born"])
	w.do("blob", keyBlobs, out.Ref, out.Size, blob.Charge(out.Size), max(put.Limit, 0))
	done, err := s.sessions().apply(ctx, v.header.ID, "put blob", "", w)
	if r, refused := errors.AsType[*refusal](err); refused {
		switch r.why {
		case "moved":
			return false, nil
		case "missing":
			return false, session.NotFound(put.SessionID)
		case "blobs":
			return false, put.Exceeds(number(r.about[0]))
		}
		return false, r.domain(v.header.ID)
	}
	if err != nil {
		return false, err
	}
	out.Total = number(text(done.results[0]))
	return true, nil
}

// Get implements [blob.Store].
func (s *blobs) Get(ctx context.Context, sessionID, ref string) ([]byte, error) {
	if err := blob.CheckGet(sessionID, ref); err != nil {
		return nil, err
	}
	const verb = "get blob"
	v, err := s.root(ctx, sessionID, verb, ref)
	if err != nil {
		return nil, err
	}
	found := list(v.parts[0])
	if found[1] == nil {
		return nil, blob.NotFound(sessionID, ref)
	}
	size := number(text(found[1]))
	data := make([]byte, 0, size)
	for i := range (size + blob.PieceBytes - 1) / blob.PieceBytes {
		piece, err := s.b.client.HGet(ctx, s.b.keys.blob(s.tenant, ref)+keyPieces, itoa(i)).Result()
		if errors.Is(err, goredis.Nil) {
			return nil, blob.Lost(ref)
		}
		if err != nil {
			return nil, failure(what(sessionID, verb), err)
		}
		data = append(data, piece...)
	}
	if err := blob.Verify(ref, data); err != nil {
		return nil, err
	}
	return data, nil
}

// Missing implements [blob.Store].
func (s *blobs) Missing(ctx context.Context, sessionID string, refs []string) ([]string, error) {
	refs, err := blob.CheckMissing(sessionID, refs)
	if err != nil {
		return nil, err
	}
	const verb = "missing blobs"
	v, err := s.root(ctx, sessionID, verb, refs...)
	if err != nil {
		return nil, err
	}
	found := list(v.parts[0])[1:]
	pipe := s.b.client.Pipeline()
	kept := make([]*goredis.StringCmd, len(refs))
	for i, ref := range refs {
		if found[i] != nil {
			kept[i] = pipe.HGet(ctx, s.b.keys.blob(s.tenant, ref)+keyOwners, v.owner())
		}
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	var out []string
	for i, ref := range refs {
		if kept[i] == nil {
			out = append(out, ref)
			continue
		}
		state, err := kept[i].Result()
		if err != nil && !errors.Is(err, goredis.Nil) {
			return nil, failure(what(sessionID, verb), err)
		}
		if !strings.HasPrefix(state, "k") {
			out = append(out, ref)
		}
	}
	return out, nil
}

// Size implements [blob.Store].
func (s *blobs) Size(ctx context.Context, sessionID string) (int64, error) {
	v, err := s.root(ctx, sessionID, "size of blobs")
	if err != nil {
		return 0, err
	}
	return number(text(list(v.parts[0])[0])), nil
}

// Referenced implements [blob.Store].
func (s *blobs) Referenced(ctx context.Context, ref string) (bool, error) {
	if err := blob.CheckRef(ref); err != nil {
		return false, err
	}
	const name = "find references to a blob"
	if err := s.b.begin(ctx, name); err != nil {
		return false, err
	}
	owners, err := s.b.ownersOf(ctx, s.tenant, ref)
	if err != nil {
		return false, failure(name, err)
	}
	server, err := s.b.client.Time(ctx).Result()
	if err != nil {
		return false, failure(name, err)
	}
	oldest := server.Add(-s.b.config.settling)
	return slices.ContainsFunc(owners, func(o blobOwner) bool {
		since, claim := strings.CutPrefix(o.state, "c")
		return o.has || claim && moment(since).After(oldest)
	}), nil
}

// blobOwner is a session that has claimed a blob.
type blobOwner struct {
	name, state string
	has         bool // whether it has the reference
}

// ownersOf reads the sessions that have claimed a blob, then whether they have the
// reference.
func (b *Backend) ownersOf(ctx context.Context, tenant, ref string) ([]blobOwner, error) {
	states, err := b.client.HGetAll(ctx, b.keys.blob(tenant, ref)+keyOwners).Result()
	if err != nil || len(states) == 0 {
		return nil, err
	}
	out := make([]blobOwner, 0, len(states))
	for name, state := range states {
		out = append(out, blobOwner{name: name, state: state})
	}
	pipe := b.client.Pipeline()
	born, has := make([]*goredis.StringCmd, len(out)), make([]*goredis.BoolCmd, len(out))
	for i := range out {
		id, _, _ := strings.Cut(out[i].name, "\x00")
		born[i] = pipe.HGet(ctx, b.keys.session(tenant, id)+keyHeader, "born")
		has[i] = pipe.HExists(ctx, b.keys.session(tenant, id)+keyBlobs, ref)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i := range out {
		_, token, _ := strings.Cut(out[i].name, "\x00")
		is, err := born[i].Result()
		if err != nil && !errors.Is(err, goredis.Nil) {
			return nil, err
		}
		holds, err := has[i].Result()
		if err != nil {
			return nil, err
		}
		out[i].has = holds && is == token
	}
	return out, nil
}

// Sweep implements [blob.Store].
func (s *blobs) Sweep(ctx context.Context, age time.Duration, limit int) (removed int, err error) {
	const name = "sweep blobs"
	if err := s.b.begin(ctx, name); err != nil {
		return 0, err
	}
	now, err := s.b.now(ctx)
	if err != nil {
		return 0, err
	}
	for shard := range sweepShards {
		n, err := s.b.sweepBlobs(ctx, name, s.b.keys.sweep(shard), now.Add(-age), limit-removed)
		removed += n
		if err != nil {
			return removed, failure(name, err)
		}
	}
	return removed, nil
}

// sweepBlobs examines the blobs of one slot of the index that may be unused.
func (b *Backend) sweepBlobs(ctx context.Context, name, slot string, before time.Time, limit int) (removed int, err error) {
	began := time.Now()
	listed := &scan{client: b.client, purpose: name, key: slot + sweepBlobs, lowest: "-inf", highest: micros(before)}
	var over []correction
	defer func() { b.settle(ctx, began, over) }()
	for removed < limit {
		entries, err := listed.next(ctx, min(limit-removed, maxScanBatch))
		if err != nil || len(entries) == 0 {
			return removed, err
		}
		for _, z := range entries {
			member := text(z.Member)
			tenant, ref, _ := strings.Cut(member, "\x00")
			gone, settled, err := b.sweepBlob(ctx, tenant, ref)
			if err != nil {
				return removed, err
			}
			if gone {
				removed++
			}
			if settled {
				over = append(over, correction{hint: hint{slot: slot, index: sweepBlobs, member: member, score: score(z.Score), how: later}})
			}
		}
	}
	return removed, nil
}

// sweepBlob removes the bytes of a blob unless a session has them. It reports whether it
// has, and whether that is settled: no session is about to get them.
func (b *Backend) sweepBlob(ctx context.Context, tenant, ref string) (gone, settled bool, err error) {
	owners, err := b.ownersOf(ctx, tenant, ref)
	if err != nil {
		return false, false, err
	}
	args := []any{"sweep", b.config.settling.Microseconds(), bytesTTL.Milliseconds()}
	for _, o := range owners {
		args = append(args, o.name, o.state, flag(o.has))
	}
	r := b.useBytes(tenant, ref, args...)
	b.evalAll(ctx, r)
	if r.err != nil {
		return false, false, r.err
	}
	answer := list(r.out)
	return number(text(answer[0])) > 0, number(text(answer[1])) == 0, nil
}

// listBlobs lists blobs for the sweep from the time on at which they may be unused.
func (s *sessions) listBlobs(ctx context.Context, refs []string, at time.Time) error {
	var h hints
	for _, ref := range refs {
		h.entries = append(h.entries, hint{s.b.keys.sweep(shardOf(s.tenant, ref)), sweepBlobs, s.tenant + "\x00" + ref, micros(at), later})
	}
	return s.b.addHints(ctx, "list blobs", &h)
}

// blobsUnused lists the blobs of a session that is about to be deleted, and returns the
// count of blobs that was read.
func (s *sessions) blobsUnused(ctx context.Context, id, verb string) (count string, err error) {
	q := query()
	q.do("all", keyBlobs, keyBlobs)
	v, err := s.read(ctx, id, verb, q)
	if err != nil {
		return "", err
	}
	fields := fieldsOf(v.parts[0])
	return fields[blobCount], s.listBlobs(ctx, refsOf(fields), v.now)
}

// blobsExpire lists the blobs of a session that is about to get a time to live.
func (s *sessions) blobsExpire(ctx context.Context, v *view) error {
	if refs := refsOf(fieldsOf(v.parts[0])); len(refs) > 0 {
		return s.listBlobs(ctx, refs, v.now.Add(s.b.config.SessionTTL))
	}
	return nil
}

// refsOf returns the references of a session, in order.
func refsOf(fields map[string]string) []string {
	out := slices.Sorted(maps.Keys(fields))
	return slices.DeleteFunc(out, func(field string) bool { return field == blobTotal || field == blobCount })
}

// sharedBlobs are blobs that a clone gets from its source.
type sharedBlobs struct {
	*sessions
	to, born string
	refs     []string          // those that the clone has claimed
	sizes    map[string]string // of the source's references
}

func (c *sharedBlobs) owner() string { return c.to + "\x00" + c.born }

// claim claims the blobs of the source, or of the root of its tree.
func (c *sharedBlobs) claim(ctx context.Context, from *view) error {
	c.sizes = fieldsOf(from.parts[len(from.parts)-1])
	if from.header.ParentID != "" {
		root, err := c.rootOf(ctx, from.header.ID)
		if err != nil {
			return err
		}
		q := query()
		q.do("all", keyBlobs, keyBlobs)
		v, err := c.read(ctx, root, "clone", q)
		if err != nil {
			return err
		}
		c.sizes = fieldsOf(v.parts[0])
	}
	all := refsOf(c.sizes)
	runs := make([]*run, len(all))
	for i, ref := range all {
		runs[i] = c.b.useBytes(c.tenant, ref, "claim", c.owner(), bytesTTL.Milliseconds(), "1")
	}
	c.b.evalSlots(ctx, runs)
	c.refs = nil
	for i, r := range runs {
		if r.err != nil {
			return failure(what(c.to, "clone"), r.err)
		}
		if text(list(r.out)[0]) != "gone" { // which is the rest of an interrupted put
			c.refs = append(c.refs, all[i])
		}
	}
	return nil
}

// add adds the operation that gives the clone its references.
func (c *sharedBlobs) add(w *batch) {
	if len(c.refs) == 0 {
		return
	}
	var total int64
	args := make([]any, 0, 2*len(c.refs)+4)
	for _, ref := range c.refs {
		args = append(args, ref, c.sizes[ref])
		total += blob.Charge(number(c.sizes[ref]))
	}
	w.do("blobs", keyBlobs, append(args, blobTotal, total, blobCount, len(c.refs))...)
}

// confirm confirms the claims, once the clone has the references.
func (c *sharedBlobs) confirm(ctx context.Context) error {
	return failure(what(c.to, "clone"), c.each(ctx, "confirm", 0))
}

// unclaim gives the claims back. What that fails for ends by itself.
func (c *sharedBlobs) unclaim(ctx context.Context) { _ = c.each(ctx, "unclaim") }

func (c *sharedBlobs) each(ctx context.Context, verb string, more ...any) error {
	runs := make([]*run, len(c.refs))
	for i, ref := range c.refs {
		runs[i] = c.b.useBytes(c.tenant, ref, append([]any{verb, c.owner()}, more...)...)
	}
	c.b.evalSlots(ctx, runs)
	return firstError(runs)
}
