package postgres

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

// docRow is a document's row.
type docRow struct {
	stored.Document
	found bool
}

const (
	selectDoc = `
SELECT d.doc, d.ending, d.suspended_step, d.output
FROM helix.sessions s JOIN helix.session_docs d ON d.session = s.number
WHERE s.tenant = $1 AND s.id = $2`

	upsertDoc = `
INSERT INTO helix.session_docs (session, doc, ending, suspended_step, output) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (session) DO UPDATE
SET doc = excluded.doc, ending = excluded.ending, suspended_step = excluded.suspended_step, output = excluded.output`
)

func (s *sessions) askDoc(t *tx, id string) *docRow {
	row := &docRow{}
	t.ask(func(rows pgx.Rows) error {
		row.found = true
		return rows.Scan(&row.Doc, &row.Ending, &row.SuspendedStep, &row.Output)
	}, selectDoc, s.tenant, id)
	return row
}

// fill adds the fields that are not columns of the row to h.
func (r *docRow) fill(h *header) error {
	if !r.found {
		return session.ErrCorrupt.WithMessage("session %s: the document is missing", h.ID)
	}
	return r.Fill(&h.State)
}

// writeDoc queues the row of a complete document.
func (s *sessions) writeDoc(t *tx, h *header) error {
	row, err := stored.EncodeDocument(&h.State)
	if err != nil {
		return err
	}
	t.exec(upsertDoc, h.number, row.Doc, row.Ending, row.SuspendedStep, row.Output)
	return nil
}

const updateDoc = `
UPDATE helix.session_docs SET doc = $2 WHERE session = $1`

// moveMarks records where the markers are after a change, which is about to be
// applied to the messages. A session that is yet to be inserted has no row.
func (s *sessions) moveMarks(ctx context.Context, t *tx, h *header, c *session.Change) error {
	row := s.askDoc(t, h.ID)
	if err := t.flush(ctx); err != nil {
		return err
	}
	is := session.State{ID: h.ID}
	if row.found {
		if err := row.Fill(&is); err != nil {
			return err
		}
	}
	was := len(is.Marks)
	is.Marks = is.Marks.After(h.MessageCount, c)
	h.Marks = is.Marks
	if !row.found || (was == 0 && len(is.Marks) == 0) {
		return nil
	}
	doc, err := stored.EncodeDocument(&is)
	if err != nil {
		return err
	}
	t.exec(updateDoc, h.number, doc.Doc)
	return nil
}

const (
	selectTags = `
SELECT s.id, x.tag
FROM helix.sessions s JOIN helix.session_tags x ON x.session = s.number
WHERE s.tenant = $1 AND s.id = ANY ($2::text[])
ORDER BY s.id, x.position`

	selectMetadata = `
SELECT s.id, x.name, x.value
FROM helix.sessions s JOIN helix.session_metadata x ON x.session = s.number
WHERE s.tenant = $1 AND s.id = ANY ($2::text[])`

	insertTags = `
INSERT INTO helix.session_tags (session, tenant, session_id, position, tag, created_at)
SELECT $1, $2, $3, x.n, x.tag, $5 FROM unnest($4::text[]) WITH ORDINALITY x(tag, n)`

	upsertMetadata = `
INSERT INTO helix.session_metadata (session, tenant, session_id, name, value, created_at)
SELECT $1, $2, $3, x.name, x.value, $6 FROM unnest($4::text[], $5::text[]) x(name, value)
ON CONFLICT (session, name) DO UPDATE SET value = excluded.value`
)

// labels are the tags and metadata of some sessions.
type labels struct {
	tags     map[string][]string
	metadata map[string]map[string]string
}

func (s *sessions) askLabels(t *tx, ids ...string) *labels {
	out := &labels{map[string][]string{}, map[string]map[string]string{}}
	t.ask(func(rows pgx.Rows) error {
		var id, tag string
		err := rows.Scan(&id, &tag)
		out.tags[id] = append(out.tags[id], tag)
		return err
	}, selectTags, s.tenant, ids)
	t.ask(func(rows pgx.Rows) error {
		var id, name, value string
		err := rows.Scan(&id, &name, &value)
		if out.metadata[id] == nil {
			out.metadata[id] = map[string]string{}
		}
		out.metadata[id][name] = value
		return err
	}, selectMetadata, s.tenant, ids)
	return out
}

// writeLabels queues a session's tags and metadata. Tags must not repeat, or
// listings would show the session twice. Labels have the session's creation time,
// by which listings order them.
func (s *sessions) writeLabels(t *tx, h *header, tags []string, metadata map[string]string) {
	if len(tags) > 0 {
		t.exec(insertTags, h.number, s.tenant, h.ID, tags, when(h.CreatedAt))
	}
	if len(metadata) == 0 {
		return
	}
	names := slices.Sorted(maps.Keys(metadata))
	values := make([]string, len(names))
	for i, name := range names {
		values[i] = metadata[name]
	}
	t.exec(upsertMetadata, h.number, s.tenant, h.ID, names, values, when(h.CreatedAt))
}

func (s *sessions) deleteLabels(t *tx, h *header) {
	t.exec("DELETE FROM helix.session_tags WHERE session = $1", h.number)
	t.exec("DELETE FROM helix.session_metadata WHERE session = $1", h.number)
}
