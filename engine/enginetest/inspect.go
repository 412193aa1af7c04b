package enginetest

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// outcome is what a turn left in the store, in a form in which two turns compare.
type outcome struct {
	status   session.RunStatus
	output   string
	sessions map[string][]string // the transcripts of the session and of the agents it called
	replies  int                 // of models, in all of them
}

// inspect reads what the turn left and checks what must hold of any turn: transcripts
// are valid, the stream folds to them, states follow from them, no call was started
// more often than its tool allows, and nothing waits.
func (w *world) inspect(ctx context.Context) outcome {
	w.t.Helper()
	run, err := w.sessions().CurrentRun(ctx, sessionID)
	if err != nil {
		w.t.Fatalf("run: %v", err)
	}
	if !run.Status.Ended() || run.Status.Suspended() {
		w.t.Fatalf("the run is %s", run.Status)
	}
	out := outcome{status: run.Status, output: string(run.Outcome.Output), sessions: map[string][]string{}}
	streams := map[string][]stream.Chunk{}
	for _, id := range w.family(ctx) {
		state, err := w.sessions().Load(ctx, id)
		if err != nil {
			w.t.Fatalf("load: %v", err)
		}
		if streams[state.StreamID] == nil {
			streams[state.StreamID] = w.readStream(ctx, state.StreamID)
		}
		messages, err := w.sessions().AllMessages(ctx, id)
		if err != nil {
			w.t.Fatalf("messages: %v", err)
		}
		transcript, err := session.NewTranscript(messages)
		if err == nil {
			err = transcript.Sendable()
		}
		if err != nil {
			w.t.Errorf("the transcript of %s is invalid: %v", id, err)
		}
		lines := Lines(messages)
		if standsIn(id) {
			w.checkOffice(id, streams[state.StreamID])
			out.sessions[place(id)] = plain(lines)
			continue
		}
		if got := Lines(stream.Fold(id, streams[state.StreamID])); !slices.Equal(got, lines) {
			w.t.Errorf("folding the stream of %s gives\n%s\nbut the transcript is\n%s", id, strings.Join(got, "\n"), strings.Join(lines, "\n"))
		}
		w.checkState(state, messages)
		w.checkMarkers(ctx, state, messages)
		w.checkShownMarkers(id, streams[state.StreamID], messages)
		w.checkPrepared(messages)
		w.checkStarts(id, messages)
		w.checkBlobs(ctx, id, lines)
		out.sessions[place(id)] = plain(w.withoutNotices(ctx, id, messages))
		out.replies += replies(messages)
	}
	w.checkPeople(ctx)
	w.checkTasks(ctx)
	w.checkInputs()
	w.checkRequests()
	return out
}

var references = regexp.MustCompile(`sha256:[0-9a-f]{64}`)

// checkBlobs checks that the session has all blobs that its messages name.
func (w *world) checkBlobs(ctx context.Context, id string, lines []string) {
	w.t.Helper()
	for _, ref := range references.FindAllString(strings.Join(lines, "\n"), -1) {
		if _, err := w.backend.Blobs().Tenant(w.tenant).Get(ctx, id, ref); err != nil {
			w.t.Errorf("a message of %s names a blob that is not there: %v", id, err)
		}
	}
}

// randomPart is the part of a child's id that cannot be guessed and differs from turn
// to turn.
var randomPart = regexp.MustCompile(`\.[0-9a-z]{16}`)

// place is a session's id without its random part: its place in the family. The ids of
// calls that a child makes follow from the child's id, so they differ, too.
func place(id string) string {
	first := true
	return callID.ReplaceAllStringFunc(randomPart.ReplaceAllString(id, ""), func(id string) string {
		if first {
			first = false
			return id
		}
		return "call"
	})
}

// replies is the number of a model's replies.
func replies(messages []session.Message) int {
	n := 0
	for i := range messages {
		if messages[i].Role == session.RoleAssistant {
			n++
		}
	}
	return n
}

// family lists the session and all sessions of the agents below it.
func (w *world) family(ctx context.Context) []string {
	w.t.Helper()
	page, err := w.sessions().List(ctx, session.Query{PageRequest: session.PageRequest{Limit: session.MaxPageSize}})
	if err != nil {
		w.t.Fatalf("list: %v", err)
	}
	var ids []string
	for i := range page.Items {
		ids = append(ids, page.Items[i].ID)
	}
	return ids
}

