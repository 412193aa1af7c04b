package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/server/aisdk"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

type city struct {
	City string `json:"city"`
}

type item struct {
	N int `json:"n"`
}

// desk is an agent that does what the last message names.
func desk(script map[string]scripted.Step) *helix.Agent {
	deletes := helix.Tool{
		Name: "delete", Approval: helix.RequireApproval,
		Execute: helix.Func(func(_ context.Context, _ *helix.Call, in item) (string, error) {
			return fmt.Sprint("deleted ", in.N), nil
		}),
	}
	scout := &helix.Agent{Name: "scout", Tools: []helix.Tool{deletes}, Model: speaker(func(r *llm.Request) scripted.Step {
		if strings.HasPrefix(lastText(r), "result ") {
			return scripted.Text("scouted: " + lastText(r))
		}
		return scripted.Reply(scripted.Say("I will clean up."), scripted.Calling("delete", item{9}))
	})}
	steps := map[string]scripted.Step{
		"hello":    scripted.Reply(scripted.Think("A greeting."), scripted.Say("Hello, how are you?")),
		"weather":  scripted.Reply(scripted.Say("Looking."), scripted.Calling("weather", city{"Rome"}), scripted.Calling("weather", city{"Oslo"})),
		"where":    scripted.Call("locate", city{"here"}),
		"delete":   scripted.Reply(scripted.Calling("delete", item{1}), scripted.Calling("delete", item{2}), scripted.Calling("weather", city{"Rome"})),
		"scout":    scripted.Call("subagent__scout", map[string]string{"task": "tidy"}),
		"both":     scripted.Reply(scripted.Calling("delete", item{1}), scripted.Calling("subagent__scout", map[string]string{"task": "tidy"})),
		"failures": scripted.Fail(session.CodeAuth, false, "the key sk-123 is wrong"),
	}
	maps.Copy(steps, script)
	return &helix.Agent{
		Name: "desk", SubAgents: []helix.SubAgent{{Agent: scout}},
		Model: speaker(func(r *llm.Request) scripted.Step {
			text := lastText(r)
			if step, ok := steps[text]; ok {
				return step
			}
			return scripted.Text("So: " + text)
		}),
		Tools: []helix.Tool{
			{Name: "weather", ReadOnly: true, Execute: helix.Func(func(_ context.Context, _ *helix.Call, in city) (string, error) {
				if in.City == "Oslo" {
					return "", fmt.Errorf("no weather in %s", in.City)
				}
				return "sun in " + in.City, nil
			})},
			{Name: "locate", Execute: helix.OnClient[city]()},
			deletes,
		},
	}
}

// page is a browser's page with a chat, as useChat keeps it.
type page struct {
	*service
	id       string
	messages []aisdk.Message
	failed   string // the text of an error chunk
	done     bool   // the last stream came to its end
	next     int
}

func (s *service) page(id string) *page { return &page{service: s, id: id} }

