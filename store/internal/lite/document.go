package lite

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/helixagents/helix/session"
)

// docRow is the part of a document that has no columns. The output is separate so
// that it keeps its bytes.
type docRow struct {
	doc    []byte
	output []byte
}

const selectDoc = `
SELECT doc, output FROM session_docs WHERE session = ?`

// loadDoc reads the fields that are not columns of the row into h.
func (s *sessions) loadDoc(c Conn, h *header) error {
	if h.doc != nil {
		return nil
	}
	r, err := c.One(selectDoc, h.number)
	if err != nil {
		return err
	}
	if r == nil {
		return session.ErrCorrupt.WithMessage("session %s: the document is missing", h.ID)
	}
	row := &docRow{doc: r.Bytes(), output: r.Bytes()}
	var rest session.State
	if err := session.Decode("session "+h.ID, row.doc, &rest); err != nil {
		return err
	}
	h.setDoc(&rest)
	h.Output = row.output
	h.doc = row
	return nil
}

// setDoc copies the fields that the document row contains.
func (h *header) setDoc(from *session.State) {
	h.Output, h.Error, h.FailureReason, h.Interrupt = from.Output, from.Error, from.FailureReason, from.Interrupt
	h.SuspendedStep, h.Tracing, h.WorkspaceRef = from.SuspendedStep, from.Tracing, from.WorkspaceRef
	h.Mode, h.Marks, h.Extra = from.Mode, from.Marks, from.Extra
}

const upsertDoc = `
INSERT INTO session_docs (session, doc, output) VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET doc = excluded.doc, output = excluded.output`

// writeDoc stores the fields that are not columns, if they were loaded and have
// changed.
func (s *sessions) writeDoc(t *Tx, h *header) error {
	if h.doc == nil {
		return nil
	}
	rest := session.State{
		Error: h.Error, FailureReason: h.FailureReason, Interrupt: h.Interrupt, SuspendedStep: h.SuspendedStep,
		Tracing: h.Tracing, WorkspaceRef: h.WorkspaceRef, Mode: h.Mode, Marks: h.Marks, Extra: h.Extra,
	}
	doc, err := session.Encode(&rest)
	if err != nil {
		return session.ErrInvalid.WithCause(err, "session %s cannot be encoded", h.ID)
	}
	if bytes.Equal(doc, h.doc.doc) && bytes.Equal(h.Output, h.doc.output) {
		return nil
	}
	h.doc = &docRow{doc: doc, output: h.Output}
	_, err = t.Exec(upsertDoc, h.number, doc, h.Output)
	return err
}

const (
	selectTags = `
SELECT tag FROM session_tags WHERE tenant = ? AND session_id = ? ORDER BY position`

	selectMetadata = `
SELECT name, value FROM session_metadata WHERE tenant = ? AND session_id = ?`

	insertTag = `
INSERT INTO session_tags (tenant, session_id, position, tag, created_at) VALUES (?, ?, ?, ?, ?)`

	upsertMetadata = `
INSERT INTO session_metadata (tenant, session_id, name, value, created_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET value = excluded.value`

	deleteMetadata = `
DELETE FROM session_metadata WHERE tenant = ? AND session_id = ? AND name = ?`
)

// labels reads a session's tags and metadata.
func (s *sessions) labels(c Conn, id string) (tags []string, metadata map[string]string, err error) {
	for r, err := range c.Query(selectTags, s.tenant, id) {
		if err != nil {
			return nil, nil, err
		}
		tags = append(tags, r.Text())
	}
	for r, err := range c.Query(selectMetadata, s.tenant, id) {
		if err != nil {
			return nil, nil, err
		}
		if metadata == nil {
			metadata = map[string]string{}
		}
		name := r.Text()
		metadata[name] = r.Text()
	}
	return tags, metadata, nil
}

// writeLabels adds a session's tags and sets metadata. Tags must not repeat, or
// listings would show the session twice. Labels have the session's creation time,
// by which listings order them.
func (s *sessions) writeLabels(t *Tx, id string, tags []string, metadata map[string]string, created time.Time) error {
	for i, tag := range tags {
		if _, err := t.Exec(insertTag, s.tenant, id, i, tag, created); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(metadata)) {
		if _, err := t.Exec(upsertMetadata, s.tenant, id, name, metadata[name], created); err != nil {
			return err
		}
	}
	return nil
}

func (s *sessions) deleteLabels(t *Tx, id string) error {
	if _, err := t.Exec("DELETE FROM session_tags WHERE tenant = ? AND session_id = ?", s.tenant, id); err != nil {
		return err
	}
	_, err := t.Exec("DELETE FROM session_metadata WHERE tenant = ? AND session_id = ?", s.tenant, id)
	return err
}
