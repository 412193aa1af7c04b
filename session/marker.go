package session

import (
	"encoding/json"
	"slices"
)

// CompactionKind says what a marker did to the part of the conversation that it
// is about.
type CompactionKind string

// The kinds of compactions.
const (
	// CompactionSummary replaces all before the messages that it keeps with a summary.
	CompactionSummary CompactionKind = "summary"
	// CompactionTrim cuts large arguments and results of calls before the messages that
	// it keeps. Everything else stays in view, and the marker itself is not sent.
	CompactionTrim CompactionKind = "trim"
	// CompactionClear drops the whole conversation so far.
	CompactionClear CompactionKind = "clear"
)

// Compaction is what a marker says about itself. A marker is a hidden user message.
// The text of a summary or a clear stands for all messages before those that it
// keeps; see [View]. A marker is a message like any other: it is copied by a branch
// that is taken behind it and undone by a rewind before it.
type Compaction struct {
	Kind CompactionKind `json:"kind"`
	// Kept is how many of the messages directly before the marker stay in the view as
	// they are: the first kept message is that many before the marker. Markers among
	// them count, but are not part of the view: the last summary or clear speaks for the
	// earlier ones.
	Kept int `json:"kept"`
	// Arguments and Results are how many bytes the arguments and the result of a call
	// before the kept messages may have; larger ones are sent cut to that. 0 is no limit.
	// Only a trim has them, and at least one of them.
	Arguments int `json:"arguments,omitempty"`
	Results   int `json:"results,omitempty"`
	// Except are the names of tools whose calls a trim leaves as they are.
	Except []string `json:"except,omitempty"`
	// TokensBefore and TokensAfter are the sizes of the prompt before and after the
	// compaction, as far as they are known.
	TokensBefore int64 `json:"tokensBefore,omitempty"`
	TokensAfter  int64 `json:"tokensAfter,omitempty"`
	// Model is the model that wrote the text, if one did.
	Model string `json:"model,omitempty"`
	// Forced says that the compaction was made because the provider refused the prompt.
	Forced bool `json:"forced,omitempty"`
	// Preserved are the names of the extensions that kept something of the messages: their
	// texts are the parts behind the marker's own text, in this order; see
	// [Message.Preserved].
	Preserved []string `json:"preserved,omitempty"`
	// Bytes is the approximate stored size of all messages before the first kept one,
	// so that a process which has not read them knows the size of the session. A trim,
	// before whose kept messages others are read as well, has none.
	Bytes int64 `json:"bytes,omitempty"`
}

// meta is the name of the metadata that holds the compaction.
func (c *Compaction) meta() string {
	if c.replaces() {
		return MetaCompaction
	}
	return MetaTrim
}

// replaces reports whether the marker takes the place of messages.
func (c *Compaction) replaces() bool { return c.Kind != CompactionTrim }

// Marker returns the marker of a compaction. It must be appended where no call is
// open, and the messages that it keeps must begin where none is. More parts follow the
// text, first those of the extensions that Preserved names.
func (c Compaction) Marker(text string, more ...Part) (Message, error) {
	switch c.Kind {
	case CompactionSummary, CompactionTrim, CompactionClear:
	default:
		return Message{}, Invalid("compaction kind", "%q is not one of summary, trim, clear", c.Kind)
	}
	for _, n := range []struct {
		field string
		n     int64
	}{
		{"kept", int64(c.Kept)},
		{"arguments", int64(c.Arguments)},
		{"results", int64(c.Results)},
		{"tokensBefore", c.TokensBefore},
		{"tokensAfter", c.TokensAfter},
		{"bytes", c.Bytes},
	} {
		if n.n < 0 {
			return Message{}, Invalid("compaction "+n.field, "%d is negative", n.n)
		}
	}
	if c.Kind == CompactionClear && c.Kept != 0 {
		return Message{}, Invalid("compaction kept", "is %d, but a clear keeps nothing", c.Kept)
	}
	if err := c.checkLimits(); err != nil {
		return Message{}, err
	}
	for i, name := range c.Preserved {
		if i >= len(more) || more[i].Kind != PartText {
			return Message{}, Invalid("compaction preserved", "names %.80q, but the marker has no text of it", name)
		}
	}
	value, err := Encode(&c)
	if err != nil {
		return Message{}, ErrInvalid.WithCause(err, "the compaction cannot be encoded")
	}
	m := UserText(text)
	m.Parts = append(m.Parts, more...)
	m.Metadata = map[string]json.RawMessage{MetaHidden: json.RawMessage("true"), c.meta(): value}
	if err := m.Check(); err != nil {
		return Message{}, err
	}
	return m, nil
}

// checkLimits checks what a trim cuts.
func (c *Compaction) checkLimits() error {
	if c.Kind != CompactionTrim {
		if c.Arguments != 0 || c.Results != 0 || len(c.Except) > 0 {
			return Invalid("compaction arguments, results and except", "are those of a trim, not of a %s", c.Kind)
		}
		return nil
	}
	if c.Arguments == 0 && c.Results == 0 {
		return Invalid("compaction arguments and results", "are both 0, so the trim would cut nothing")
	}
	for field, n := range map[string]int{"arguments": c.Arguments, "results": c.Results} {
		if n != 0 && n < MinTrim {
			return Invalid("compaction "+field, "is %d, must be at least %d", n, MinTrim)
		}
	}
	return nil
}

// Compaction returns what a marker says about itself, or nil if the message is no
// marker.
func (m *Message) Compaction() *Compaction {
	if m.Role != RoleUser || len(m.Metadata) == 0 {
		return nil
	}
	value, ok := m.Metadata[MetaCompaction]
	if !ok {
		value, ok = m.Metadata[MetaTrim]
	}
	if !ok || !m.Hidden() {
		return nil
	}
	var c Compaction
	if json.Unmarshal(value, &c) != nil || c.Kept < 0 || m.Metadata[c.meta()] == nil {
		return nil
	}
	return &c
}

// Preserved returns the text that an extension kept in a marker. It is empty for all other
// messages. What the summary, the user and other extensions say is never part of it.
func (m *Message) Preserved(extension string) string {
	c := m.Compaction()
	if c == nil {
		return ""
	}
	at := 1 + slices.Index(c.Preserved, extension) // the text of the marker itself is before them
	if at == 0 || at >= len(m.Parts) || m.Parts[at].Kind != PartText {
		return ""
	}
	return m.Parts[at].Text
}

// Uncompacted is the size of the prompt at which a compaction was last tried in vain,
// as metadata of the reply that followed: so every process knows when to try again.
type Uncompacted struct {
	Tokens   int64 `json:"tokens"`
	Messages int   `json:"messages"`
}

// Uncompacted returns what a reply says about a compaction that was tried in vain
// before it, or nil.
func (m *Message) Uncompacted() *Uncompacted {
	value, ok := m.Metadata[MetaUncompacted]
	if !ok || m.Role != RoleAssistant {
		return nil
	}
	var u Uncompacted
	if json.Unmarshal(value, &u) != nil {
		return nil
	}
	return &u
}