// copy is the same page once more.
func (p *page) copy() *page {
	p.t.Helper()
	other := *p
	other.messages = nil
	raw, err := json.Marshal(p.messages)
	if err == nil {
		err = json.Unmarshal(raw, &other.messages)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return &other
}

// say sends a message of the user and reads the reply.
func (p *page) say(text string) *aisdk.Message {
	p.t.Helper()
	p.next++
	p.messages = append(p.messages, aisdk.Message{
		ID: fmt.Sprintf("u%d", p.next), Role: "user", Parts: []aisdk.Part{{Type: aisdk.PartText, Text: text}},
	})
	return p.send(aisdk.TriggerSubmit, "")
}

func (p *page) send(trigger, messageID string) *aisdk.Message {
	p.t.Helper()
	status, header, raw := p.fetch(http.MethodPost, "/chat?sdk=7", p.body(trigger, messageID))
	return p.take(status, header, raw, false)
}

// body is what useChat posts.
func (p *page) body(trigger, messageID string) map[string]any {
	body := map[string]any{"id": p.id, "messages": p.messages, "trigger": trigger, "colour": "blue"}
	if messageID != "" {
		body["messageId"] = messageID
	}
	return body
}

// fetch reads an answer to its end.
func (p *page) fetch(method, path string, body any) (status int, header http.Header, raw []byte) {
	p.t.Helper()
	answer := p.request(method, path, body)
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return answer.StatusCode, answer.Header, raw
}

// resume reads the reply that is being made, or nothing.
func (p *page) resume(query string) *aisdk.Message {
	p.t.Helper()
	status, header, raw := p.fetch(http.MethodGet, "/chat/"+p.id+"/stream?sdk=7"+query, nil)
	if status == http.StatusNoContent {
		return nil
	}
	return p.take(status, header, raw, true)
}

// take applies a stream as the client does. One that is resumed is a replay.
func (p *page) take(status int, header http.Header, raw []byte, replay bool) *aisdk.Message {
	p.t.Helper()
	if status != http.StatusOK {
		p.t.Fatalf("the chat answers %d: %s", status, raw)
	}
	for name, want := range map[string]string{
		"Content-Type": "text/event-stream", "X-Vercel-Ai-Ui-Message-Stream": "v1", "Cache-Control": "no-cache", "X-Accel-Buffering": "no",
	} {
		if got := header.Get(name); got != want {
			p.t.Errorf("the header %s is %q", name, got)
		}
	}
	return p.apply(raw, replay)
}

func (p *page) apply(raw []byte, replay bool) *aisdk.Message {
	p.t.Helper()
	var m aisdk.Message
	if last := len(p.messages) - 1; !replay && last >= 0 && p.messages[last].Role == "assistant" {
		m, p.messages = p.messages[last], p.messages[:last]
	} else {
		m = aisdk.Message{Role: "assistant"}
	}
	events, _ := parseEvents(raw)
	p.done, p.failed = false, ""
	for i, e := range events {
		if e.data == aisdk.Done {
			p.done = i == len(events)-1
			continue
		}
		var c aisdk.Chunk
		if err := json.Unmarshal([]byte(e.data), &c); err != nil || e.kind != "" {
			p.t.Fatalf("%+v is no chunk: %v", e, err)
		}
		if i == 0 && (c.Type != aisdk.TypeStart || c.MessageID == "") {
			p.t.Errorf("the stream begins with %s", e.data)
		}
		if c.Type == aisdk.TypeError {
			p.failed = c.ErrorText
		}
		m.Apply(&c)
	}
	p.messages = append(p.messages, m)
	return &p.messages[len(p.messages)-1]
}

func (p *page) history() aisdk.Chat {
	p.t.Helper()
	return call[aisdk.Chat](p.service, http.StatusOK, http.MethodGet, "/chat/"+p.id+"/messages?sdk=7", nil)
}

// same wants a reload to show what the page shows.
func (p *page) same() {
	p.t.Helper()
	if got, want := shown(p.history().Messages), shown(p.messages); got != want {
		p.t.Errorf("after a reload\n%s\nbefore\n%s", got, want)
	}
}

// shown renders what a person sees of messages.
func shown(messages []aisdk.Message) string {
	var b strings.Builder
	for _, m := range messages {
		fmt.Fprintf(&b, "%s %s\n", m.Role, m.ID)
		for _, part := range m.Parts {
			if strings.HasPrefix(part.Type, "data-subagent") {
				continue
			}
			part.ID = ""
			if part.State == aisdk.StateDone {
				part.State = ""
			}
			raw, _ := json.Marshal(part)
			fmt.Fprintf(&b, "  %s\n", raw)
		}
	}
	return b.String()
}

func (p *page) tool(name string, nth int) *aisdk.Part {
	p.t.Helper()
	last := &p.messages[len(p.messages)-1]
	for i := range last.Parts {
		if part := &last.Parts[i]; part.Type == aisdk.PartTool && part.Tool == name {
			if nth == 0 {
				return part
			}
			nth--
		}
	}
	p.t.Fatalf("there is no call of %s in\n%s", name, shown(p.messages))
	return nil
}

// approve answers as addToolApprovalResponse does.
func (p *page) approve(part *aisdk.Part, approved bool) {
	p.t.Helper()
	if part.State != aisdk.StateApprovalRequested {
		p.t.Fatalf("%s is %s, not to be approved", part.Tool, part.State)
	}
	part.State, part.Approval = aisdk.StateApprovalResponded, &aisdk.Approval{ID: part.Approval.ID, Approved: &approved}
}

func TestChat(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		p := serve(t, db, []*helix.Agent{desk(nil)}, nil).page("chat-1")
		if p.resume("") != nil {
			t.Error("a chat that was never begun has a stream")
		}
		reply := p.say("hello")
		if reply.ID != "u1.reply" || !p.done || reply.Metadata.Status != "completed" || reply.Metadata.SessionID != "chat-1" {
			t.Errorf("the reply is %s", shown(p.messages))
		}
		p.same()
		p.say("weather")
		if p.tool("weather", 0).State != aisdk.StateOutputAvailable || p.tool("weather", 1).State != aisdk.StateOutputError {
			t.Errorf("the calls are %s", shown(p.messages))
		}
		p.same()
		if p.resume("") != nil {
			t.Error("a chat that is done has a stream")
		}
		if chat := p.history(); chat.Running || len(chat.Waiting) != 0 || len(chat.Messages) != 4 {
			t.Errorf("the chat is %+v", chat)
		}
		p.messages = p.messages[:3]
		p.send(aisdk.TriggerSubmit, "") // the answer was lost, and the message is sent again
		p.same()
		if runs := call[wire.RunPage](p.service, http.StatusOK, http.MethodGet, "/sessions/chat-1/runs", nil); len(runs.Items) != 2 {
			t.Errorf("there were %d runs", len(runs.Items))
		}
	})
}

