package redis

import (
	"context"
	"errors"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/session"
)

// SessionLetters are the letters of all keys that a session may have.
const SessionLetters = sessionLetters

// WithSettling returns the configuration with another time during which index
// entries are considered true.
func (c Config) WithSettling(d time.Duration) Config {
	c.settling, c.late = d, time.Minute
	return c
}

// WithLate returns the configuration with another time after which a delayed
// process does not trust index entries.
func (c Config) WithLate(d time.Duration) Config {
	c.late = d
	return c
}

// OwnOptions returns a client's options as a backend sets them for its own client.
func OwnOptions(o *goredis.Options) *goredis.Options {
	return nodeOptions(o, &Config{ConnectTimeout: 5 * time.Second})
}

// AlwaysWrite makes every readiness check write.
func (b *Backend) AlwaysWrite() { b.writes.Always() }

// ScriptsFor returns the number of indexes of each script that adds a number of
// entries of one slot.
func (b *Backend) ScriptsFor(entries int) (out []int) {
	var h hints
	for i := range entries {
		h.list(b.keys, session.DefaultTenant, indexTag+itoa(i), "a", "1")
	}
	for _, g := range b.hintGroups(&h) {
		out = append(out, len(g.keys)-1)
	}
	return out
}

// CommitAlone commits without the steps that follow, as if the process had died.
func (b *Backend) CommitAlone(ctx context.Context, commit *session.Commit) error {
	_, err := (&sessions{b, session.DefaultTenant}).commit(ctx, commit)
	return err
}

// MoveWake moves a wake that a child's commit has left, whose entry may no longer
// exist.
func (b *Backend) MoveWake(ctx context.Context, wake *session.Wake) error {
	return (&sessions{b, session.DefaultTenant}).moveWake(ctx, wake.ChildID, wake)
}

// CommitGenerally commits through the script that accepts any change.
func (b *Backend) CommitGenerally(ctx context.Context, commit *session.Commit) (*session.Committed, error) {
	s := &sessions{b, session.DefaultTenant}
	p, err := s.planCommit(ctx, commit, nil)
	if err != nil {
		return nil, err
	}
	out, err := s.carryOut(ctx, commit.SessionID, "commit", "", p)
	if r, refused := errors.AsType[*refusal](err); refused {
		return nil, r.commit(commit)
	}
	if err != nil {
		return nil, err
	}
	return &out.Committed, nil
}

// ChangeTwice makes a direct change and sends the same request again, as a client
// does that has lost the answer.
func (b *Backend) ChangeTwice(ctx context.Context, id string, c *session.Change) (first, second session.Committed, err error) {
	s := &sessions{b, session.DefaultTenant}
	w := &batch{}
	w.do("bump", "", "")
	if err := w.change(id, "", c, nil, time.Now()); err != nil {
		return first, second, err
	}
	token := b.tokens.next()
	for _, out := range []*session.Committed{&first, &second} {
		done, err := s.apply(ctx, id, "change", token, w)
		if err != nil {
			return first, second, err
		}
		*out = done.Committed
	}
	return first, second, nil
}

// Filled waits until the requested filling of indexes has ended.
func (b *Backend) Filled() { b.fills.work.Wait() }

// ClaimBlob puts a blob as a process does that dies before it confirms the claim, and
// perhaps before the session has the reference.
func (b *Backend) ClaimBlob(ctx context.Context, id string, data []byte, refer bool) error {
	s := &blobs{b, session.DefaultTenant}
	put := &blob.Put{SessionID: id, Data: data}
	out := blob.Stored{Ref: blob.RefOf(data), Size: int64(len(data))}
	v, err := s.root(ctx, id, "put blob", out.Ref)
	if err == nil {
		err = s.claim(ctx, "put blob", v.owner(), out.Ref, blob.Pieces(data))
	}
	if err == nil && refer {
		_, err = s.refer(ctx, v, put, &out)
	}
	return err
}
