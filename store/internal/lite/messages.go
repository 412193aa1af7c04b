package lite

import (
	"context"
	"fmt"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

const insertMessage = `
INSERT INTO messages (key, message_id, calls, body) VALUES (?, ?, ?, ?)`

func (s *sessions) insertMessages(t *Tx, h *header, rows []stored.Message) error {
	for i := range rows {
		_, err := t.Exec(insertMessage, rowKey(h.number, int64(h.MessageCount+1)), rows[i].ID, rows[i].Calls, rows[i].Body)
		if s.b.IsDuplicate(err) {
			return session.Invalid("message id", "%q is already in the session's transcript", rows[i].ID)
		}
		if err != nil {
			return err
		}
		h.MessageCount++
	}
	return nil
}

const selectMessages = `
SELECT key, message_id, body FROM messages
WHERE key > ? AND key <= ?
ORDER BY key LIMIT ?`

// messages reads up to limit messages after a number, as many as fit the page.
func (s *sessions) messages(ctx context.Context, c Conn, h *header, after, limit int, fits session.PageRequest) ([]session.Message, error) {
	out := make([]session.Message, 0, min(limit, 1024))
	var size int64
	for r, err := range c.Query(selectMessages, rowKey(h.number, int64(after)), lastKey(h.number), limit) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		number, messageID, body := r.Int64()-rowKey(h.number, 0), r.Text(), r.Bytes()
		if size += int64(len(body)); !fits.Fits(len(out), size) {
			break
		}
		var m session.Message
		if err := session.Decode(fmt.Sprintf("session %s: message %d (%s)", h.ID, number, messageID), body, &m); err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// Messages implements [session.Transcripts]. Messages are numbered without gaps,
// so the position of a page is known without counting.
func (s *sessions) Messages(ctx context.Context, id string, request session.PageRequest) (page session.Page[session.Message], err error) {
	err = s.read(ctx, id, "list messages", func(c Conn, h *header) error {
		var after int
		if page, after, err = stored.DensePage[session.Message](request, h.MessageCount); err != nil {
			return err
		}
		if page.Items, err = s.messages(ctx, c, h, after, page.Limit, request); err != nil {
			return err
		}
		stored.FinishDense(&page, h.MessageCount)
		return nil
	})
	return page, err
}

// AllMessages implements [session.Transcripts].
func (s *sessions) AllMessages(ctx context.Context, id string) ([]session.Message, error) {
	return s.MessagesFrom(ctx, id, 1)
}

// MessagesFrom implements [session.Transcripts].
func (s *sessions) MessagesFrom(ctx context.Context, id string, number int) (out []session.Message, err error) {
	err = s.read(ctx, id, "read messages", func(c Conn, h *header) error {
		after := min(max(number, 1)-1, h.MessageCount)
		out, err = s.messages(ctx, c, h, after, h.MessageCount-after, session.PageRequest{})
		return err
	})
	return out, err
}

// moveMarks records where the markers are after a change, which is about to be
// applied to the messages.
func (s *sessions) moveMarks(t *Tx, h *header, c *session.Change) error {
	if !c.MovesMarks() {
		return nil
	}
	if err := s.loadDoc(t.Conn, h); err != nil {
		return err
	}
	h.Marks = h.Marks.After(h.MessageCount, c)
	return s.writeDoc(t, h)
}
