package session_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/helixagents/helix/session"
)

func marker(t rapid.TB, text string, kept int) session.Message {
	t.Helper()
	m, err := session.Compaction{Kind: session.CompactionSummary, Kept: kept, TokensBefore: 900, TokensAfter: 90, Model: "m"}.Marker(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// trimming returns a marker that cuts arguments and results before what it keeps.
func trimming(t rapid.TB, kept, arguments, results int, except ...string) session.Message {
	t.Helper()
	m, err := session.Compaction{Kind: session.CompactionTrim, Kept: kept, Arguments: arguments, Results: results, Except: except, TokensBefore: 900}.Marker("trim")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// drawMarker generates a marker of any kind.
func drawMarker(t *rapid.T, text string, most int) session.Message {
	kept := rapid.IntRange(0, most).Draw(t, "kept")
	if rapid.Bool().Draw(t, "trim") {
		limits := rapid.SampledFrom([][2]int{{200, 0}, {0, 200}, {300, 400}, {500, 300}})
		limit := limits.Draw(t, "limits")
		return trimming(t, kept, limit[0], limit[1], rapid.SampledFrom([][]string{nil, {"tool-1"}}).Draw(t, "except")...)
	}
	return marker(t, text, kept)
}

// genMarked generates a valid transcript with markers between its steps, and
// changes of how much each keeps: a marker may ask for results without their calls,
// for more than there is, and for earlier markers.
func genMarked(t *rapid.T) []session.Message {
	var history []session.Message
	for i := range rapid.IntRange(1, 8).Draw(t, "steps") {
		if rapid.Bool().Draw(t, "user") || i == 0 {
			history = append(history, session.UserText(fmt.Sprintf("message %d", i)))
		}
		if rapid.IntRange(0, 2).Draw(t, "mark") == 0 {
			history = append(history, drawMarker(t, fmt.Sprintf("summary %d", i), len(history)+2))
		}
		var calls []string
		for j := range rapid.IntRange(0, 3).Draw(t, "calls") {
			calls = append(calls, fmt.Sprintf("c%d.%d", i, j))
		}
		reply := assistant(fmt.Sprint(i), calls...)
		for j := range reply.Parts {
			if p := &reply.Parts[j]; p.Kind == session.PartToolCall {
				p.Tool, p.Input = fmt.Sprintf("tool-%d", j%3), drawInput(t)
			}
		}
		history = append(history, reply)
		for _, call := range reply.Calls() {
			history = append(history, drawResult(t, call))
		}
	}
	return history
}

// drawInput generates the arguments of a call, some of them large.
func drawInput(t *rapid.T) json.RawMessage {
	value := rapid.OneOf(rapid.Just(any(3)), rapid.Map(rapid.StringN(0, 600, 900), func(s string) any { return s }), rapid.Just(any([]int{1, 2})),
		rapid.Just(any(strings.Repeat("é", 700))))
	object := rapid.MapOfN(rapid.StringN(1, 5, 9), value, 0, 3).Draw(t, "input")
	raw, err := session.Encode(object)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// drawResult generates a result of a call.
func drawResult(t *rapid.T, call session.Part) session.Message {
	switch rapid.IntRange(0, 3).Draw(t, "result") {
	case 0:
		return session.ToolFailure(call, &session.Error{Code: session.CodeToolFailed, Message: strings.Repeat("no ", rapid.IntRange(1, 400).Draw(t, "error"))})
	case 1:
		raw, err := session.Encode(rapid.SliceOfN(rapid.StringN(0, 30, 90), 0, 60).Draw(t, "output"))
		if err != nil {
			t.Fatal(err)
		}
		return session.ToolResult(call, raw)
	}
	raw, err := session.Encode(rapid.StringN(0, 700, 1500).Draw(t, "text"))
	if err != nil {
		t.Fatal(err)
	}
	return session.ToolResult(call, raw)
}

// TestViewProperties checks what every view must be, for each prefix of a
// transcript that ends where a model could be asked.
func TestViewProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := genMarked(t)
		var before []byte // the view of the previous prefix
		for n := range len(history) + 1 {
			prefix := history[:n]
			if len(session.OpenCalls(prefix)) > 0 {
				continue
			}
			view := session.View(prefix)
			sendable(t, view)
			last := lastOf(prefix)
			checkContents(t, prefix, view, last)
			if again := session.View(slices.Clone(prefix)); !bytes.Equal(encoded(t, view), encoded(t, again)) {
				t.Fatalf("the view of a copy of %d messages differs", n)
			}
			now := encoded(t, view)
			if last != n-1 && !bytes.HasPrefix(now, before) {
				t.Fatalf("the view of %d messages does not begin with the previous one", n)
			}
			before = now
		}
	})
}

func sendable(t rapid.TB, view []session.Message) {
	t.Helper()
	transcript, err := session.NewTranscript(view)
	if err == nil {
		err = transcript.Sendable()
	}
	if err != nil {
		t.Fatalf("the view cannot be sent: %v", err)
	}
}

func lastOf(messages []session.Message) int {
	for i := len(messages) - 1; i >= 0; i-- {
		if messages[i].Compaction() != nil {
			return i
		}
	}
	return -1
}

// checkContents checks that a view has the last summary first and no other marker, and
// that nothing behind the last marker is cut.
func checkContents(t rapid.TB, prefix, view []session.Message, last int) {
	t.Helper()
	base := lastSummary(prefix)
	rest := view
	if base >= 0 {
		if view[0].Content() != prefix[base].Content() {
			t.Fatalf("the view begins with %q, not with the last summary", view[0].Content())
		}
		rest = view[1:]
	}
	for i := range rest {
		if rest[i].Compaction() != nil {
			t.Fatalf("the view has another marker at %d", i)
		}
	}
	if base < 0 {
		all := slices.DeleteFunc(slices.Clone(prefix), func(m session.Message) bool { return m.Compaction() != nil })
		if len(rest) != len(all) {
			t.Fatalf("without a summary the view has %d of %d messages", len(rest), len(all))
		}
	}
	if after := len(prefix) - last - 1; !slices.EqualFunc(view[len(view)-after:], prefix[last+1:], func(a, b session.Message) bool { return a.Equal(&b) }) {
		t.Fatal("the view does not end with what came after the marker")
	}
}

// lastSummary is the place of the last marker that takes the place of messages, or -1.
func lastSummary(messages []session.Message) int {
	for i := len(messages) - 1; i >= 0; i-- {
		if c := messages[i].Compaction(); c != nil && c.Kind != session.CompactionTrim {
			return i
		}
	}
	return -1
}

func encoded(t rapid.TB, messages []session.Message) []byte {
	t.Helper()
	var out []byte
	for i := range messages {
		var err error
		if out, err = messages[i].AppendJSON(out); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// transcripts is a transcript in memory that counts what is read of it.
type transcripts struct {
	session.Transcripts
	messages []session.Message
	read     int
}

func (s *transcripts) AllMessages(ctx context.Context, id string) ([]session.Message, error) {
	return s.MessagesFrom(ctx, id, 1)
}

func (s *transcripts) MessagesFrom(_ context.Context, _ string, number int) ([]session.Message, error) {
	out := s.messages[min(max(number, 1)-1, len(s.messages)):]
	s.read += len(out)
	return out, nil
}

// TestReadViewReadsTheView makes changes of a transcript, some by a process that
// does not know marks, and checks that the view that is read is the right one.
func TestReadViewReadsTheView(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var (
			store transcripts
			state session.State
			known = true
			made  int // markers; a document knows the last 8
		)
		for i := range rapid.IntRange(1, 12).Draw(t, "changes") {
			change := session.Change{}
			if len(store.messages) > 0 && rapid.IntRange(0, 3).Draw(t, "rewind") == 0 {
				keep := rapid.IntRange(0, len(store.messages)).Draw(t, "keep")
				change.KeepMessages = &keep
			}
			for j := range rapid.IntRange(0, 4).Draw(t, "messages") {
				change.Messages = append(change.Messages, session.UserText(fmt.Sprintf("%d.%d", i, j)))
			}
			knows := rapid.IntRange(0, 4).Draw(t, "knows marks") > 0
			if knows && rapid.Bool().Draw(t, "marker") {
				change.Messages = append(change.Messages, drawMarker(t, fmt.Sprintf("summary %d", i), 5))
				made++
			}
			if knows {
				if change.MovesMarks() {
					state.Marks = state.Marks.After(len(store.messages), &change)
				}
			} else if change.KeepMessages != nil {
				known = false
			}
			if change.KeepMessages != nil {
				store.messages = store.messages[:*change.KeepMessages:*change.KeepMessages]
			}
			store.messages = append(store.messages, change.Messages...)

			store.read = 0
			tail, err := session.ReadView(t.Context(), &store, &state)
			if err != nil {
				t.Fatal(err)
			}
			if want := session.View(store.messages); !bytes.Equal(encoded(t, session.View(tail.Messages)), encoded(t, want)) {
				t.Fatalf("change %d: read %v, not the view", i, state.Marks)
			}
			if tail.Before+len(tail.Messages) != len(store.messages) {
				t.Fatalf("change %d: %d messages before %d, of %d", i, tail.Before, len(tail.Messages), len(store.messages))
			}
			if known && len(state.Marks) > 0 && made <= 8 && store.read != len(tail.Messages) {
				t.Fatalf("change %d: %d messages read for a view of %d", i, store.read, len(tail.Messages))
			}
			clone := state.Marks.Within(len(store.messages))
			if known && len(clone) != len(state.Marks) {
				t.Fatalf("change %d: marks %v are not all in a whole copy", i, state.Marks)
			}
		}
	})
}

// TestTailTranscript checks that a transcript that holds only its view counts,
// extends and views like the whole one.
func TestTailTranscript(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := genMarked(t)
		at := lastOf(history)
		if at < 0 {
			t.Skip("no marker")
		}
		state := session.State{Marks: session.Marks(nil).After(0, &session.Change{Messages: history})}
		tail, err := session.ReadView(t.Context(), &transcripts{messages: history}, &state)
		if err != nil {
			t.Fatal(err)
		}
		part, err := tail.Transcript(session.UserText("more"))
		if err != nil {
			t.Fatal(err)
		}
		whole, err := session.NewTranscript(append(slices.Clone(history), session.UserText("more")))
		if err != nil {
			t.Fatal(err)
		}
		if part.Len() != whole.Len() || part.Before()+len(part.Messages()) != part.Len() {
			t.Fatalf("%d messages behind %d, want %d", part.Len(), part.Before(), whole.Len())
		}
		if !bytes.Equal(encoded(t, part.View()), encoded(t, whole.View())) || !bytes.Equal(encoded(t, whole.View()), encoded(t, session.View(whole.Messages()))) {
			t.Fatal("the views differ")
		}
		if err := part.Truncate(part.Len() - 1); err != nil || part.Len() != len(history) {
			t.Fatalf("truncated to %d messages: %v", part.Len(), err)
		}
		if before := part.Before(); before > 0 && part.Truncate(before-1) == nil {
			t.Fatal("truncated to messages that it does not hold")
		}
	})
}

