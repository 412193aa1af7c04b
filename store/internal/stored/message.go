package stored

import "github.com/helixagents/helix/session"

// Message is the row of a message.
type Message struct {
	ID    string
	Calls []byte // the ids of the calls it makes, so that a rewind need not decode it
	Body  []byte
}

// EncodeMessages encodes messages in their order.
func EncodeMessages(messages []session.Message) ([]Message, error) {
	rows := make([]Message, len(messages))
	for i := range messages {
		row, err := EncodeMessage(&messages[i])
		if err != nil {
			return nil, err
		}
		rows[i] = *row
	}
	return rows, nil
}

// EncodeMessage encodes a message.
func EncodeMessage(m *session.Message) (*Message, error) {
	body, err := session.Encode(m)
	if err != nil {
		return nil, session.ErrInvalid.WithCause(err, "message %s cannot be encoded", m.ID)
	}
	row := &Message{ID: m.ID, Body: body}
	for i := range m.Parts {
		if m.Parts[i].Kind == session.PartToolCall {
			between := byte(',')
			if row.Calls == nil {
				between = '['
			}
			row.Calls = append(row.Calls, between)
			row.Calls = session.AppendString(row.Calls, m.Parts[i].CallID)
		}
	}
	if row.Calls != nil {
		row.Calls = append(row.Calls, ']')
	}
	return row, nil
}