func TestChatAnswers(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		p := serve(t, db, []*helix.Agent{desk(nil)}, nil).page("chat-1")
		p.say("where")
		p.same()
		part := p.tool("locate", 0)
		if part.State != aisdk.StateInputAvailable {
			t.Fatalf("the client's call is %s", part.State)
		}
		part.State, part.Output = aisdk.StateOutputAvailable, json.RawMessage(`{"lat":1}`)
		reply := p.send(aisdk.TriggerSubmit, "")
		if len(p.messages) != 2 || reply.ID != "u1.reply" || !strings.Contains(shown(p.messages), `So: result {\"lat\":1}`) {
			t.Errorf("after the answer: %s", shown(p.messages))
		}
		p.same()

		p.say("delete")
		p.same()
		p.approve(p.tool("delete", 0), true)
		p.approve(p.tool("delete", 1), false)
		before := shown(p.messages)
		lost := p.copy()
		p.send(aisdk.TriggerSubmit, "")
		if shown(lost.messages) != before {
			t.Fatal("the copy is none")
		}
		lost.send(aisdk.TriggerSubmit, "") // the answer was lost, and the same is sent again
		lost.same()
		if p.tool("delete", 0).State != aisdk.StateOutputAvailable || p.tool("delete", 1).State != aisdk.StateOutputDenied {
			t.Errorf("after the answers: %s", shown(p.messages))
		}
		p.same()
		if len(p.messages) != 4 {
			t.Errorf("there are %d messages", len(p.messages))
		}
	})
}

// Calls of sub-agents are answered like any other.
func TestChatNestedApproval(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		p := serve(t, db, []*helix.Agent{desk(nil)}, nil).page("chat-1")
		p.say("scout")
		if outer := p.tool("subagent__scout", 0); string(outer.Output) != `{"status":"waiting"}` {
			t.Errorf("the outer call has the output %s", outer.Output)
		}
		p.same()
		p.approve(p.tool("delete", 0), true)
		p.send(aisdk.TriggerSubmit, "")
		if p.tool("delete", 0).State != aisdk.StateOutputAvailable || !strings.Contains(string(p.tool("subagent__scout", 0).Output), "deleted 9") {
			t.Errorf("after the answer: %s", shown(p.messages))
		}
		p.same()

		p.say("both")
		p.same()
		p.approve(p.tool("delete", 0), false) // one of two
		p.send(aisdk.TriggerSubmit, "")
		p.same()
		p.approve(p.tool("delete", 1), false)
		p.send(aisdk.TriggerSubmit, "")
		p.same()
		if chat := p.history(); len(chat.Waiting) != 0 || len(p.messages) != 4 {
			t.Errorf("the chat is %+v", chat)
		}
	})
}

// A user who continues without answering gets a reply, and the calls that waited have
// an end after a reload.
func TestChatAbandonsWhatWaits(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		p := serve(t, db, []*helix.Agent{desk(nil)}, nil).page("chat-1")
		p.say("both")
		p.messages = append(p.messages, aisdk.Message{ID: "u2", Role: "user", Parts: []aisdk.Part{{Type: aisdk.PartText, Text: "hello"}}})
		body := p.body(aisdk.TriggerSubmit, "")
		body["abandonPending"] = true
		status, header, raw := p.fetch(http.MethodPost, "/chat?sdk=7", body)
		if told := strings.Count(string(raw), `"data-tool-end"`); told != 2 {
			t.Errorf("an open page is told of %d calls that have ended, and 2 have", told)
		}
		p.take(status, header, raw, false)
		chat := p.history()
		if len(chat.Waiting) != 0 || len(chat.Messages) != 4 {
			t.Fatalf("the chat is %s", shown(chat.Messages))
		}
		for _, part := range chat.Messages[1].Parts {
			if part.Type == aisdk.PartTool && part.State != aisdk.StateOutputError {
				t.Errorf("%s is left %s", part.Tool, part.State)
			}
		}
		if got, want := shown(chat.Messages[2:]), shown(p.messages[2:]); got != want {
			t.Errorf("after a reload\n%s\nbefore\n%s", got, want)
		}
	})
}

