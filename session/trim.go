package session

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"
)

// MinTrim is the least number of bytes that a trim may cut arguments and results to:
// the notice that something is missing must fit.
const MinTrim = 200

// Trim returns a message as a trim leaves it, or nil if it stays as it is. What is cut
// depends on nothing but the message and the limits, and what was cut is not cut again.
func (c *Compaction) Trim(m *Message) *Message { return trimBy([]*Compaction{c}, m) }

// trimBy is [Compaction.Trim] with the lowest limits of several trims.
func trimBy(trims []*Compaction, m *Message) *Message {
	var parts []Part
	for i := range m.Parts {
		arguments, results := 0, 0
		for _, c := range trims {
			if !slices.Contains(c.Except, m.Parts[i].Tool) {
				arguments, results = lower(arguments, c.Arguments), lower(results, c.Results)
			}
		}
		part, cut := m.Parts[i].trimmed(arguments, results)
		if !cut {
			continue
		}
		if parts == nil {
			parts = slices.Clone(m.Parts)
		}
		parts[i] = part
	}
	if parts == nil {
		return nil
	}
	out := *m
	out.Parts = parts
	return &out
}

// lower returns the lower one of two limits. 0 is none, and one below [MinTrim], which
// somebody else wrote, is that.
func lower(a, b int) int {
	if b > 0 {
		b = max(b, MinTrim)
	}
	if a <= 0 || b > 0 && b < a {
		return b
	}
	return a
}

// trimmed returns a part that is a call or a result, cut to so many bytes, of which 0 is no
// limit, and whether it was too large.
func (p *Part) trimmed(arguments, results int) (Part, bool) {
	out := *p
	switch {
	case p.Kind == PartToolCall && arguments > 0 && len(p.Input) > arguments:
		out.Input = trimInput(p.Input, arguments)
	case p.Kind != PartToolResult || results <= 0:
		return out, false
	case p.Error != nil && len(p.Error.Message) > results:
		told := *p.Error
		told.Message = TrimText(told.Message, results)
		out.Error = &told
	case p.Error != nil:
		return out, false
	case len(p.Output) > results: // a part of a document is no document
		out.Output, out.Text = nil, TrimText(string(p.Output), results)
	case p.Output == nil && len(p.Text) > results:
		out.Text = TrimText(p.Text, results)
	default:
		return out, false
	}
	return out, true
}

// TrimText returns the beginning and the end of a text that has more than limit bytes,
// and between them how much is missing: at most limit bytes together, if limit is at
// least [MinTrim]. A shorter text is returned as it is.
func TrimText(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	// The notice names the missing bytes, so its length depends on them: as many digits as
	// the whole text has are always enough.
	room := max(0, limit-len(notice(len(text))))
	head := cutBefore(text, room*2/3)
	tail := cutAfter(text, len(text)-(room-head))
	return text[:head] + notice(tail-head) + text[tail:]
}

func notice(missing int) string { return fmt.Sprintf("\n[... %d bytes left out ...]\n", missing) }

// cutBefore returns the last place at or before n that is not within a character.
func cutBefore(text string, n int) int {
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return n
}

// cutAfter returns the first place at or after n that is not within a character.
func cutAfter(text string, n int) int {
	for n < len(text) && !utf8.RuneStart(text[n]) {
		n++
	}
	return n
}

// What takes the place of arguments that are cut.
const (
	shownOfArgument = 20 // characters of a text that stay
	argumentNotice  = "...(argument truncated)"
)

// trimInput returns the arguments of a call with the largest ones cut until all of them
// have at most limit bytes. Providers require an object, so it is one.
func trimInput(input json.RawMessage, limit int) json.RawMessage {
	members := inputMembers(input)
	size := 2
	order := make([]int, len(members))
	for i := range members {
		order[i] = i
		size += members[i].size()
	}
	slices.SortStableFunc(order, func(a, b int) int { return len(members[b].value) - len(members[a].value) })
	for _, i := range order {
		if size <= limit {
			break
		}
		if short := shortArgument(members[i].value); len(short) < len(members[i].value) {
			size -= members[i].size()
			members[i].value = short
			size += members[i].size()
		}
	}
	if size > limit || len(members) == 0 {
		return append(AppendString([]byte(`{"truncated":`), fmt.Sprintf("%d bytes of arguments were left out", len(input))), '}')
	}
	out := append(make([]byte, 0, size), '{')
	for i := range members {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, members[i].name...), ':'), members[i].value...)
	}
	return append(out, '}')
}

// shortArgument is what takes the place of an argument: the beginning of a text, or a
// notice.
func shortArgument(value json.RawMessage) json.RawMessage {
	text, _ := jsonString(value)
	shown := 0
	for i := range text {
		if shown == shownOfArgument {
			text = text[:i]
			break
		}
		shown++
	}
	return AppendString(nil, text+argumentNotice)
}

// inputMember is an argument of a call, as it was written.
type inputMember struct {
	name  []byte // with its quotes
	value json.RawMessage
}

// size is the length of the member with its colon and comma.
func (m *inputMember) size() int { return len(m.name) + len(m.value) + 2 }

// inputMembers returns the members of an object in their order, also those that are
// named twice. It is nil if the input is no object.
func inputMembers(input json.RawMessage) []inputMember {
	decoder := json.NewDecoder(bytes.NewReader(input))
	if open, err := decoder.Token(); err != nil || open != json.Delim('{') {
		return nil
	}
	var members []inputMember
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil
		}
		text, ok := name.(string)
		var value json.RawMessage
		if !ok || decoder.Decode(&value) != nil {
			return nil
		}
		members = append(members, inputMember{AppendString(nil, text), value})
	}
	return members
}
