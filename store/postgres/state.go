package postgres

import (
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/session"
)

// selectState reads the last snapshot up to a version, or up to the session's
// version if that is NULL, and the writes since.
const selectState = `
WITH s AS (
    SELECT number, coalesce($3::bigint, version) AS version FROM helix.sessions WHERE tenant = $1 AND id = $2
),
base AS (
    SELECT x.version, x.body
    FROM s, LATERAL (
        SELECT p.version, p.body FROM helix.state_snapshots p
        WHERE p.session = s.number AND p.version <= s.version
        ORDER BY p.version DESC
        LIMIT 1
    ) x
)
SELECT true, version, body FROM base
UNION ALL
SELECT false, l.version, l.body
FROM s JOIN helix.state_log l
  ON l.session = s.number AND l.version > coalesce((SELECT version FROM base), 0) AND l.version <= s.version
ORDER BY version`

// rebuilt is custom state that is being rebuilt from its rows.
type rebuilt struct {
	doc session.CustomState
	err error
	// snapshot and delta are the sizes of the snapshot and of the writes since.
	snapshot, delta int64
}

// askState queues the query of custom state at a version, nil for the latest.
func (s *sessions) askState(t *tx, id string, version any) *rebuilt {
	out := &rebuilt{}
	t.ask(func(rows pgx.Rows) error { return out.scan(id, rows) }, selectState, s.tenant, id, version)
	return out
}

// scan adds a row. An error of decoding is recorded, because other queries may
// share the transaction.
func (r *rebuilt) scan(id string, rows pgx.Rows) error {
	var (
		snapshot bool
		version  int64
		body     []byte
	)
	if err := rows.Scan(&snapshot, &version, &body); err != nil || r.err != nil {
		return err
	}
	name := fmt.Sprintf("session %s: custom state at version %d", id, version)
	if snapshot {
		r.snapshot = int64(len(body))
		r.err = session.Decode(name, body, &r.doc)
		return nil
	}
	r.delta += int64(len(body))
	var w session.Writes
	if r.err = session.Decode(name, body, &w); r.err == nil {
		r.err = r.apply(id, w)
	}
	return nil
}

func (r *rebuilt) apply(id string, w session.Writes) error {
	if err := r.doc.Apply(w); err != nil {
		return session.ErrCorrupt.WithCause(err, "session %s: custom state cannot be rebuilt", id)
	}
	return nil
}

const (
	insertSnapshot = `
INSERT INTO helix.state_snapshots (session, version, body) VALUES ($1, $2, $3)`

	insertKeys = `
INSERT INTO helix.state_keys (session, digest, is_list)
SELECT $1, k.digest, k.is_list FROM unnest($2::bytea[], $3::boolean[]) k(digest, is_list)`
)

// writeWhole queues the replacement of custom state at a version.
func (s *sessions) writeWhole(t *tx, h *header, version int64, doc *session.CustomState) error {
	body, err := doc.MarshalJSON()
	if err != nil {
		return session.ErrInvalid.WithCause(err, "session %s: custom state cannot be encoded", h.ID)
	}
	var (
		keys  []string
		lists []bool
	)
	for name := range doc.All() {
		keys, lists = append(keys, name), append(lists, session.IsList(doc.Peek(name)))
	}
	t.exec("DELETE FROM helix.state_keys WHERE session = $1", h.number)
	t.exec(insertKeys, h.number, digests(keys), lists)
	t.exec(insertSnapshot, h.number, version, body)
	h.snapshotBytes, h.deltaBytes = int64(len(body)), 0
	return nil
}