// gated is a model whose reply comes in pieces, each when it is let go.
type gated struct {
	pieces []string
	gate   chan struct{}
}

func (g *gated) Generate(ctx context.Context, _ *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	for _, piece := range g.pieces {
		select {
		case <-g.gate:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		emit(llm.Delta{Kind: llm.DeltaText, Text: piece})
	}
	return &llm.Response{Parts: []session.Part{session.Text(strings.Join(g.pieces, ""))}}, nil
}

// open reads a stream in the background; wait gives what the page then shows.
func (p *page) open(method, path string, body any, replay bool) (wait func() string) {
	p.t.Helper()
	answer := p.request(method, path, body)
	p.t.Cleanup(func() { answer.Body.Close() })
	all := make(chan []byte, 1)
	go func() {
		raw, _ := io.ReadAll(answer.Body) // what is missing shows
		all <- raw
	}()
	return func() string {
		p.t.Helper()
		p.apply(<-all, replay)
		return shown(p.messages)
	}
}

// A page that is opened at any moment of a reply loses and doubles nothing.
func TestChatReloadAtAnyMoment(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		model := &gated{pieces: []string{"One ", "two ", "three ", "four."}, gate: make(chan struct{})}
		s := serve(t, db, []*helix.Agent{{Name: "slow", Model: model}}, nil)
		first := s.page("chat-1")
		first.messages = []aisdk.Message{{ID: "u1", Role: "user", Parts: []aisdk.Part{{Type: aisdk.PartText, Text: "count"}}}}
		waits := []func() string{first.open(http.MethodPost, "/chat?sdk=7", first.body(aisdk.TriggerSubmit, ""), false)}
		for range model.pieces {
			p := s.page("chat-1")
			chat := p.history()
			if !chat.Running || len(chat.Messages) != 1 {
				t.Fatalf("while it runs the chat is %+v", chat)
			}
			p.messages = chat.Messages
			waits = append(waits, p.open(http.MethodGet, "/chat/chat-1/stream?sdk=7", nil, true))

			p = s.page("chat-1") // one that wants only the tail
			chat = call[aisdk.Chat](p.service, http.StatusOK, http.MethodGet, "/chat/chat-1/messages?sdk=7&tail=1", nil)
			p.messages = chat.Messages
			path := fmt.Sprintf("/chat/chat-1/stream?sdk=7&from=%d", chat.Sequence)
			waits = append(waits, p.open(http.MethodGet, path, nil, true))
			model.gate <- struct{}{}
		}
		var got []string
		for _, wait := range waits {
			got = append(got, wait())
		}
		want := shown(s.page("chat-1").history().Messages)
		for i := range got {
			if got[i] != want {
				t.Errorf("page %d shows\n%s\nwant\n%s", i, got[i], want)
			}
		}
		if !strings.Contains(want, "One two three four.") {
			t.Errorf("the reply is %s", want)
		}
		late := s.page("chat-1") // one that read the chat while it ran, and comes too late for the stream
		late.messages = late.history().Messages[:1]
		late.resume("&run=" + late.history().RunID)
		if shown(late.messages) != want {
			t.Errorf("a page that comes late shows\n%s\nwant\n%s", shown(late.messages), want)
		}
	})
}

func TestChatStop(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		model := &gated{pieces: []string{"One ", "two "}, gate: make(chan struct{})}
		s := serve(t, db, []*helix.Agent{{Name: "slow", Model: model}}, nil)
		p := s.page("chat-1")
		p.messages = []aisdk.Message{{ID: "u1", Role: "user", Parts: []aisdk.Part{{Type: aisdk.PartText, Text: "count"}}}}
		wait := p.open(http.MethodPost, "/chat?sdk=7", p.body(aisdk.TriggerSubmit, ""), false)
		model.gate <- struct{}{}
		call[wire.Stopping](s, http.StatusAccepted, http.MethodPost, "/chat/chat-1/interrupt", wire.ChatStop{Reason: "enough"})
		wait()
		last := p.messages[len(p.messages)-1]
		if !p.done || p.failed != "" || last.Metadata.Status != "interrupted" {
			t.Errorf("the stream ended with %q, %+v", p.failed, last.Metadata)
		}
		if !strings.Contains(shown(p.messages), "One") {
			t.Errorf("the page shows %s", shown(p.messages))
		}
		p.same()
		if got := s.page("chat-1").resume(""); got != nil {
			t.Error("a chat that was stopped has a stream")
		}
	})
}

