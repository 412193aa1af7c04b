package postgres

import (
	"context"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/feed"
	"github.com/helixagents/helix/store/internal/stored"
	"github.com/helixagents/helix/stream"
)

// maxReadBytes is roughly how many bytes of a stream a reader fetches at a time,
// maxReadBatches how many batches.
const (
	maxReadBytes   = 256 << 10
	maxReadBatches = 500
)

// Read implements [stream.Manager].
func (s *streams) Read(ctx context.Context, id string, from int64, wait bool) iter.Seq2[stream.Item, error] {
	return func(yield func(stream.Item, error) bool) {
		sub, end := s.b.watch.hub.Subscribe(s.key(id))
		defer end()
		after := func(ctx context.Context, from int64, view *feed.View) error { return s.after(ctx, id, from, view) }
		feed.Feed{ID: id, From: from, Wait: wait, After: after}.Read(ctx, sub)(yield)
	}
}

// after fills view with what a stream has after a sequence.
func (s *streams) after(ctx context.Context, id string, from int64, view *feed.View) error {
	h, batches, err := s.batches(ctx, id, "read", from, maxReadBatches, maxReadBytes)
	if err != nil || h == nil {
		return err
	}
	info, err := h.Describe()
	if err != nil {
		return err
	}
	view.Found, view.Info, view.Incarnation = true, *info, h.number
	if h.Holds(from) {
		view.Items, view.Damage = chunksOf(id, batches, from, 0)
	}
	return nil
}

// selectBatches reads a stream and, in the same snapshot, its batches, starting
// with the one that contains the chunk after a sequence, up to roughly a number of
// bytes.
const selectBatches = `
SELECT` + streamColumns + `, NULL::bigint, NULL::bigint, coalesce($3::timestamptz, clock_timestamp()),
       b.first_sequence, b.last_sequence, b.at, b.body
FROM helix.streams s
LEFT JOIN LATERAL (
    SELECT b.first_sequence, b.last_sequence, b.at, b.body, sum(length(b.body)) OVER (ORDER BY b.last_sequence) AS size
    FROM (
        SELECT * FROM helix.stream_batches b
        WHERE b.stream = s.number AND b.last_sequence > $4
        ORDER BY b.last_sequence
        LIMIT $5
    ) b
) b ON b.size - length(b.body) < $6
WHERE s.tenant = $1 AND s.stream_id = $2
ORDER BY b.last_sequence`

// batches reads a stream's batches after a sequence; the head is nil if there is
// no stream.
func (s *streams) batches(ctx context.Context, id, verb string, from int64, limit int, size int64) (h *streamHead, out []*stored.BatchRow, err error) {
	err = s.b.query(ctx, streamVerb(id, verb), func(rows pgx.Rows) (err error) {
		var (
			first, last *int64
			at          time.Time
			body        []byte
		)
		if h, err = scanStream(id, "", rows, &first, &last, instant{&at}, &body); err != nil || first == nil {
			return err
		}
		out = append(out, stored.NewBatchRow(*first, *last, at, body))
		return nil
	}, selectBatches, s.tenant, id, s.b.clock(), from, limit, size)
	return h, out, err
}

// chunksOf decodes the chunks of batches after a sequence, up to a limit if that
// is not 0.
func chunksOf(id string, batches []*stored.BatchRow, from int64, limit int) (items []stream.Item, err error) {
	for _, b := range batches {
		if err := b.Check(id); err != nil {
			return items, err
		}
		for sequence, line := range b.After(from) {
			if limit > 0 && len(items) == limit {
				return items, nil
			}
			item, err := stored.DecodeChunk(id, sequence, line)
			if err != nil {
				return items, err
			}
			items = append(items, item)
		}
	}
	return items, nil
}

// Chunks implements [stream.Manager].
func (s *streams) Chunks(ctx context.Context, id string, from int64, limit int) (items []stream.Item, err error) {
	if from < 0 {
		return nil, stream.Negative(from)
	}
	for cursor := from; ; {
		h, batches, err := s.batches(ctx, id, "list chunks", cursor, maxReadBatches, 4*maxReadBytes)
		switch {
		case err != nil:
			return nil, err
		case h == nil:
			return nil, notFound("stream %s", id)
		case !h.Holds(cursor):
			return nil, h.Truncated(cursor)
		}
		rest := 0
		if limit > 0 {
			rest = limit - len(items)
		}
		found, err := chunksOf(id, batches, cursor, rest)
		if err != nil {
			return nil, err
		}
		items = append(items, found...)
		if len(batches) == 0 || (limit > 0 && len(items) == limit) {
			return items, nil
		}
		cursor = batches[len(batches)-1].Last
		if cursor >= h.Last {
			return items, nil
		}
	}
}

const trimStream = `
WITH gone AS (
    DELETE FROM helix.stream_batches WHERE stream = $1 AND last_sequence <= $2 RETURNING length(body) AS size
)
UPDATE helix.streams
SET floor = $2, revision = revision + 1, bytes = greatest(bytes - (SELECT coalesce(sum(size), 0) FROM gone), 0)
WHERE number = $1`

// Trim implements [stream.Manager].
func (s *streams) Trim(ctx context.Context, id string, policy stream.TrimPolicy) (floor int64, err error) {
	if policy.KeepLast < 0 {
		return 0, session.Invalid("chunks to keep", "%d is negative", policy.KeepLast)
	}
	// Old chunks are searched for before the lock is taken: their number only
	// increases.
	number, old, err := s.oldest(ctx, id, policy)
	if err != nil {
		return 0, err
	}
	err = s.b.transactBulk(ctx, streamVerb(id, "trim"), func(ctx context.Context, t *tx) error {
		h, err := s.lock(ctx, t, id, "")
		if err != nil {
			return err
		}
		if h == nil || h.number != number {
			return notFound("stream %s", id)
		}
		if floor = max(h.dropped(policy), old); floor == h.Floor {
			return nil
		}
		t.exec(trimStream, h.number, floor)
		s.touched(t, id)
		return nil
	})
	if err != nil {
		return 0, err
	}
	return floor, nil
}

// dropped returns the floor of a stream under the rules of a policy that do not
// depend on its chunks.
func (h *streamHead) dropped(policy stream.TrimPolicy) int64 {
	floor := min(max(h.Floor, policy.Through), h.Last)
	if policy.KeepLast > 0 {
		floor = max(floor, h.Last-policy.KeepLast)
	}
	return floor
}

// oldest returns the number of a stream, and the last sequence of the chunks at
// its front that a policy drops because of their age.
func (s *streams) oldest(ctx context.Context, id string, policy stream.TrimPolicy) (number, old int64, err error) {
	for {
		h, batches, err := s.batches(ctx, id, "trim", old, maxReadBatches, maxReadBytes)
		if err != nil {
			return 0, 0, err
		}
		if h == nil {
			return 0, 0, notFound("stream %s", id)
		}
		if number = h.number; policy.Before.IsZero() {
			return number, 0, nil
		}
		skipped := old
		old = max(old, h.dropped(policy))
		for _, b := range batches {
			for sequence := max(b.First, old+1); sequence <= b.Last; sequence++ {
				if !b.Time(h.ID, sequence).Before(policy.Before) {
					return number, old, nil
				}
				old = sequence
			}
		}
		if old == skipped || old >= h.Last {
			return number, old, nil
		}
	}
}