func TestMarksKeepTheLastFew(t *testing.T) {
	t.Parallel()
	var marks session.Marks
	for n := range 100 {
		marks = marks.After(10*n, &session.Change{Messages: []session.Message{session.UserText("x"), marker(t, "s", 1)}})
	}
	if len(marks) != 8 || marks[7] != (session.Mark{Marker: 992, From: 991}) {
		t.Fatalf("marks are %v", marks)
	}
	if got := marks.Within(991); len(got) != 7 || got[6].Marker != 982 {
		t.Fatalf("within 991 they are %v", got)
	}
	if got := marks.Within(500); got != nil {
		t.Fatalf("within 500 they are %v", got)
	}
}

func TestMarkerRefusesNonsense(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]session.Compaction{
		"kind":         {Kind: "other"},
		"kept":         {Kind: session.CompactionTrim, Kept: -1},
		"tokensBefore": {Kind: session.CompactionTrim, TokensBefore: -1},
		"clear":        {Kind: session.CompactionClear, Kept: 1},
		"cut nothing":  {Kind: session.CompactionTrim},
		"arguments":    {Kind: session.CompactionTrim, Arguments: 10},
		"results":      {Kind: session.CompactionTrim, Results: session.MinTrim - 1},
		"of a trim":    {Kind: session.CompactionSummary, Results: 500},
		"except":       {Kind: session.CompactionSummary, Except: []string{"x"}},
	} {
		if _, err := c.Marker("text"); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := (session.Compaction{Kind: session.CompactionTrim, Results: 500}).Marker(""); err == nil {
		t.Error("a marker without text was made")
	}
	if _, err := (session.Compaction{Kind: session.CompactionSummary}).Marker("text", session.Text("")); err == nil {
		t.Error("a marker with an empty part was made")
	}
	// Programs that do not know trims must not take one for a summary.
	m := trimming(t, 3, 300, 300)
	if c := m.Compaction(); c == nil || c.Kind != session.CompactionTrim || m.Metadata[session.MetaCompaction] != nil || m.Metadata[session.MetaTrim] == nil {
		t.Errorf("the trim has the metadata %s", m.Metadata)
	}
	m.Metadata[session.MetaTrim] = []byte(`{"kind":"summary","kept":1}`)
	if m.Compaction() != nil {
		t.Error("a summary under the name of a trim is a marker")
	}
	m = marker(t, "text", 3)
	if c := m.Compaction(); c == nil || c.Kept != 3 || c.Model != "m" || !m.Hidden() {
		t.Errorf("the marker says %+v", c)
	}
	m.Metadata[session.MetaHidden] = []byte("false")
	if m.Compaction() != nil {
		t.Error("a message that people see is a marker")
	}
}