func TestChatRegenerateAndEdit(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		p := serve(t, db, []*helix.Agent{desk(nil)}, nil).page("chat-1")
		p.say("hello")
		p.say("weather")
		p.messages = p.messages[:3]
		p.send(aisdk.TriggerRegenerate, "u2.reply")
		p.same()
		p.messages = p.messages[:1]
		p.send(aisdk.TriggerRegenerate, "u1.reply")
		p.same()
		if len(p.messages) != 2 {
			t.Errorf("there are %d messages", len(p.messages))
		}
		p.next = 2
		p.say("one") // u3
		p.messages = p.messages[:3]
		p.messages[2].Parts[0].Text = "another"
		p.send(aisdk.TriggerSubmit, "u3")
		if !strings.Contains(shown(p.messages), "So: another") {
			t.Errorf("after the edit: %s", shown(p.messages))
		}
		p.same()
		runs := func() int {
			return len(call[wire.RunPage](p.service, http.StatusOK, http.MethodGet, "/sessions/chat-1/runs", nil).Items)
		}
		before := runs()
		p.messages = p.messages[:3]
		p.send(aisdk.TriggerSubmit, "u3") // sent again as it was: useChat does so after a lost connection
		p.same()
		if n := runs(); n != before {
			t.Errorf("a message that was sent again led to %d runs, from %d", n, before)
		}
		// Its retry button sends what never arrived as something to make anew.
		p.messages = append(p.messages, aisdk.Message{ID: "u4", Role: "user", Parts: []aisdk.Part{{Type: aisdk.PartText, Text: "lost"}}})
		p.send(aisdk.TriggerRegenerate, "")
		if !strings.Contains(shown(p.messages), "So: lost") {
			t.Errorf("after the retry: %s", shown(p.messages))
		}
		p.same()
		fresh := p.service.page("chat-2")
		fresh.messages = []aisdk.Message{{ID: "v1", Role: "user", Parts: []aisdk.Part{{Type: aisdk.PartText, Text: "hello"}}}}
		fresh.send(aisdk.TriggerRegenerate, "")
		fresh.same()

		p.messages = p.messages[:1]
		p.refusedSend(http.StatusNotFound, session.CodeNotFound, aisdk.TriggerRegenerate, "u9.reply")
		p.messages[0].Parts[0].Text = "hello, but otherwise"
		p.refusedSend(http.StatusConflict, session.CodeNotResumable, aisdk.TriggerSubmit, "u1")
		p.next = 4
		p.say("failures")
	})
}

// A message that left calls open behind has no checkpoint before it. Whoever edits it
// keeps the reply that made the calls.
func TestChatEditKeepsAReplyThatWasLeftWaiting(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		p := serve(t, db, []*helix.Agent{desk(nil)}, nil).page("chat-1")
		p.say("hello")
		p.say("both")
		p.messages = append(p.messages, aisdk.Message{ID: "u3", Role: "user", Parts: []aisdk.Part{{Type: aisdk.PartText, Text: "one"}}})
		body := p.body(aisdk.TriggerSubmit, "")
		body["abandonPending"] = true
		status, header, raw := p.fetch(http.MethodPost, "/chat?sdk=7", body)
		p.take(status, header, raw, false)
		before := p.history().Messages
		for _, text := range []string{"another", "a third"} { // an edit can be edited
			p.messages = before[:4:4]
			p.messages = append(p.messages, aisdk.Message{ID: "u3", Role: "user", Parts: []aisdk.Part{{Type: aisdk.PartText, Text: text}}})
			p.send(aisdk.TriggerSubmit, "u3")
			after := p.history().Messages
			if len(after) != 6 || !strings.Contains(shown(after[5:]), "So: "+text) {
				t.Fatalf("after the edit the chat is %s", shown(after))
			}
			if got, want := shown(after[:4]), shown(before[:4]); got != want {
				t.Errorf("after the edit the chat begins with\n%s\nand began with\n%s", got, want)
			}
			p.messages = after[:5:5]
			p.send(aisdk.TriggerRegenerate, "u3.reply")
			p.same()
		}
	})
}