var (
	take   = regexp.MustCompile(` text "\(take \d+\)"| \(take \d+\)`)
	callID = regexp.MustCompile(`call_[0-9a-f]+`)
	// unsettled is what a summary says about calls that a crash cut off.
	unsettled = regexp.MustCompile(`\\n\\nCalls that were refused.*?\\n</unsettled_calls>`)
)

// plain removes from lines what may differ between two turns: the model words a
// repeated reply differently, and the ids of calls follow from those of runs.
func plain(lines []string) []string {
	var out []string
	known := map[string]string{}
	for _, line := range lines {
		line = unsettled.ReplaceAllString(line, "")
		line = callID.ReplaceAllStringFunc(take.ReplaceAllString(line, ""), func(id string) string {
			if known[id] == "" {
				known[id] = fmt.Sprintf("call %d", len(known)+1)
			}
			return known[id]
		})
		out = append(out, line)
	}
	return out
}

// Lines renders messages without ids and times, one line each, for comparison.
func Lines(messages []session.Message) []string {
	var lines []string
	for i := range messages {
		m := &messages[i]
		var line strings.Builder
		line.WriteString(string(m.Role) + ":")
		for j := range m.Parts {
			p := &m.Parts[j]
			switch p.Kind {
			case session.PartToolCall:
				fmt.Fprintf(&line, " call %s %s(%s)", p.CallID, p.Tool, p.Input)
			case session.PartToolResult:
				fmt.Fprintf(&line, " result %s %s", p.CallID, p.ResultJSON())
				if whole := m.Evicted(); whole != nil {
					fmt.Fprintf(&line, " of %d bytes in %v", whole.Bytes, whole.Blobs)
				}
			default:
				fmt.Fprintf(&line, " %s %q", p.Kind, p.Text)
			}
		}
		lines = append(lines, line.String())
	}
	return lines
}

// readStream reads a stream to its end.
func (w *world) readStream(ctx context.Context, id string) []stream.Chunk {
	w.t.Helper()
	var chunks []stream.Chunk
	last := int64(0)
	for item, err := range w.streams().Read(ctx, id, 0, false) {
		if err != nil {
			w.t.Fatalf("read the stream: %v", err)
		}
		if item.Chunk != nil {
			if item.Sequence != last+1 {
				w.t.Errorf("sequence %d follows %d", item.Sequence, last)
			}
			last = item.Sequence
			chunks = append(chunks, *item.Chunk)
		}
		if item.Terminal() && item.Frame != stream.FrameEnd {
			w.t.Errorf("the stream ended with %s", item.Frame)
		}
	}
	return chunks
}

// checkState derives from the transcript what tools and hooks must have written.
func (w *world) checkState(state *session.State, messages []session.Message) {
	w.t.Helper()
	raw, err := state.Custom.MarshalJSON()
	if err != nil {
		w.t.Fatal(err)
	}
	var got memo
	if err := json.Unmarshal(raw, &got); err != nil {
		w.t.Fatal(err)
	}
	if want := expectedMemo(messages); fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		w.t.Errorf("the state of %s is\n%+v\nwant\n%+v", state.ID, got, want)
	}
}

// once says of the tools that leave a trace whether their calls must not run again.
var once = map[string]bool{
	"look": false, "send": false, "keep": false, "file": false, "pay": true, "book": true, "sign": true, "seal": true, "stack": true,
	"measure": true, "quiz": true, "peek": false, "clear": true, "ship": true, "dump": true, "print": false, "issue": true,
}

func expectedMemo(messages []session.Message) memo {
	var m memo
	inputs := map[string]string{}
	for i := range messages {
		msg := &messages[i]
		if c := msg.Compaction(); c != nil && c.Kind == session.CompactionSummary {
			m.Summed = append(m.Summed, fmt.Sprint("before ", msg.Step), fmt.Sprint("after ", msg.Step))
		}
		switch msg.Role {
		case session.RoleAssistant:
			m.Asked = append(m.Asked, msg.Step)
			m.Seen = append(m.Seen, string(msg.Role))
			for _, call := range msg.Calls() {
				var in subject
				_ = json.Unmarshal(call.Input, &in) // the finish call has none
				inputs[call.CallID] = in.What
			}
		case session.RoleTool:
			m.Seen = append(m.Seen, string(msg.Role))
			result := &msg.Parts[0]
			if result.Tool == session.FinishTool {
				continue
			}
			m.Log = append(m.Log, trace(result.Tool, result.Error))
			if _, traced := once[result.Tool]; result.Error != nil || !traced {
				continue
			}
			m.Notes = append(m.Notes, result.Tool+" "+inputs[result.CallID])
			if result.Tool == "pay" {
				m.Count++
			}
		}
	}
	return m
}