// FuzzView checks that no metadata breaks a view.
func FuzzView(f *testing.F) {
	f.Add([]byte(`{"kind":"summary","kept":2}`), 3)
	f.Add([]byte(`{"kept":-9223372036854775808}`), 1)
	f.Add([]byte(`{"kept":9223372036854775807}`), 2)
	f.Add([]byte(`{"kind":"trim","kept":1,"arguments":-1,"results":1}`), 3)
	f.Fuzz(func(t *testing.T, meta []byte, at int) {
		messages := []session.Message{session.UserText("a"), assistant("1", "x", "y"), result("x"), result("y"), session.UserText("b")}
		m := marker(t, "summary", 0)
		m.Metadata[session.MetaCompaction], m.Metadata[session.MetaTrim] = meta, meta
		messages = slices.Insert(messages, []int{0, 1, 4, 5}[uint(at)%4], m)
		view := session.View(messages)
		if !json.Valid(meta) || m.Check() != nil {
			return // it cannot be stored
		}
		sendable(t, view)
		marks := session.Marks(nil).After(0, &session.Change{Messages: messages})
		tail, err := session.ReadView(t.Context(), &transcripts{messages: messages}, &session.State{Marks: marks})
		if err != nil || !bytes.Equal(encoded(t, session.View(tail.Messages)), encoded(t, session.View(messages))) {
			t.Fatalf("marks %v: another view (%v)", marks, err)
		}
	})
}

