package engine

import (
	"context"
	"errors"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
)

// blobShare is the part of a session's size limit below which its blobs are not weighed:
// a put holds them to the limit, so together the session exceeds it by at most that part,
// and most sessions never cost the read.
const blobShare = 16

// weighsBlobs reports whether a session, which has so many bytes without its blobs, may
// have become too large with them.
func (c *Config) weighsBlobs(size int64) bool {
	return c.MaxSession >= 0 && size >= c.MaxSession/blobShare
}

// checkSize refuses a session that has become too large. Its blobs are read once per
// turn; what the turn itself puts is added.
func (t *turn) checkSize(ctx context.Context) error {
	size := t.size()
	if t.h.cfg.weighsBlobs(size) && t.blobs.Load() < 0 {
		total, err := retry.Do(ctx, func() (int64, error) { return t.blobStore().Size(ctx, t.key.ID) })
		if err != nil {
			return err
		}
		t.blobs.CompareAndSwap(unknownBlobs, total)
	}
	return t.h.cfg.checkSize(size + max(t.blobs.Load(), 0))
}

// unknownBlobs is the size of a turn's blobs before it was read.
const unknownBlobs = -1

func (t *turn) blobStore() blob.Store { return t.h.cfg.Backend.Blobs().Tenant(t.key.Tenant) }

// PutBlob implements [access.Env].
func (e *env) PutBlob(ctx context.Context, data []byte) (string, error) {
	return e.t.putBlob(ctx, e.stored+e.t.out.Config().Bytes.Load(), data)
}

// putBlob puts a blob and returns its reference. The blob is durable before the commit that
// names it. others is how many bytes the session has without its blobs.
func (t *turn) putBlob(ctx context.Context, others int64, data []byte) (string, error) {
	put := &blob.Put{SessionID: t.key.ID, Data: data}
	if limit := t.h.cfg.MaxSession; limit >= 0 {
		if err := t.h.cfg.checkSize(others + blob.Charge(int64(len(data)))); err != nil {
			return "", err
		}
		put.Limit = max(limit-others, 1) // 0 would be no limit
	}
	stored, err := retry.Do(ctx, func() (blob.Stored, error) { return t.blobStore().Put(ctx, put) })
	if errors.Is(err, session.ErrTooLarge) && session.AsError(err).Field == "blobs" {
		full := session.ErrTooLarge.WithMessage("the session has no room for a blob of %d bytes: messages, stream and blobs, each of which counts at least %d, have at most %d together",
			len(data), blob.MinCharge, t.h.cfg.MaxSession)
		full.Field = LimitSession
		return "", full
	}
	if err != nil {
		return "", err
	}
	for { // nothing in a turn removes blobs, and a call that put one earlier may come later
		known := t.blobs.Load()
		if known >= stored.Total || t.blobs.CompareAndSwap(known, stored.Total) {
			break
		}
	}
	return stored.Ref, nil
}

// Blob implements [access.Env].
func (e *env) Blob(ctx context.Context, ref string) ([]byte, error) {
	return retry.Do(ctx, func() ([]byte, error) { return e.t.blobStore().Get(ctx, e.t.key.ID, ref) })
}
