package memory

import (
	"context"
	"slices"
	"time"

	"github.com/helixagents/helix/session"
)

// message is a stored message: its persisted bytes, and the fields that the store
// itself needs. It never changes.
type message struct {
	id    string
	role  session.Role
	calls []string // the calls it makes
	raw   []byte
}

func encodeMessage(m *session.Message) (*message, error) {
	raw, err := session.Encode(m)
	if err != nil {
		return nil, session.ErrInvalid.WithCause(err, "message %s cannot be stored", m.ID)
	}
	out := &message{id: m.ID, role: m.Role, raw: raw}
	for i := range m.Parts {
		if m.Parts[i].Kind == session.PartToolCall {
			out.calls = append(out.calls, m.Parts[i].CallID)
		}
	}
	return out, nil
}

func encodeMessages(messages []session.Message) ([]*message, error) {
	out := make([]*message, len(messages))
	for i := range messages {
		var err error
		if out[i], err = encodeMessage(&messages[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (m *message) decode() (session.Message, error) {
	var out session.Message
	err := session.Decode("message "+m.id, m.raw, &out)
	return out, err
}

func decodeMessages(stored []*message) ([]session.Message, error) {
	out := make([]session.Message, len(stored))
	for i := range stored {
		var err error
		if out[i], err = stored[i].decode(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Messages implements [session.Transcripts].
func (s *sessions) Messages(ctx context.Context, id string, req session.PageRequest) (session.Page[session.Message], error) {
	stored, err := s.transcript(ctx, id)
	if err != nil {
		return session.Page[session.Message]{}, err
	}
	// A message's position is its number, from 1.
	start, err := req.Start(len(stored))
	if err != nil {
		return session.Page[session.Message]{}, err
	}
	end := start
	for size := int64(0); end < min(start+req.Size(), len(stored)); end++ {
		if size += int64(len(stored[end].raw)); !req.Fits(end-start, size) {
			break
		}
	}
	items, err := decodeMessages(stored[start:end])
	if err != nil {
		return session.Page[session.Message]{}, err
	}
	page := newPage(req, items, end < len(stored), session.Position{N: int64(end)})
	page.Offset = start
	if req.Total {
		page.Total = new(len(stored))
	}
	return page, nil
}

// AllMessages implements [session.Transcripts].
func (s *sessions) AllMessages(ctx context.Context, id string) ([]session.Message, error) {
	return s.MessagesFrom(ctx, id, 1)
}

// MessagesFrom implements [session.Transcripts].
func (s *sessions) MessagesFrom(ctx context.Context, id string, number int) ([]session.Message, error) {
	stored, err := s.transcript(ctx, id)
	if err != nil {
		return nil, err
	}
	return decodeMessages(stored[min(max(number, 1)-1, len(stored)):])
}

// transcript returns the session's current messages. They can be read outside the
// lock: later messages are appended after them, and truncation makes the next
// append allocate a new array.
func (s *sessions) transcript(ctx context.Context, id string) ([]*message, error) {
	rec, err := s.view(ctx, id)
	if err != nil {
		return nil, err
	}
	defer s.b.mu.RUnlock()
	return rec.messages, nil
}

func (r *record) append(messages ...*message) {
	r.messages = append(r.messages, messages...)
	r.state.MessageCount = len(r.messages)
	if r.messageIDs == nil {
		r.messageIDs = map[string]bool{}
	}
	for _, m := range messages {
		if m.id != "" {
			r.messageIDs[m.id] = true
		}
	}
}

// checkNew returns an error if a message's id would occur twice in the transcript
// after it is truncated to its first keep messages and the lists are added.
func (r *record) checkNew(keep int, lists ...[]*message) error {
	dropped, added := map[string]bool{}, map[string]bool{}
	for _, m := range r.messages[keep:] {
		dropped[m.id] = true
	}
	for _, messages := range lists {
		for _, m := range messages {
			if m.id == "" {
				continue
			}
			if added[m.id] || (r.messageIDs[m.id] && !dropped[m.id]) {
				return session.Invalid("message id", "%q is already in the transcript", m.id)
			}
			added[m.id] = true
		}
	}
	return nil
}

// truncate keeps the first messages and ends whatever depends on the others:
// checkpoints that count more messages, calls, waits and children. A wait for a
// message that is not in the transcript could never be consumed.
func (r *record) truncate(keep int, now time.Time) {
	dropped := r.messages[keep:]
	for i := range dropped {
		delete(r.messageIDs, dropped[i].id)
	}
	r.messages = r.messages[:keep:keep] // appending must not overwrite the messages that readers have
	r.state.MessageCount = keep
	r.undoCheckpoints(keep)

	undone := map[string]bool{} // calls of dropped messages
	for i := range dropped {
		for _, callID := range dropped[i].calls {
			undone[callID] = true
		}
	}
	for messageID := range r.calls {
		if !r.holds(messageID) {
			delete(r.calls, messageID)
		}
	}
	for _, p := range r.pending.open {
		if !r.holds(p.MessageID) {
			p.State = session.PendingSuperseded
		}
	}
	r.pending.refilter()
	for _, c := range r.children.list {
		if undone[c.ref.CallID] || (c.ref.Awaited && !r.makes(c.ref.CallID)) {
			c.change(func(ref *session.ChildRef) {
				ref.Status, ref.Awaited, ref.UpdatedAt = session.ChildSuperseded, false, now
			})
		}
	}
}

// holds reports whether the message is in the transcript. It searches from the
// end, where the requested messages usually are.
func (r *record) holds(messageID string) bool {
	for _, m := range slices.Backward(r.messages) {
		if m.id == messageID {
			return messageID != ""
		}
	}
	return false
}

// makes reports whether a message of the transcript makes the call.
func (r *record) makes(callID string) bool {
	for _, m := range slices.Backward(r.messages) {
		if slices.Contains(m.calls, callID) {
			return true
		}
	}
	return false
}

// openMessage returns the assistant message that the step in flight may still be
// working on: the last one that is followed only by results.
func (r *record) openMessage() string {
	for _, m := range slices.Backward(r.messages) {
		switch m.role {
		case session.RoleTool:
		case session.RoleAssistant:
			return m.id
		default:
			return ""
		}
	}
	return ""
}