// A turn that an application began with a message and a hidden one beside it can be
// made anew and edited like any other.
func TestChatGoesBackToATurnWithHiddenMessages(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		agent := desk(nil)
		s := serve(t, db, []*helix.Agent{agent}, nil)
		for i, hidden := range [][]bool{{false, true, true}, {true, false}} {
			id := fmt.Sprintf("chat-%d", i+1)
			p := s.page(id)
			p.say("hello")
			in := helix.Input{SessionID: id, User: helix.User{ID: "alice"}}
			for j, h := range hidden {
				m := session.UserText(fmt.Sprint("note ", j))
				if m.ID = "u2"; h {
					m = helix.Hidden(m)
					m.ID = fmt.Sprint("h", j)
				}
				in.Messages = append(in.Messages, m)
			}
			run, err := s.runtime.Tenant("north").Execute(t.Context(), agent, in)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := run.Result(t.Context()); err != nil {
				t.Fatal(err)
			}
			p.messages = p.history().Messages
			want := shown(p.messages)
			p.messages = p.messages[:3]
			p.send(aisdk.TriggerRegenerate, "u2.reply")
			p.same()
			if got := shown(p.messages); len(p.messages) != 4 || got != want {
				t.Errorf("made anew, the chat is\n%s\nand was\n%s", got, want)
			}
			p.messages = p.messages[:3]
			p.messages[2].Parts[0].Text = "another"
			p.send(aisdk.TriggerSubmit, "u2")
			p.same()
			if len(p.messages) != 4 || !strings.Contains(shown(p.messages), "So: another") {
				t.Errorf("after the edit: %s", shown(p.messages))
			}
		}
	})
}

func (p *page) refusedSend(status int, code session.Code, trigger, messageID string) {
	p.t.Helper()
	got, _, raw := p.fetch(http.MethodPost, "/chat?sdk=7", p.body(trigger, messageID))
	var body wire.Error
	if got != status || json.Unmarshal(raw, &body) != nil || body.Code != code || body.Message == "" {
		p.t.Errorf("the chat answers %d %s, not %d %s", got, raw, status, code)
	}
}

// A request that fails is an HTTP error with a code, never an empty stream.
func TestChatFailuresAreTyped(t *testing.T) {
	t.Parallel()
	db := inMemory(t)
	model := &gated{pieces: []string{"x"}, gate: make(chan struct{})}
	s := serve(t, db, []*helix.Agent{desk(nil), {Name: "slow", Model: model}}, nil)
	text := []map[string]any{{"id": "u1", "role": "user", "parts": []map[string]any{{"type": "text", "text": "hello"}}}}
	for _, c := range []struct {
		status int
		code   session.Code
		field  string
		body   any
	}{
		{400, session.CodeInvalid, "messages", map[string]any{"id": "a"}},
		{400, session.CodeInvalid, "messages", map[string]any{"id": "a", "messages": 7}},
		{400, session.CodeInvalid, "messages[0].parts[0]", map[string]any{"id": "a", "messages": []any{map[string]any{"role": "user", "parts": []any{1}}}}},
		{400, session.CodeInvalid, "id", map[string]any{"id": "../a", "messages": text}},
		{400, session.CodeInvalid, "trigger", map[string]any{"id": "a", "messages": text, "trigger": "x"}},
		{404, session.CodeUnknownAgent, "agent", map[string]any{"id": "a", "messages": text, "agent": "nobody"}},
		{404, session.CodeNotFound, "", map[string]any{"id": "a", "trigger": "regenerate-message"}},
		{404, session.CodeNotFound, "", map[string]any{"id": "a", "messages": []any{map[string]any{"id": "x", "role": "assistant", "parts": []any{}}}}},
	} {
		if got := s.refused(c.status, c.code, http.MethodPost, "/chat", c.body); got.Field != c.field {
			t.Errorf("%v: the field is %q, not %q", c.body, got.Field, c.field)
		}
	}
	s.refused(400, session.CodeInvalid, http.MethodPost, "/chat?sdk=4", map[string]any{"id": "a", "messages": text})

	waiting := s.page("waiting")
	waiting.say("where")
	waiting.messages = append(waiting.messages, aisdk.Message{ID: "u2", Role: "user", Parts: []aisdk.Part{{Type: aisdk.PartText, Text: "hello"}}})
	waiting.refusedSend(http.StatusConflict, session.CodeAwaiting, aisdk.TriggerSubmit, "")
	waiting.messages = waiting.messages[:2]
	waiting.refusedSend(http.StatusConflict, session.CodeAwaiting, aisdk.TriggerSubmit, "") // without an answer

	other := s.as("bob-token").page("waiting")
	other.messages = waiting.messages
	other.refusedSend(http.StatusNotFound, session.CodeNotFound, aisdk.TriggerSubmit, "")
	other.refused(http.StatusNotFound, session.CodeNotFound, http.MethodGet, "/chat/waiting/messages", nil)
	if other.resume("&run=x") != nil {
		t.Error("a stream of somebody else's chat is shown")
	}
	other.refused(http.StatusNotFound, session.CodeNotFound, http.MethodPost, "/chat/waiting/interrupt", "{}")
	other.refused(http.StatusNotFound, session.CodeNotFound, http.MethodPost, "/chat/waiting/submit-tool-result",
		map[string]any{"toolCallId": waiting.tool("locate", 0).CallID, "result": 1})

	done := s.page("done")
	done.say("hello")
	done.refusedSend(http.StatusConflict, session.CodeNotResumable, aisdk.TriggerSubmit, "") // answers that nobody waits for

	failing := s.page("failing")
	failing.say("failures")
	if failing.failed != wire.Explain(session.CodeAuth) || !failing.done {
		t.Errorf("the failure is told as %q", failing.failed)
	}

	running := s.page("running")
	running.messages = []aisdk.Message{{ID: "u1", Role: "user", Parts: []aisdk.Part{{Type: aisdk.PartText, Text: "x"}}}}
	body := map[string]any{"id": "running", "agent": "slow", "messages": running.messages}
	wait := running.open(http.MethodPost, "/chat", body, false)
	running.messages = append(slices.Clip(running.messages), aisdk.Message{ID: "u2", Role: "user", Parts: running.messages[0].Parts})
	running.refusedSend(http.StatusConflict, session.CodeRunning, aisdk.TriggerSubmit, "")
	model.gate <- struct{}{}
	wait()
}

