package redis

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

// encodeMessage returns a message's body, and what the store itself needs of it:
// its id, its role and the calls it makes.
func encodeMessage(m *session.Message) (id, meta string, body []byte, err error) {
	size := 256 // an estimate, so that it need not grow
	for i := range m.Parts {
		size += len(m.Parts[i].Text) + len(m.Parts[i].Input)
	}
	if body, err = m.AppendJSON(make([]byte, 0, size)); err != nil {
		return "", "", nil, session.ErrInvalid.WithCause(err, "message %s cannot be stored", m.ID)
	}
	return m.ID, messageMeta(m), body, nil
}

// messageMeta returns what the store itself needs of a message.
func messageMeta(m *session.Message) string {
	var meta strings.Builder
	meta.WriteString(m.ID + "\x00" + string(m.Role))
	for i := range m.Parts {
		if m.Parts[i].Kind == session.PartToolCall {
			meta.WriteString("\x00" + m.Parts[i].CallID)
		}
	}
	return meta.String()
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
	page, after, err := stored.DensePage[session.Message](request, v.header.MessageCount)
	if err != nil {
		return page, err
	}
	q := query()
	q.do("page", keyMessages, after, page.Limit, max(request.MaxBytes, 0))
	if v, err = s.read(ctx, id, "list messages", q); err != nil {
		return page, err
	}
	if page.Items, err = decodeMessages(id, after+1, list(v.parts[0])); err != nil {
		return session.Page[session.Message]{}, err
	}
	stored.FinishDense(&page, v.header.MessageCount)
	return page, nil
}

// A transcript is read in parts of a bounded number of messages and bytes, because
// one read should not occupy the server or the connection for long.
const (
	partMessages = 500
	partBytes    = 1 << 20
)

// maxReadings is how often a transcript is read from its beginning because the
// session has changed in the meantime, before it is read in one part.
const maxReadings = 5

// AllMessages implements [session.Transcripts].
func (s *sessions) AllMessages(ctx context.Context, id string) ([]session.Message, error) {
	return s.MessagesFrom(ctx, id, 1)
}

// MessagesFrom implements [session.Transcripts].
func (s *sessions) MessagesFrom(ctx context.Context, id string, number int) ([]session.Message, error) {
	after := min(max(number, 1)-1, math.MaxInt32)
	for range maxReadings {
		messages, whole, err := s.readMessages(ctx, id, after, partMessages, partBytes)
		if err != nil || whole {
			return messages, err
		}
	}
	messages, _, err := s.readMessages(ctx, id, after, math.MaxInt32, math.MaxInt64/2)
	return messages, err
}

// readMessages reads a transcript after a number, in parts; whole says whether all of
// them belong to one version.
func (s *sessions) readMessages(ctx context.Context, id string, after, count, size int) (messages []session.Message, whole bool, err error) {
	var first *header
	messages = []session.Message{}
	for {
		q := query()
		q.do("part", keyMessages, after+len(messages), count, size)
		v, err := s.read(ctx, id, "read messages", q)
		if err != nil {
			return nil, false, err
		}
		if first == nil {
			first = v.header
		}
		if v.header.raw["born"] != first.raw["born"] || v.header.Version != first.Version {
			return nil, false, nil
		}
		part, err := decodeMessages(id, after+len(messages)+1, list(v.parts[0]))
		if err != nil {
			return nil, false, err
		}
		if messages = append(messages, part...); len(part) == 0 || after+len(messages) >= first.MessageCount {
			return messages, true, nil
		}
	}
}

// messageID returns the id in a message's metadata.
func messageID(meta string) string {
	id, _, _ := strings.Cut(meta, "\x00")
	return id
}
