package wire

import (
	"bytes"
	"encoding/json"

	"github.com/helixagents/helix/session"
)

// Messages is what a turn begins with. In JSON it is a text or a list of messages.
type Messages []UserMessage

// UserMessage is a message of the user. It has text and files; everything else that
// is known of a message is the server's to say.
type UserMessage struct {
	// ID names the message in its session, in at most 256 bytes. When empty, the
	// server chooses one. Ids of the forms that it chooses for messages are refused.
	ID string `json:"id,omitempty"`
	// Role is "user", also when empty.
	Role session.Role `json:"role,omitempty"`
	// Parts are the message's texts and files, in order.
	Parts []UserPart `json:"parts"`
}

// UserPart is a text or a file.
type UserPart struct {
	// Kind is "text" or "file".
	Kind session.PartKind `json:"kind"`
	// Text is the content of a text part.
	Text string `json:"text,omitempty"`
	// URL is that of a file. It begins with data: or https:
	URL string `json:"url,omitempty"`
	// MediaType is the file's, such as "image/png".
	MediaType string `json:"mediaType,omitempty"`
	Filename  string `json:"filename,omitempty"`
}

// Text is one message that has a text.
func Text(text string) Messages {
	return Messages{{Role: session.RoleUser, Parts: []UserPart{{Kind: session.PartText, Text: text}}}}
}

// FromMessage is a message as it can be sent. One that is not the user's, or that
// has more than text and files, is refused.
func FromMessage(m *session.Message) (UserMessage, error) {
	out := UserMessage{ID: m.ID, Role: session.RoleUser, Parts: make([]UserPart, len(m.Parts))}
	switch {
	case m.Role != session.RoleUser && m.Role != "":
		return out, session.Invalid("message role", "is %q, and only a user's message can be sent", m.Role)
	case len(m.Metadata) > 0 || len(m.Extra) > 0:
		return out, session.Invalid("message metadata", "cannot be sent to a server")
	}
	for i := range m.Parts {
		p := &m.Parts[i]
		if p.Kind != session.PartText && p.Kind != session.PartFile {
			return out, session.Invalid("message part kind", "is %q, and only texts and files can be sent", p.Kind)
		}
		out.Parts[i] = UserPart{Kind: p.Kind, Text: p.Text, URL: p.URL, MediaType: p.MediaType, Filename: p.Filename}
	}
	return out, nil
}

// Message is the message as a session keeps it.
func (m *UserMessage) Message() session.Message {
	out := session.Message{ID: m.ID, Role: session.RoleUser, Parts: make([]session.Part, len(m.Parts))}
	for i, p := range m.Parts {
		out.Parts[i] = session.Part{Kind: p.Kind, Text: p.Text, URL: p.URL, MediaType: p.MediaType, Filename: p.Filename}
	}
	return out
}

// UnmarshalJSON implements [json.Unmarshaler]. It is for those who read what they
// trust: a server reads bodies with limits.
func (m *Messages) UnmarshalJSON(data []byte) error {
	data = bytes.TrimLeft(data, " \t\r\n")
	if len(data) > 0 && data[0] == '"' {
		var text string
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
		*m = Text(text)
		return nil
	}
	var list []UserMessage
	if err := json.Unmarshal(data, &list); err != nil {
		return session.Invalid("message", "must be a text or a list of messages: %v", err)
	}
	*m = list
	return nil
}