// checkStarts checks that every call was started as often as its tool allows: one
// that must not run again at most once, and one that has a result at least once.
func (w *world) checkStarts(id string, messages []session.Message) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range messages {
		if messages[i].Role != session.RoleTool {
			continue
		}
		result := &messages[i].Parts[0]
		if result.Error != nil && (!once[result.Tool] || result.Error.Code != session.CodeToolOutcome) {
			w.t.Errorf("%s %s failed: %v", result.Tool, result.CallID, result.Error)
		}
		limited, traced := once[result.Tool]
		if !traced {
			continue
		}
		for answers := range questions[result.Tool] + 1 {
			key := id + "/" + result.CallID
			if answers > 0 {
				key += fmt.Sprintf("/answer/%d", answers)
			}
			n := w.starts[result.Tool+" "+key]
			if limited && n > 1 {
				w.t.Errorf("%s %s was started %d times", result.Tool, key, n)
			}
			if result.Error == nil && n == 0 {
				w.t.Errorf("%s %s has a result but was never started", result.Tool, key)
			}
		}
	}
}

// sameTurn compares two outcomes. A call that a crash has cut off has no result, and
// nobody knows whether it took effect.
func (w *world) sameTurn(got, want outcome) {
	w.t.Helper()
	unknown, same := 0, len(got.sessions) == len(want.sessions)
	for id, wanted := range want.sessions {
		lines := got.sessions[id]
		same = same && len(lines) == len(wanted)
		for i := range min(len(lines), len(wanted)) {
			if strings.Contains(lines[i], string(session.CodeToolOutcome)) {
				unknown++
				continue
			}
			if lines[i] != wanted[i] {
				w.t.Errorf("message %d of %s is\n%s\nwant\n%s", i, id, lines[i], wanted[i])
			}
		}
	}
	if unknown > w.cutOff {
		w.t.Errorf("the outcome of %d calls is unknown, of which at most %d were cut off", unknown, w.cutOff)
	}
	// A FinishWith call that was cut off does not complete the turn.
	if unknown == 0 && (!same || got.status != want.status || got.output != want.output) {
		w.t.Errorf("the turn ended %s %s with the messages %v, want %s %s with %v",
			got.status, got.output, got.sessions, want.status, want.output, want.sessions)
	}
}

// begun counts the calls that a process which died now may have started, and which
// must not run again. Of those of phase 2, which run one by one, that is one at most.
func (w *world) begun(ctx context.Context) int {
	w.t.Helper()
	n := 0
	for _, id := range w.family(ctx) {
		messages, err := w.sessions().AllMessages(ctx, id)
		if err != nil {
			w.t.Fatal(err)
		}
		last := 0
		for i := range messages {
			rows, err := w.sessions().Calls(ctx, id, messages[i].ID)
			if err != nil {
				w.t.Fatal(err)
			}
			for j := range rows {
				switch row := &rows[j]; {
				case row.Status != session.CallBegun || row.MayRepeat():
				case row.FinishWith:
					last = 1
				default:
					n++
				}
			}
		}
		n += last
	}
	return n
}

// prefix reads what was committed when the process died, and returns a check that
// none of it changed since.
func (w *world) prefix(ctx context.Context) func() {
	w.t.Helper()
	before := map[string][]session.Message{}
	for _, id := range w.family(ctx) {
		messages, err := w.sessions().AllMessages(ctx, id)
		if err != nil {
			w.t.Fatal(err)
		}
		before[id] = messages
	}
	return func() {
		w.t.Helper()
		for id, before := range before {
			after, err := w.sessions().AllMessages(ctx, id)
			if err != nil {
				w.t.Fatal(err)
			}
			for i := range before {
				if i >= len(after) || !before[i].Equal(&after[i]) {
					w.t.Errorf("message %d of %s was committed and then changed", i, id)
				}
			}
		}
	}
}
