package coldsql

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/session"
)

// Blobs are the blobs of one tenant. It implements [blob.Store].
type Blobs struct {
	Database
	// Name is the tenant.
	Name string
}

var _ blob.Store = Blobs{}

// maxDepth bounds the callers that are followed to the root of a tree.
const maxDepth = 1000

var (
	selectRoot = Portable(fmt.Sprintf(`
WITH RECURSIVE up (number, id, parent_id, depth) AS (
    SELECT number, id, parent_id, 0 FROM helix.sessions WHERE tenant = ?1 AND id = ?2
    UNION ALL
    SELECT s.number, s.id, s.parent_id, up.depth + 1
    FROM up JOIN helix.sessions s ON s.tenant = ?1 AND s.id = up.parent_id
    WHERE up.parent_id <> '' AND up.depth < %d
)
SELECT number FROM up ORDER BY depth DESC LIMIT 1`, maxDepth))

	// The lock keeps a deletion of the session from leaving the reference.
	lockRoot = Portable(`
SELECT 1 FROM helix.sessions WHERE number = ?1 {FOR KEY SHARE}`)

	selectTotal = Portable(`
SELECT bytes FROM helix.blob_totals WHERE session = ?1`)

	lockTotal = Portable(`
SELECT bytes FROM helix.blob_totals WHERE session = ?1 {FOR UPDATE}`)

	addTotal = Portable(`
INSERT INTO helix.blob_totals (session, bytes) VALUES (?1, ?2)
ON CONFLICT (session) DO UPDATE SET bytes = blob_totals.bytes + excluded.bytes
RETURNING bytes`)

	selectBlob = Portable(`
SELECT b.number, b.size FROM helix.blobs b
WHERE b.tenant = ?2 AND b.ref = ?3 AND EXISTS (SELECT 1 FROM helix.blob_refs r WHERE r.session = ?1 AND r.blob = b.number)`)

	// This locks the blob: a sweep that is about to remove it waits, or has removed it.
	upsertBlob = Portable(`
INSERT INTO helix.blobs (tenant, ref, size) VALUES (?1, ?2, ?3)
ON CONFLICT (tenant, ref) DO UPDATE SET unused_at = NULL
RETURNING number`)

	selectReferenced = Portable(`
SELECT 1 FROM helix.blobs b
WHERE b.tenant = ?1 AND b.ref = ?2 AND EXISTS (SELECT 1 FROM helix.blob_refs r WHERE r.blob = b.number)`)

	insertReference = Portable(`
INSERT INTO helix.blob_refs (session, blob) VALUES (?1, ?2)
ON CONFLICT DO NOTHING RETURNING blob`)

	countPieces = Portable(`
SELECT count(*) FROM helix.blob_pieces WHERE blob = ?1`)

	insertPiece = Portable(`
INSERT INTO helix.blob_pieces (blob, number, body) VALUES (?1, ?2, ?3)
ON CONFLICT DO NOTHING`)

	selectPieces = Portable(`
SELECT body FROM helix.blob_pieces WHERE blob = ?1 ORDER BY number`)

	selectHad = Portable(fmt.Sprintf(`
SELECT b.ref FROM helix.blobs b
WHERE b.tenant = ?2 AND b.ref IN (%s) AND EXISTS (SELECT 1 FROM helix.blob_refs r WHERE r.session = ?1 AND r.blob = b.number)`,
		parameters(3, missingPage)))

	// The locks keep sweeps from removing what is copied.
	copyReferences = Portable(`
INSERT INTO helix.blob_refs (session, blob)
SELECT ?2, kept.number FROM (
    SELECT b.number FROM helix.blob_refs r JOIN helix.blobs b ON b.number = r.blob WHERE r.session = ?1 {FOR KEY SHARE OF b}
) kept`)

	copyTotal = Portable(fmt.Sprintf(`
INSERT INTO helix.blob_totals (session, bytes)
SELECT r.session, sum(CASE WHEN b.size < %[1]d THEN %[1]d ELSE b.size END)
FROM helix.blob_refs r JOIN helix.blobs b ON b.number = r.blob WHERE r.session = ?1
GROUP BY r.session`, blob.MinCharge))

	markUnused = Portable(`
UPDATE helix.blobs SET unused_at = ?2
WHERE number IN (SELECT blob FROM helix.blob_refs WHERE session = ?1)`)

	deleteReferences = Portable(`
DELETE FROM helix.blob_refs WHERE session = ?1`)

	deleteTotal = Portable(`
DELETE FROM helix.blob_totals WHERE session = ?1`)

	selectUnused = Portable(`
SELECT number FROM helix.blobs WHERE unused_at <= ?1 ORDER BY unused_at, number LIMIT ?2`)

	lockUnused = Portable(`
SELECT 1 FROM helix.blobs WHERE number = ?1 AND unused_at <= ?2 {FOR UPDATE}`)

	selectUse = Portable(`
SELECT 1 FROM helix.blob_refs WHERE blob = ?1 LIMIT 1`)

	markUsed = Portable(`
UPDATE helix.blobs SET unused_at = NULL WHERE number = ?1`)

	deletePieces = Portable(`
DELETE FROM helix.blob_pieces WHERE blob = ?1`)

	deleteBlob = Portable(`
DELETE FROM helix.blobs WHERE number = ?1`)
)

