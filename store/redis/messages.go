package redis

import (
	"context"
	"fmt"
	"strings"

	"github.com/helixagents/helix/session"
)

// encodeMessage gives a message's body, and what the store itself must know of it:
// its id, its role and the calls it makes.
func encodeMessage(m *session.Message) (id, meta string, body []byte, err error) {
	size := 256 // about, so that it need not grow
	for i := range m.Parts {
		size += len(m.Parts[i].Text) + len(m.Parts[i].Input)
	}
	if body, err = m.AppendJSON(make([]byte, 0, size)); err != nil {
		return "", "", nil, session.ErrInvalid.WithCause(err, "message %s cannot be stored", m.ID)
	}
	meta = m.ID + "\x00" + string(m.Role)
	for i := range m.Parts {
		if m.Parts[i].Kind == session.PartToolCall {
			meta += "\x00" + m.Parts[i].CallID
		}
	}
	return m.ID, meta, body, nil
}

func decodeMessages(id string, first int, bodies []any) ([]session.Message, error) {
	out := make([]session.Message, len(bodies))
	for i, body := range bodies {
		if err := session.Decode(fmt.Sprintf("session %s: message %d", id, first+i), []byte(text(body)), &out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Messages implements [session.Transcripts].
func (s *sessions) Messages(ctx context.Context, id string, request session.PageRequest) (page session.Page[session.Message], err error) {
	v, err := s.read(ctx, id, "list messages", query())
	if err != nil {
		return page, err
	}
	page, after, err := densePage[session.Message](request, v.header.MessageCount)
	if err != nil {
		return page, err
	}
	q := query()
	q.do("range", keyMessages, keyMessages, after, after+page.Limit-1)
	if v, err = s.read(ctx, id, "list messages", q); err != nil {
		return page, err
	}
	if page.Items, err = decodeMessages(id, after+1, list(v.parts[0])); err != nil {
		return session.Page[session.Message]{}, err
	}
	finishDense(&page, v.header.MessageCount)
	return page, nil
}

// AllMessages implements [session.Transcripts].
func (s *sessions) AllMessages(ctx context.Context, id string) ([]session.Message, error) {
	q := query()
	q.do("range", keyMessages, keyMessages, 0, -1)
	v, err := s.read(ctx, id, "read messages", q)
	if err != nil {
		return nil, err
	}
	return decodeMessages(id, 1, list(v.parts[0]))
}

// MessageCount implements [session.Transcripts].
func (s *sessions) MessageCount(ctx context.Context, id string) (int, error) {
	v, err := s.read(ctx, id, "count messages", query())
	if err != nil {
		return 0, err
	}
	return v.header.MessageCount, nil
}

// AppendMessages implements [session.Transcripts].
func (s *sessions) AppendMessages(ctx context.Context, id string, messages []session.Message) (session.Committed, error) {
	return s.changeDirectly(ctx, id, "append messages", &session.Change{Messages: messages})
}

// TruncateMessages implements [session.Transcripts].
func (s *sessions) TruncateMessages(ctx context.Context, id string, keep int) (session.Committed, error) {
	return s.changeDirectly(ctx, id, "truncate messages", &session.Change{KeepMessages: &keep})
}

// densePage begins a page of items numbered 1 to total without gaps: after is the
// number before its first.
func densePage[T any](request session.PageRequest, total int) (page session.Page[T], after int, err error) {
	if after, err = request.Start(total); err != nil {
		return page, 0, err
	}
	page = session.Page[T]{Items: []T{}, Offset: after, Limit: request.Size()}
	if request.Total {
		page.Total = &total
	}
	return page, after, nil
}

// finishDense says whether and where a page goes on.
func finishDense[T any](page *session.Page[T], total int) {
	if last := page.Offset + len(page.Items); last < total && len(page.Items) > 0 {
		page.HasMore = true
		page.Next = session.Position{N: int64(last)}.Cursor()
	}
}

// messageID is the id in what the store knows of a message.
func messageID(meta string) string {
	id, _, _ := strings.Cut(meta, "\x00")
	return id
}