// A page that continues the stream has what is committed of a reply of several steps, and no more.
func TestChatTail(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		gate := make(chan struct{})
		agent := desk(map[string]scripted.Step{
			`result {"code":"tool_execution_failed","error":"no weather in Oslo"}`: scripted.Reply(
				scripted.Say("It is "), scripted.Until(gate), scripted.Say("fine.")),
		})
		s := serve(t, db, []*helix.Agent{agent}, nil)
		first := s.page("chat-1")
		first.messages = []aisdk.Message{{ID: "u1", Role: "user", Parts: []aisdk.Part{{Type: aisdk.PartText, Text: "weather"}}}}
		wait := first.open(http.MethodPost, "/chat?sdk=7", first.body(aisdk.TriggerSubmit, ""), false)
		s.untilText("chat-1", `"delta":"It`)

		p := s.page("chat-1")
		chat := call[aisdk.Chat](s, http.StatusOK, http.MethodGet, "/chat/chat-1/messages?sdk=7&tail=1", nil)
		if !chat.Running || len(chat.Messages) != 2 || p.history().Sequence != chat.Sequence {
			t.Fatalf("while it runs the chat is %s", shown(chat.Messages))
		}
		p.messages = chat.Messages
		tail := p.open(http.MethodGet, fmt.Sprintf("/chat/chat-1/stream?sdk=7&from=%d", chat.Sequence), nil, false)
		again := s.page("chat-1")
		again.messages = again.history().Messages
		whole := again.open(http.MethodGet, "/chat/chat-1/stream?sdk=7", nil, true)
		close(gate)
		live := wait()
		if got := tail(); got != live {
			t.Errorf("a page that continues the stream shows\n%s\nnot\n%s", got, live)
		}
		if got := whole(); got != live {
			t.Errorf("a page that reads all shows\n%s\nnot\n%s", got, live)
		}
		first.same()
	})
}