// missingPage is how many references one query looks up.
const missingPage = 100

// parameters returns a list of parameters.
func parameters(first, count int) string {
	out := make([]string, count)
	for i := range out {
		out[i] = fmt.Sprint("?", first+i)
	}
	return strings.Join(out, ", ")
}

// number reads a number.
func number(c Conn, query Query, args ...any) (n int64, found bool, err error) {
	found, err = one(c, query, func(r Row) { n = r.Int64() }, args...)
	return n, found, err
}

// Tenant implements [blob.Store].
func (s Blobs) Tenant(tenant string) blob.Store {
	if tenant == "" {
		tenant = session.DefaultTenant
	}
	return Blobs{s.Database, tenant}
}

// root returns the number of the root of a session's tree.
func (s Blobs) root(c Conn, id string) (int64, error) {
	root, found, err := number(c, selectRoot, s.Name, id)
	if err == nil && !found {
		err = session.NotFound(id)
	}
	return root, err
}

// Put implements [blob.Store].
func (s Blobs) Put(ctx context.Context, put *blob.Put) (out blob.Stored, err error) {
	if err := put.Check(); err != nil {
		return blob.Stored{}, err
	}
	ref := blob.RefOf(put.Data)
	err = s.WriteCold(ctx, "session "+put.SessionID+": put blob", func(c Conn) error {
		out = blob.Stored{Ref: ref, Size: int64(len(put.Data))}
		return s.put(c, put, &out)
	})
	if err != nil {
		return blob.Stored{}, err
	}
	return out, nil
}

func (s Blobs) put(c Conn, put *blob.Put, out *blob.Stored) error {
	root, err := s.root(c, put.SessionID)
	if err != nil {
		return err
	}
	if _, found, err := number(c, lockRoot, root); err != nil || !found {
		if err == nil {
			err = session.NotFound(put.SessionID)
		}
		return err
	}
	if out.Total, _, err = number(c, lockTotal, root); err != nil {
		return err
	}
	which, had, err := number(c, selectBlob, root, s.Name, out.Ref)
	if err != nil {
		return err
	}
	if !had {
		if err := put.Exceeds(out.Total + blob.Charge(out.Size)); err != nil {
			return err
		}
		if which, _, err = number(c, upsertBlob, s.Name, out.Ref, out.Size); err != nil {
			return err
		}
	}
	if !put.Elsewhere {
		if err := putPieces(c, which, put.Data); err != nil {
			return err
		}
	}
	if had {
		return nil
	}
	// Until the locks were taken, another process may have put the same blob, or the
	// first one.
	_, fresh, err := number(c, insertReference, root, which)
	if err != nil {
		return err
	}
	if !fresh {
		out.Total, _, err = number(c, selectTotal, root)
		return err
	}
	if out.Total, _, err = number(c, addTotal, root, blob.Charge(out.Size)); err != nil {
		return err
	}
	return put.Exceeds(out.Total)
}

// putPieces adds the bytes of a blob, unless they are there.
func putPieces(c Conn, which int64, data []byte) error {
	pieces := blob.Pieces(data)
	if len(pieces) == 0 {
		return nil
	}
	if n, _, err := number(c, countPieces, which); err != nil || n > 0 {
		return err
	}
	for i, piece := range pieces {
		if err := c.Exec(insertPiece, which, int64(i), piece); err != nil {
			return err
		}
	}
	return nil
}

