package session

import (
	"context"
	"slices"
)

// View returns the part of a conversation that a model is sent: the text of the
// last summary or clear, the messages that it keeps, and all that came after it;
// without one, all messages. Arguments and results of calls are cut as trims say.
// It depends on nothing but the messages, so that every process sends the same, and
// between two markers a longer conversation's view begins with that of a shorter one.
//
// messages may begin anywhere before the first message that the last summary or clear
// keeps. The result may share them: callers must not change it.
func View(messages []Message) []Message {
	base, kept, marked := lastReplacing(messages)
	if !marked {
		return messages
	}
	from := 0
	if base >= 0 {
		from = firstKept(messages, base, kept)
	}
	trims := trimsOf(messages, from)
	var active []*Compaction // the trims that cut message i
	view := make([]Message, len(messages)-from+1)
	at := len(view)
	for i := len(messages) - 1; i >= from; i-- {
		for len(trims) > 0 && i < trims[0].before {
			if same := func(c *Compaction) bool { return c.cutsLike(trims[0].Compaction) }; !slices.ContainsFunc(active, same) {
				active = append(active, trims[0].Compaction)
			}
			trims = trims[1:]
		}
		if messages[i].Compaction() != nil {
			continue
		}
		at--
		view[at] = messages[i]
		if len(active) == 0 {
			continue
		}
		if cut := trimBy(active, &messages[i]); cut != nil {
			view[at] = *cut
		}
	}
	if base >= 0 {
		at--
		view[at] = messages[base]
	}
	return view[at:]
}

// lastReplacing returns the index of the last marker that takes the place of messages,
// or -1, and how many messages it keeps. It also reports whether there are markers.
func lastReplacing(messages []Message) (at, kept int, marked bool) {
	for at = len(messages) - 1; at >= 0; at-- {
		if c := messages[at].Compaction(); c != nil {
			if marked = true; c.replaces() {
				return at, c.Kept, true
			}
		}
	}
	return -1, 0, marked
}

// trim is a trim of the messages before an index.
type trim struct {
	*Compaction
	before int
}

// trimsOf returns the trims among messages from an index on, those first that reach
// furthest.
func trimsOf(messages []Message, from int) []trim {
	var trims []trim
	for i := from; i < len(messages); i++ {
		if c := messages[i].Compaction(); c != nil && !c.replaces() {
			trims = append(trims, trim{c, i - min(c.Kept, i)})
		}
	}
	slices.SortStableFunc(trims, func(a, b trim) int { return b.before - a.before })
	return trims
}

// cutsLike reports whether two trims cut the same.
func (c *Compaction) cutsLike(other *Compaction) bool {
	return c.Arguments == other.Arguments && c.Results == other.Results && slices.Equal(c.Except, other.Except)
}

// firstKept returns the index of the first message that a marker keeps. A result
// whose call is not kept is not kept either, because no provider accepts it.
func firstKept(messages []Message, at, kept int) int {
	from := at - min(kept, at)
	for from < at && messages[from].Role == RoleTool {
		from++
	}
	return from
}

// Mark says where in a transcript a marker is. Messages are numbered from 1.
type Mark struct {
	// Marker is the number of the marker, From that of the first message that the view
	// needs: the first one that the marker keeps, or its own. For a trim, before whose kept
	// messages others stay in view, it is that of the marker before, or 1.
	Marker int `json:"marker"`
	From   int `json:"from"`
}

// Marks are the last few marks of a transcript, in order. They are a part of a
// session's document that only tells readers where to begin: what they read there
// decides, so marks that are missing or wrong cost a reading of the whole
// transcript and change no view. Processes that do not know markers may drop them
// or, with a rewind, leave some of dropped messages.
type Marks []Mark

// maxMarks is how many marks a document keeps. A rewind before the first of them
// leaves none.
const maxMarks = 8

// MovesMarks reports whether the change may affect the session's marks.
func (c *Change) MovesMarks() bool {
	if c.KeepMessages != nil {
		return true
	}
	for i := range c.Messages {
		if c.Messages[i].Compaction() != nil {
			return true
		}
	}
	return false
}

// After returns the marks after a change of a transcript that had count messages.
// Stores share it so that they agree on every case; Redis has the same in
// session_write.lua.
func (m Marks) After(count int, c *Change) Marks {
	if c.KeepMessages != nil {
		count = min(count, *c.KeepMessages)
		m = m.Within(count)
	}
	for i := range c.Messages {
		if what := c.Messages[i].Compaction(); what != nil {
			m = m.add(count+i+1, what)
		}
	}
	return m
}

// Within returns the marks of a transcript's first messages.
func (m Marks) Within(count int) Marks {
	n := len(m)
	for n > 0 && m[n-1].Marker > count {
		n--
	}
	if n == 0 {
		return nil
	}
	return m[:n:n]
}

// add returns the marks with one more.
func (m Marks) add(number int, what *Compaction) Marks {
	m = m.Within(number - 1)
	from := 1
	if what.replaces() {
		from = max(1, number-what.Kept)
	} else if n := len(m); n > 0 {
		from = m[n-1].From
	}
	m = append(m, Mark{Marker: number, From: from})
	return m[max(0, len(m)-maxMarks):]
}

// Tail is the end of a transcript: all messages after the first Before ones.
type Tail struct {
	Before int
	// Bytes is the approximate stored size of the messages that came before.
	Bytes    int64
	Messages []Message
}

// ReadView reads the end of a session's transcript that has the whole view; see
// [View]. It reads no more than that, unless the session's marks are wrong.
func ReadView(ctx context.Context, sessions Transcripts, state *State) (Tail, error) {
	if n := len(state.Marks); n > 0 {
		from := max(1, state.Marks[n-1].From)
		messages, err := sessions.MessagesFrom(ctx, state.ID, from)
		if err != nil {
			return Tail{}, err
		}
		base, kept, _ := lastReplacing(messages)
		if from == 1 && base < 0 {
			return Tail{Messages: messages}, nil
		}
		if base >= 0 && (from == 1 || base >= kept) {
			first := firstKept(messages, base, kept)
			return Tail{Before: from - 1 + first, Bytes: messages[base].Compaction().Bytes, Messages: messages[first:]}, nil
		}
	}
	messages, err := sessions.AllMessages(ctx, state.ID)
	return Tail{Messages: messages}, err
}

// Transcript checks the tail, continued by more messages.
func (t Tail) Transcript(more ...Message) (*Transcript, error) {
	out := &Transcript{
		before: t.Before, bytes: t.Bytes, messages: make([]Message, 0, len(t.Messages)+len(more)+16),
	}
	for _, messages := range [][]Message{t.Messages, more} {
		for i := range messages {
			if err := out.Append(messages[i]); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}
