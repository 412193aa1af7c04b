package wire

import (
	"bytes"
	"encoding/json"

	"github.com/helixagents/helix/session"
)

// Messages start a turn. In JSON they are a string or a list of messages.
type Messages []UserMessage

// UserMessage is a message of the user, with texts and files. The server sets all other
// properties of a message.
type UserMessage struct {
	// ID is the message's id within its session, of at most 256 bytes. Defaults to one that
	// the server chooses. Ids in the format of the server's own ids are refused.
	ID string `json:"id,omitempty"`
	// Role is "user", which is the default.
	Role session.Role `json:"role,omitempty"`
	// Parts are the message's texts and files, in order.
	Parts []UserPart `json:"parts"`
	// Skills are the names of skills that the agent loads before it replies, at most 16.
	Skills []string `json:"skills,omitempty"`
}

// UserPart is a text or a file.
type UserPart struct {
	// Kind is "text" or "file".
	Kind session.PartKind `json:"kind"`
	// Text is the content of a text part.
	Text string `json:"text,omitempty"`
	// URL is the URL of a file. It begins with data: or https:
	URL string `json:"url,omitempty"`
	// MediaType is the file's media type, such as "image/png".
	MediaType string `json:"mediaType,omitempty"`
	Filename  string `json:"filename,omitempty"`
}

// Text returns one message with a text.
func Text(text string) Messages {
	return Messages{{Role: session.RoleUser, Parts: []UserPart{{Kind: session.PartText, Text: text}}}}
}

// FromMessage converts a message for sending. It refuses a message that is not the user's,
// or that has parts other than texts and files.
func FromMessage(m *session.Message) (UserMessage, error) {
	out := UserMessage{ID: m.ID, Role: session.RoleUser, Parts: make([]UserPart, len(m.Parts)), Skills: m.Skills()}
	labels := len(m.Metadata)
	if out.Skills != nil {
		labels--
	}
	switch {
	case m.Role != session.RoleUser && m.Role != "":
		return out, session.Invalid("message role", "is %q, but only a user's message can be sent", m.Role)
	case labels > 0 || len(m.Extra) > 0:
		return out, session.Invalid("message metadata", "cannot be sent to a server")
	}
	for i := range m.Parts {
		p := &m.Parts[i]
		if p.Kind != session.PartText && p.Kind != session.PartFile {
			return out, session.Invalid("message part kind", "is %q, but only texts and files can be sent", p.Kind)
		}
		out.Parts[i] = UserPart{Kind: p.Kind, Text: p.Text, URL: p.URL, MediaType: p.MediaType, Filename: p.Filename}
	}
	return out, nil
}

// Message returns the message as a session stores it.
func (m *UserMessage) Message() session.Message {
	out := session.Message{ID: m.ID, Role: session.RoleUser, Parts: make([]session.Part, len(m.Parts))}
	for i, p := range m.Parts {
		out.Parts[i] = session.Part{Kind: p.Kind, Text: p.Text, URL: p.URL, MediaType: p.MediaType, Filename: p.Filename}
	}
	return out.WithSkills(m.Skills...)
}

// UnmarshalJSON implements [json.Unmarshaler]. Use it only for trusted input: the server
// decodes bodies with limits.
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
		return session.Invalid("message", "must be a string or a list of messages: %v", err)
	}
	*m = list
	return nil
}