// What each extension kept is a part of its own: nothing else that a message says is taken for it.
func TestPreserved(t *testing.T) {
	t.Parallel()
	file := session.Part{Kind: session.PartFile, URL: "data:text/plain;base64,eA==", MediaType: "text/plain"}
	marked := func(names []string, more ...session.Part) session.Message {
		m, err := session.Compaction{Kind: session.CompactionSummary, Preserved: names}.Marker("summary", more...)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	plain := session.UserText("summary")
	plain.Parts = append(plain.Parts, session.Text("kept"))
	hidden := plain
	hidden.Metadata = map[string]json.RawMessage{session.MetaHidden: []byte("true")}
	short := marked([]string{"y", "x"}, session.Text("other"), session.Text("kept"))
	short.Parts = short.Parts[:2]
	for name, c := range map[string]struct {
		m    session.Message
		want string
	}{
		"kept":                   {marked([]string{"x"}, session.Text("kept")), "kept"},
		"kept, and a file":       {marked([]string{"x"}, session.Text("kept"), file), "kept"},
		"of the second":          {marked([]string{"y", "x"}, session.Text("other"), session.Text("kept")), "kept"},
		"of another":             {marked([]string{"y"}, session.Text("kept")), ""},
		"nothing":                {marked(nil), ""},
		"a text of nobody":       {marked(nil, session.Text("kept")), ""},
		"a file":                 {marked(nil, file, session.Text("kept")), ""},
		"a part that is missing": {short, ""},
		"no marker":              {plain, ""},
		"a hidden message":       {hidden, ""},
		"no message at all":      {session.Message{}, ""},
	} {
		if got := c.m.Preserved("x"); got != c.want {
			t.Errorf("%s: %q is preserved, want %q", name, got, c.want)
		}
	}
	for name, more := range map[string][]session.Part{"no text": nil, "a file in its place": {file}} {
		if _, err := (session.Compaction{Kind: session.CompactionSummary, Preserved: []string{"x"}}).Marker("summary", more...); !errors.Is(err, session.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