// Get implements [blob.Store].
func (s Blobs) Get(ctx context.Context, sessionID, ref string) (data []byte, err error) {
	if err := blob.CheckGet(sessionID, ref); err != nil {
		return nil, err
	}
	var size int64
	err = s.ReadCold(ctx, "session "+sessionID+": get blob", func(c Conn) error {
		root, err := s.root(c, sessionID)
		if err != nil {
			return err
		}
		var which int64
		found, err := one(c, selectBlob, func(r Row) { which, size = r.Int64(), r.Int64() }, root, s.Name, ref)
		if err != nil {
			return err
		}
		if !found {
			return blob.NotFound(sessionID, ref)
		}
		data = make([]byte, 0, size)
		for r, err := range c.Query(selectPieces, which) {
			if err != nil {
				return err
			}
			data = append(data, r.Bytes()...)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(data) == 0 && size > 0 {
		return nil, blob.Lost(ref)
	}
	if err := blob.Verify(ref, data); err != nil {
		return nil, err
	}
	return data, nil
}

// Missing implements [blob.Store].
func (s Blobs) Missing(ctx context.Context, sessionID string, refs []string) ([]string, error) {
	refs, err := blob.CheckMissing(sessionID, refs)
	if err != nil {
		return nil, err
	}
	had := make(map[string]bool, len(refs))
	err = s.ReadCold(ctx, "session "+sessionID+": missing blobs", func(c Conn) error {
		clear(had)
		root, err := s.root(c, sessionID)
		if err != nil {
			return err
		}
		for page := range slices.Chunk(refs, missingPage) {
			args := []any{root, s.Name}
			for i := range missingPage {
				args = append(args, page[min(i, len(page)-1)])
			}
			for r, err := range c.Query(selectHad, args...) {
				if err != nil {
					return err
				}
				had[r.Text()] = true
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(refs, func(ref string) bool { return had[ref] }), nil
}

// Size implements [blob.Store].
func (s Blobs) Size(ctx context.Context, sessionID string) (size int64, err error) {
	err = s.ReadCold(ctx, "session "+sessionID+": size of blobs", func(c Conn) error {
		root, err := s.root(c, sessionID)
		if err != nil {
			return err
		}
		size, _, err = number(c, selectTotal, root)
		return err
	})
	return size, err
}

// Referenced implements [blob.Store].
func (s Blobs) Referenced(ctx context.Context, ref string) (found bool, err error) {
	if err := blob.CheckRef(ref); err != nil {
		return false, err
	}
	err = s.ReadCold(ctx, "find references to a blob", func(c Conn) error {
		_, found, err = number(c, selectReferenced, s.Name, ref)
		return err
	})
	return found, err
}

// sweepPage is how many blobs a sweep lists at a time, and sweepPages how often it does.
const (
	sweepPage  = 100
	sweepPages = 100
)

// Sweep implements [blob.Store]. Each blob is removed in a transaction of its own, so
// that others wait for a moment only.
func (s Blobs) Sweep(ctx context.Context, age time.Duration, limit int) (removed int, err error) {
	for range sweepPages {
		if removed >= limit {
			break
		}
		var (
			before time.Time
			page   []int64
		)
		err := s.ReadCold(ctx, "list unused blobs", func(c Conn) error {
			now, err := c.Now()
			if err != nil {
				return err
			}
			before, page = now.Add(-age), nil
			for r, err := range c.Query(selectUnused, before, int64(min(sweepPage, limit-removed))) {
				if err != nil {
					return err
				}
				page = append(page, r.Int64())
			}
			return nil
		})
		if err != nil || len(page) == 0 {
			return removed, err
		}
		for _, which := range page {
			gone, err := s.sweep(ctx, which, before)
			if err != nil {
				return removed, err
			}
			if gone {
				removed++
			}
		}
	}
	return removed, nil
}

// sweep removes a blob that is still unused, under the lock that a put takes.
func (s Blobs) sweep(ctx context.Context, which int64, before time.Time) (gone bool, err error) {
	err = s.WriteCold(ctx, "remove an unused blob", func(c Conn) error {
		gone = false
		if _, found, err := number(c, lockUnused, which, before); err != nil || !found {
			return err
		}
		_, used, err := number(c, selectUse, which)
		if err != nil {
			return err
		}
		if used {
			return c.Exec(markUsed, which)
		}
		gone = true
		if err := c.Exec(deletePieces, which); err != nil {
			return err
		}
		return c.Exec(deleteBlob, which)
	})
	return gone && err == nil, err
}

// CopyBlobs gives the session with the number to, a clone of the session from, the blobs
// of the tree that from belongs to.
func CopyBlobs(c Conn, from *session.State, number, to int64) error {
	if from.ParentID != "" {
		root, err := Blobs{Name: from.Tenant}.root(c, from.ID)
		if err != nil {
			return err
		}
		number = root
	}
	if err := c.Exec(copyReferences, number, to); err != nil {
		return err
	}
	return c.Exec(copyTotal, to)
}

// DropBlobs drops the blobs of sessions that are deleted.
func DropBlobs(c Conn, now time.Time, numbers ...int64) error {
	for _, session := range numbers {
		if err := c.Exec(markUnused, session, now); err != nil {
			return err
		}
		if err := c.Exec(deleteReferences, session); err != nil {
			return err
		}
		if err := c.Exec(deleteTotal, session); err != nil {
			return err
		}
	}
	return nil
}

// BlobQueries lists the queries and deletions of blobs, for tests of their plans: none
// may read a whole table.
func BlobQueries() map[string]Query {
	return map[string]Query{
		"total of blobs": selectTotal, "blob": selectBlob, "references to a blob": selectReferenced, "pieces of a blob": selectPieces,
		"blobs that a session has": selectHad, "copy blobs": copyReferences, "copy total of blobs": copyTotal, "mark unused blobs": markUnused,
		"delete blobs of a session": deleteReferences, "unused blobs": selectUnused, "lock an unused blob": lockUnused, "use of a blob": selectUse,
		"delete pieces": deletePieces, "delete a blob": deleteBlob,
	}
}