// Answers may say which kind they are of, as clients of the TypeScript framework do. One
// of another kind than the call waits for is refused, and changes nothing.
func TestSubmitKinds(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		steps := map[string]scripted.Step{"erase": scripted.Call("delete", item{3})}
		s := serve(t, db, []*helix.Agent{desk(steps)}, nil)
		for i, c := range []struct {
			say    string
			answer map[string]any
			wrong  map[string]any // it is refused first
			want   string
		}{
			{
				"where",
				map[string]any{"kind": "client-tool-result", "result": map[string]int{"lat": 1}},
				map[string]any{"kind": "approval-response", "approvalId": "apr_1", "approved": true},
				`So: result {\"lat\":1}`,
			},
			{
				"where",
				map[string]any{"kind": "client-tool-result", "error": "no signal"},
				map[string]any{"kind": "approval-response", "approvalId": "apr_1", "approved": false},
				"no signal",
			},
			{
				"erase",
				map[string]any{"kind": "approval-response", "approved": true, "reason": "fine"},
				map[string]any{"kind": "client-tool-result", "result": "deleted"},
				"deleted 3",
			},
			{
				"erase",
				map[string]any{"kind": "approval-response", "approved": false, "reason": "too old"},
				map[string]any{"kind": "approval-response", "approvalId": "apr_other", "approved": true},
				"too old",
			},
		} {
			id := fmt.Sprint("chat-", i+1)
			s.page(id).say(c.say)
			for _, chat := range []bool{i%2 == 0, i%2 == 1} {
				target := "/submit-tool-result"
				if chat {
					target = "/chat/" + id + "/submit-tool-result"
				}
				waiting := s.page(id).history().Waiting
				if len(waiting) == 0 { // the answer was taken: it is sent again
					done := call[wire.Submitted](s, http.StatusOK, http.MethodPost, target, c.answer)
					if done.Outcome != session.SubmitAlreadyCompleted {
						t.Errorf("an answer that is sent again is %s", done.Outcome)
					}
					continue
				}
				for _, body := range []map[string]any{c.wrong, c.answer} {
					if body["toolCallId"] = waiting[0].CallID; body["kind"] == "approval-response" && body["approvalId"] == nil {
						body["approvalId"] = waiting[0].ApprovalID
					}
				}
				if !chat {
					c.wrong["sessionId"], c.answer["sessionId"] = id, id
				}
				s.refused(http.StatusBadRequest, session.CodeSubmission, http.MethodPost, target, c.wrong)
				c.answer["resume"] = true
				if done := call[wire.Submitted](s, http.StatusOK, http.MethodPost, target, c.answer); done.Outcome != session.SubmitAccepted {
					t.Errorf("%v is %s", c.answer, done.Outcome)
				}
				s.settle(id)
				if got := shown(s.page(id).history().Messages); !strings.Contains(got, c.want) {
					t.Errorf("after %v the chat is %s", c.answer, got)
				}
				if delete(c.answer, "sessionId"); chat {
					c.answer["sessionId"] = id
				}
			}
		}
	})
}

// Answers that another page has given, and after which it has resumed, lead to all of what came of
// them.
func TestChatAnswersOfAnotherPage(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		gate := make(chan struct{})
		agent := desk(map[string]scripted.Step{
			`result {"lat":1}`: scripted.Reply(scripted.Say("It is "), scripted.Until(gate), scripted.Say("here.")),
		})
		s := serve(t, db, []*helix.Agent{agent}, nil)
		p := s.page("chat-1")
		p.say("where")
		part := p.tool("locate", 0)
		call[wire.Submitted](s, http.StatusOK, http.MethodPost, "/chat/chat-1/submit-tool-result",
			map[string]any{"toolCallId": part.CallID, "result": map[string]int{"lat": 1}, "resume": true})
		s.untilText("chat-1", `"delta":"It`)
		part.State, part.Output = aisdk.StateOutputAvailable, json.RawMessage(`{"lat":1}`)
		late := p.open(http.MethodPost, "/chat?sdk=7", p.body(aisdk.TriggerSubmit, ""), false)

		// A page that continues from what was committed has the step that waited, too.
		other := s.page("chat-1")
		chat := call[aisdk.Chat](s, http.StatusOK, http.MethodGet, "/chat/chat-1/messages?sdk=7&tail=1", nil)
		other.messages = chat.Messages
		tail := other.open(http.MethodGet, fmt.Sprintf("/chat/chat-1/stream?sdk=7&from=%d", chat.Sequence), nil, false)
		close(gate)
		if got := late(); !strings.Contains(got, "It is here.") {
			t.Errorf("the page shows\n%s", got)
		}
		p.same()
		if got := tail(); !strings.Contains(got, `"locate"`) || !strings.Contains(got, "It is here.") {
			t.Errorf("the page that continues the stream shows\n%s", got)
		}
	})
}

// A client that goes away stops nothing.
func TestChatContinuesWithoutItsReader(t *testing.T) {
	t.Parallel()
	model := &gated{pieces: []string{"One ", "two."}, gate: make(chan struct{})}
	s := serve(t, inMemory(t), []*helix.Agent{{Name: "slow", Model: model}}, nil)
	p := s.page("chat-1")
	p.messages = []aisdk.Message{{ID: "u1", Role: "user", Parts: []aisdk.Part{{Type: aisdk.PartText, Text: "count"}}}}
	answer := p.request(http.MethodPost, "/chat?sdk=7", p.body(aisdk.TriggerSubmit, ""))
	first := make([]byte, 16)
	if _, err := io.ReadFull(answer.Body, first); err != nil || !bytes.HasPrefix(first, []byte(`data: {"type":"s`)) {
		t.Fatalf("the stream begins with %q: %v", first, err)
	}
	answer.Body.Close()
	model.gate <- struct{}{}
	model.gate <- struct{}{}
	s.settle("chat-1")
	if got := shown(p.history().Messages); !strings.Contains(got, "One two.") {
		t.Errorf("the reply is %s", got)
	}
}
