// Package tokens estimates how many tokens a model counts for messages. Tokenizers differ,
// so the estimates are only used for what no model has counted yet.
package tokens

import (
	"strings"

	"github.com/helixagents/helix/session"
)

const (
	asciiBytes = 3.6 // bytes of ASCII text per token
	otherRunes = 1.2 // other characters per token
	perMessage = 5
	perCall    = 10
	perResult  = 8
	perFile    = 1_600
)

// Text estimates a text.
func Text[T ~string | ~[]byte](s T) float64 {
	ascii, other := 0, 0
	for i := range len(s) {
		switch {
		case s[i] < 0x80:
			ascii++
		case s[i]&0xC0 != 0x80: // the first byte of a character
			other++
		}
	}
	return float64(ascii)/asciiBytes + float64(other)/otherRunes
}

// Bytes is how many bytes of text have about so many tokens.
func Bytes(tokens float64) int { return int(tokens * asciiBytes) }

// Message estimates a message.
func Message(m *session.Message) float64 {
	n := float64(perMessage)
	for i := range m.Parts {
		n += part(&m.Parts[i])
	}
	return n
}

// Messages estimates messages.
func Messages(messages []session.Message) float64 {
	n := 0.0
	for i := range messages {
		n += Message(&messages[i])
	}
	return n
}

func part(p *session.Part) float64 {
	switch p.Kind {
	case session.PartToolCall:
		return perCall + Text(p.Tool) + Text(p.Input)
	case session.PartToolResult:
		n := perResult + Text(p.Text) + Text(p.Output)
		if p.Error != nil {
			n += Text(p.Error.Message)
		}
		return n
	case session.PartFile:
		if content, ok := strings.CutPrefix(p.URL, "data:text/"); ok { // base64 has four bytes for three
			return float64(len(content)) * 3 / 4 / asciiBytes
		}
		return perFile
	}
	return Text(p.Text)
}

// Meter keeps the size of a conversation: what the model reported with its last reply, and
// an estimate of what came after it. The zero value is that of an empty conversation.
type Meter struct {
	reported float64 // by the model, or by the marker behind which no model has reported
	newer    float64 // an estimate of the messages since then

	// How far estimates are off: the size of the prompt of the first reply that reported one,
	// of the last one, and an estimate of the messages between them. What else is in a prompt
	// is in both.
	firstIn, lastIn  int64
	between, running float64
}

// Restart begins anew with a conversation of a known size.
func (m *Meter) Restart(size float64) { *m = Meter{reported: size} }

// Add adds a message.
func (m *Meter) Add(message *session.Message) {
	size := Message(message)
	used := message.ReplyUsage()
	if used == nil || used.In <= 0 {
		m.newer += size
		m.running += size
		return
	}
	m.reported, m.newer = float64(used.In+used.Out), 0
	if m.firstIn == 0 {
		m.firstIn, m.running = used.In, size
		return
	}
	m.lastIn, m.between = used.In, m.running
	m.running += size
}

// minCalibration is how many estimated tokens it takes to say how far estimates are off.
const minCalibration = 200

// Ratio is by how much estimates are to be multiplied, within 0.5 and 2.
func (m *Meter) Ratio() float64 {
	grown := float64(m.lastIn - m.firstIn)
	if m.between < minCalibration || grown <= 0 {
		return 1
	}
	return min(max(grown/m.between, 0.5), 2)
}

// Size is the size of the conversation in tokens, as far as it is known.
func (m *Meter) Size() float64 { return m.reported + m.newer*m.Ratio() }

// Uncertain reports whether an estimate decides if the size is above a limit: not if what the
// model reported is, and not if twice the estimate would stay below.
func (m *Meter) Uncertain(limit float64) bool {
	return m.reported < limit && m.reported+2*m.newer*m.Ratio() >= limit
}

// Counted corrects the size: somebody has counted it.
func (m *Meter) Counted(size int) { m.reported, m.newer = float64(size), 0 }
