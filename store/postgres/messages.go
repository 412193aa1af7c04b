package postgres

import (
	"context"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

// columns converts rows to the arrays that a statement takes.
func columns(rows []stored.Message) (ids []string, calls, bodies [][]byte) {
	ids, calls, bodies = make([]string, len(rows)), make([][]byte, len(rows)), make([][]byte, len(rows))
	for i := range rows {
		ids[i], calls[i], bodies[i] = rows[i].ID, rows[i].Calls, rows[i].Body
	}
	return ids, calls, bodies
}

const selectDuplicate = `
SELECT m.message_id
FROM helix.sessions s JOIN helix.messages m ON m.session = s.number AND m.message_id = ANY ($3) AND m.message_id <> ''
WHERE s.tenant = $1 AND s.id = $2
ORDER BY m.number
LIMIT 1`

// duplicate returns the error for messages of which one is already in the
// transcript.
func (s *sessions) duplicate(ctx context.Context, id string, ids []string) error {
	found := ids[0]
	err := s.b.query(ctx, what(id, "find a message"), func(rows pgx.Rows) error { return rows.Scan(&found) },
		selectDuplicate, s.tenant, id, ids)
	if err != nil {
		return err
	}
	return duplicateMessage(found)
}

const selectMessages = `
SELECT s.message_count, m.number, m.message_id, m.body
FROM helix.sessions s
LEFT JOIN LATERAL (
    SELECT m.number, m.message_id, m.body
    FROM helix.messages m
    WHERE m.session = s.number AND m.number > least($3, s.message_count)
    ORDER BY m.number
    LIMIT $4
) m ON true
WHERE s.tenant = $1 AND s.id = $2
ORDER BY m.number`

// selectMessagesWithin is selectMessages for messages that fit into a number of
// bytes, at least one. The server knows the length of a body without reading it.
const selectMessagesWithin = `
SELECT s.message_count, m.number, m.message_id, m.body
FROM helix.sessions s
LEFT JOIN LATERAL (
    SELECT m.number, m.message_id, m.body, sum(length(m.body)) OVER (ORDER BY m.number) AS size
    FROM (
        SELECT m.number, m.message_id, m.body
        FROM helix.messages m
        WHERE m.session = s.number AND m.number > least($3, s.message_count)
        ORDER BY m.number
        LIMIT $4
    ) m
) m ON m.size <= $5::bigint OR m.size = length(m.body)
WHERE s.tenant = $1 AND s.id = $2
ORDER BY m.number`

// messages reads up to limit messages after a number, or all, as many as fit the
// page, and the session's number of messages.
func (s *sessions) messages(ctx context.Context, id, verb string, after int, limit any, fits session.PageRequest) (out []session.Message, total int, err error) {
	query, args := selectMessages, []any{after, limit}
	if fits.MaxBytes > 0 {
		query, args = selectMessagesWithin, append(args, fits.MaxBytes)
	}
	out = []session.Message{}
	err = s.list(ctx, id, verb, func(rows pgx.Rows) error {
		var (
			number    *int
			messageID string
			body      []byte
		)
		if err := rows.Scan(&total, &number, word{&messageID}, &body); err != nil || number == nil {
			return err
		}
		var m session.Message
		if err := session.Decode(fmt.Sprintf("session %s: message %d (%s)", id, *number, messageID), body, &m); err != nil {
			return err
		}
		out = append(out, m)
		return nil
	}, query, args...)
	return out, total, err
}

// Messages implements [session.Transcripts]. Messages are numbered without gaps,
// so the position of a page is known without counting.
func (s *sessions) Messages(ctx context.Context, id string, request session.PageRequest) (page session.Page[session.Message], err error) {
	after, err := firstOf(request)
	if err != nil {
		return page, err
	}
	items, total, err := s.messages(ctx, id, "list messages", after, request.Size(), request)
	if err != nil {
		return page, err
	}
	page = session.Page[session.Message]{Items: items, Limit: request.Size()}
	finishDense(&page, request, min(after, total), total)
	return page, nil
}

// AllMessages implements [session.Transcripts].
func (s *sessions) AllMessages(ctx context.Context, id string) ([]session.Message, error) {
	return s.MessagesFrom(ctx, id, 1)
}

// MessagesFrom implements [session.Transcripts].
func (s *sessions) MessagesFrom(ctx context.Context, id string, number int) ([]session.Message, error) {
	out, _, err := s.messages(ctx, id, "read messages", min(max(number, 1)-1, math.MaxInt32), nil, session.PageRequest{})
	if err != nil {
		return nil, err
	}
	return out, nil
}
