package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

// childRow is the stored form of a reference. The field that makes the child
// remote and the creation time have columns, because a replaced reference passes
// them on.
type childRow struct {
	childID              string
	awaited              bool
	doc, remote          []byte
	createdAt, updatedAt time.Time
	revision             int64
}

func encodeChild(ref *session.ChildRef) (*childRow, error) {
	row := &childRow{
		childID: ref.SessionID, awaited: ref.Awaited, remote: ref.Remote, createdAt: ref.CreatedAt, updatedAt: ref.UpdatedAt,
	}
	var err error
	row.doc, err = stored.EncodeChild(ref, func(r *session.ChildRef) { r.Remote, r.CreatedAt, r.UpdatedAt = nil, time.Time{}, time.Time{} })
	return row, err
}

func (r *childRow) decode(id string) (*session.ChildRef, error) {
	ref, err := stored.DecodeChild(id, r.childID, r.doc)
	if err != nil {
		return nil, err
	}
	ref.Awaited, ref.CreatedAt, ref.UpdatedAt, ref.Remote = r.awaited, r.createdAt, r.updatedAt, r.remote
	return ref, nil
}

// encodeChildren encodes the references that a change writes. Of several
// references to one session the last one counts.
func (d *draft) encodeChildren() (err error) {
	d.children, err = encodeRefs(d.Children)
	return err
}

func encodeRefs(refs []session.ChildRef) ([]*childRow, error) {
	var out []*childRow
	place := map[string]int{}
	for i := range refs {
		ref := refs[i]
		at, seen := place[ref.SessionID]
		if seen {
			before, err := out[at].decode("")
			if err != nil {
				return nil, err
			}
			ref.Replace(before)
		}
		row, err := encodeChild(&ref)
		if err != nil {
			return nil, err
		}
		if seen {
			out[at] = row
			continue
		}
		place[ref.SessionID] = len(out)
		out = append(out, row)
	}
	return out, nil
}

// putChildren adds references, or replaces those to the same sessions: they keep
// their position, and their creation time and remote field unless the new ones
// have their own. Its placeholders are the session's number, the time, and the
// references.
const putChildren = `
INSERT INTO helix.children AS c (session, child_id, awaited, revision, doc, remote, created_at, updated_at)
SELECT %[1]s, x.child_id, x.awaited, 1, x.doc, coalesce(x.remote, o.remote), coalesce(x.created_at, o.created_at, %[2]s), %[2]s
FROM %[3]s
LEFT JOIN helix.children o ON o.session = %[1]s AND o.child_id = x.child_id
ORDER BY x.n
ON CONFLICT (session, child_id) DO UPDATE
SET awaited = excluded.awaited, revision = c.revision + 1, doc = excluded.doc, remote = excluded.remote,
    created_at = excluded.created_at, updated_at = excluded.updated_at`

// childRows returns references as a table.
func childRows(q *statement, count rowCount, rows []*childRow) string {
	n := len(rows)
	childIDs, awaited, docs, remotes, created := make([]string, n), make([]bool, n), make([][]byte, n), make([][]byte, n), make([]any, n)
	for i, row := range rows {
		childIDs[i], awaited[i], docs[i], remotes[i], created[i] = row.childID, row.awaited, row.doc, row.remote, when(row.createdAt)
	}
	return q.rows("x", count, col("child_id", "text", childIDs), col("awaited", "boolean", awaited), col("doc", "bytea", docs),
		col("remote", "bytea", remotes), col("created_at", "timestamptz", created))
}

// putChildren queues references of a locked session.
func (s *sessions) putChildren(t *tx, h *header, rows []*childRow) {
	if len(rows) == 0 {
		return
	}
	q := &statement{text: &strings.Builder{}}
	text := fmt.Sprintf(putChildren, q.arg(h.number)+"::bigint", q.arg(when(h.now))+"::timestamptz", childRows(q, countOf(len(rows)), rows))
	t.exec(text, q.args...)
}

const (
	childColumns = `
       c.child_id, c.awaited, c.doc, c.remote, c.created_at, c.updated_at, c.revision`

	selectChild = `
SELECT` + childColumns + `
FROM helix.sessions s LEFT JOIN helix.children c ON c.session = s.number AND c.child_id = $3
WHERE s.tenant = $1 AND s.id = $2`

	selectChildren = `
SELECT` + childColumns + `
FROM helix.sessions s LEFT JOIN helix.children c ON c.session = s.number
WHERE s.tenant = $1 AND s.id = $2
ORDER BY c.number`

	selectAwaited = `
SELECT` + childColumns + `
FROM helix.sessions s LEFT JOIN helix.children c ON c.session = s.number AND c.awaited
WHERE s.tenant = $1 AND s.id = $2
ORDER BY c.number`

	updateChild = `
UPDATE helix.children
SET awaited = $4, doc = $5, remote = $6, created_at = $7, updated_at = $8, revision = revision + 1
WHERE session = $1 AND child_id = $2 AND revision = $3`
)

// scanChild reads a reference's row, or returns nil.
func scanChild(rows pgx.Rows) (*childRow, error) {
	row := &childRow{}
	var (
		awaited  *bool
		revision *int64
	)
	err := rows.Scan(word{&row.childID}, &awaited, &row.doc, &row.remote, instant{&row.createdAt}, instant{&row.updatedAt}, &revision)
	if err != nil || revision == nil {
		return nil, err
	}
	row.awaited, row.revision = *awaited, *revision
	return row, nil
}

// Children implements [session.Children].
func (s *sessions) Children(ctx context.Context, id string) (out []session.ChildRef, err error) {
	err = s.list(ctx, id, "list children", func(rows pgx.Rows) error {
		return appendChild(&out, id, rows)
	}, selectChildren)
	return out, err
}

func appendChild(out *[]session.ChildRef, id string, rows pgx.Rows) error {
	row, err := scanChild(rows)
	if err != nil || row == nil {
		return err
	}
	ref, err := row.decode(id)
	if err == nil {
		*out = append(*out, *ref)
	}
	return err
}

// UpdateChild implements [session.Children]. The function is called without a
// lock; its change is applied if the reference has not changed since it was read.
func (s *sessions) UpdateChild(ctx context.Context, id, childID string, change func(*session.ChildRef) error) (*session.ChildRef, error) {
	for {
		var row *childRow
		err := s.list(ctx, id, "read child", func(rows pgx.Rows) (err error) {
			row, err = scanChild(rows)
			return err
		}, selectChild, childID)
		if err != nil {
			return nil, err
		}
		if row == nil {
			return nil, notFound("session %s: child %s", id, childID)
		}
		ref, err := row.decode(id)
		if err != nil {
			return nil, err
		}
		if err := ref.Update(change); err != nil {
			return nil, err
		}
		swapped, err := s.swapChild(ctx, id, row.revision, ref)
		if err != nil {
			return nil, err
		}
		if swapped {
			return ref, nil
		}
	}
}

// swapChild replaces a reference if it has not changed since it was read.
func (s *sessions) swapChild(ctx context.Context, id string, revision int64, ref *session.ChildRef) (bool, error) {
	var swapped int64
	err := s.touch(ctx, id, "update child", func(_ context.Context, t *tx, h *header) error {
		swapped = 0
		ref.UpdatedAt = h.now
		row, err := encodeChild(ref)
		if err != nil {
			return err
		}
		t.count(&swapped, updateChild, h.number, row.childID, revision, row.awaited, row.doc, row.remote, when(row.createdAt), when(row.updatedAt))
		return nil
	})
	return swapped > 0 && err == nil, err
}
