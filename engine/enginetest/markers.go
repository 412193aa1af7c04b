package enginetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// summary is the text of a summary. It says for how many replies it stands, so that the
// model knows its place.
const summary = "Summary of %d replies."

// every is a policy that compacts the conversation as soon as the model would be sent more
// than so many steps of one call, and keeps the last step. It counts the summaries.
func every(steps int, asked *atomic.Int64) *helix.ContextPolicy {
	return &helix.ContextPolicy{
		TriggerMessages: 2*steps + 2, KeepMessages: 2, Model: counting{asked}, Prompt: "Before: {previous}\n\n{messages}",
	}
}

// compactionWay is how a conversation is compacted.
type compactionWay string

const (
	byTrim     compactionWay = "trim"
	byOverflow compactionWay = "overflow"
)

// policy returns the policy for it; see every.
func (c compactionWay) policy(steps int, asked *atomic.Int64) *helix.ContextPolicy {
	p := every(steps, asked)
	switch c {
	case byTrim: // each result has about 340 tokens, of which a trim leaves 60
		p.TriggerMessages, p.TriggerTokens, p.TrimResults = helix.Unlimited, 400*steps, 200
	case byOverflow:
		p.TriggerMessages, p.TriggerTokens, p.TriggerFraction = helix.Unlimited, helix.Unlimited, helix.Unlimited
	}
	return p
}

// padding is how much longer results are, so that compacting them has an effect.
func (c compactionWay) padding() int {
	if c == byTrim {
		return 1_200
	}
	return 300
}

// refuses reports whether the model refuses a prompt.
func (w *world) refuses(request *llm.Request) bool {
	return w.compaction == byOverflow && len(request.Messages) > 2*w.markers+2
}

// counting is a model that summarises by counting replies. What it returns depends on what
// it is sent alone, so that every process decides the same.
type counting struct{ asked *atomic.Int64 }

func (m counting) Generate(_ context.Context, request *llm.Request, _ func(llm.Delta)) (*llm.Response, error) {
	m.asked.Add(1)
	return saying(countReplies(request)), nil
}

// countReplies is the summary of what a request has as text.
func countReplies(request *llm.Request) string {
	prompt := request.Messages[0].Content()
	return fmt.Sprintf(summary, countIn(prompt)+strings.Count(prompt, "[assistant]\n"))
}

// saying is a reply of a text.
func saying(text string) *llm.Response {
	return &llm.Response{
		Parts: []session.Part{session.Text(text)}, Finish: llm.FinishStop, Model: "summariser", Usage: session.Usage{InputTokens: 100, OutputTokens: 10},
	}
}

// countIn is the number of a summary in a text.
func countIn(text string) (n int) {
	if at := strings.Index(text, "Summary of "); at >= 0 {
		_, _ = fmt.Sscanf(text[at:], summary, &n) // else it is 0
	}
	return n
}

// dropped is how many replies the marker of a view stands for.
func dropped(view []session.Message) int {
	if len(view) > 0 && view[0].Compaction() != nil {
		return countIn(view[0].Content())
	}
	return 0
}

// recalling is a model that knows its place in a conversation from the marker. It refuses
// prompts that are too long, and does not say how long they are where trims depend on it.
type recalling struct {
	llm.Model
	w *world
}

func (m recalling) Generate(ctx context.Context, request *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	if m.w.refuses(request) {
		return nil, llm.Error(session.CodeContextLength, false, "the prompt has %d messages", len(request.Messages))
	}
	whole := *request
	if n := dropped(request.Messages); n > 0 {
		whole.Messages = slices.Repeat([]session.Message{{Role: session.RoleAssistant}}, n)
		whole.Messages = append(whole.Messages, request.Messages...)
	}
	response, err := m.Model.Generate(ctx, &whole, emit)
	if response != nil && m.w.compaction == byTrim {
		response.Usage = session.Usage{}
	}
	return response, err
}

// checkMarkers checks that a session of a turn with markers has them where they
// belong, and that the document leads to its view.
func (w *world) checkMarkers(ctx context.Context, state *session.State, messages []session.Message) {
	w.t.Helper()
	marked := slices.ContainsFunc(messages, func(m session.Message) bool { return m.Compaction() != nil })
	if marked != (w.markers > 0) && (marked || state.ID == sessionID) {
		w.t.Errorf("session %s has markers: %t", state.ID, marked)
	}
	for i := range messages {
		if messages[i].Compaction() == nil {
			continue
		}
		if i > 0 && messages[i-1].Compaction() != nil {
			w.t.Errorf("message %d of session %s is a marker behind a marker", i, state.ID)
		}
	}
	tail, err := session.ReadView(ctx, w.sessions(), state)
	if err != nil {
		w.t.Fatal(err)
	}
	if got, want := Lines(session.View(tail.Messages)), Lines(session.View(messages)); !slices.Equal(got, want) {
		w.t.Errorf("the view of session %s is read as\n%v\nwant\n%v", state.ID, got, want)
	}
	if len(state.Marks) == 0 && marked {
		w.t.Errorf("session %s does not say where its markers are", state.ID)
	}
}

// checkShownMarkers checks that the stream has the markers of the transcript, and says
// where they are: so watchers know which of them a discard after a takeover includes.
func (w *world) checkShownMarkers(id string, chunks []stream.Chunk, messages []session.Message) {
	w.t.Helper()
	shown := map[string]int{}
	for i := range chunks {
		c := &chunks[i]
		if c.AgentID != id || c.Kind != stream.InputReceived || c.Messages[0].Compaction() == nil {
			continue
		}
		if c.MessageCount == nil {
			w.t.Errorf("the chunk of marker %s does not say where it is", c.Messages[0].ID)
			continue
		}
		shown[c.Messages[0].ID] = *c.MessageCount
	}
	for i := range messages {
		if messages[i].Compaction() == nil {
			continue
		}
		if at, ok := shown[messages[i].ID]; !ok || at != i {
			w.t.Errorf("marker %s of session %s is message %d, but the stream has it at %d (%t)", messages[i].ID, id, i, at, ok)
		}
	}
}
