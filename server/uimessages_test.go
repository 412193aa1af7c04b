package server_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/server"
	"github.com/helixagents/helix/server/aisdk"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// messagesOf reads a chat with a query.
func (p *page) messagesOf(query string) aisdk.Chat {
	p.t.Helper()
	return call[aisdk.Chat](p.service, http.StatusOK, http.MethodGet, "/chat/"+p.id+"/messages?sdk=7"+query, nil)
}

func encodedMessages(t *testing.T, messages []aisdk.Message) string {
	t.Helper()
	raw, err := json.MarshalIndent(messages, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// A chat can be read page by page, over HTTP and in Go. The pages are parts of what is
// read at once, and the options leave out what they say.
func TestChatMessagesInPages(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		s := serve(t, db, []*helix.Agent{desk(nil)}, nil)
		p := s.page("chat-1")
		p.say("hello")
		p.say("weather")
		p.say("failures") // which has no reply
		p.say("both")     // it waits
		whole := p.messagesOf("")
		if whole.Total != nil || whole.HasMore != nil || len(whole.Messages) != 7 {
			t.Fatalf("the chat is %s", encodedMessages(t, whole.Messages))
		}
		load := server.UIMessageOptions{Tenant: "north", Version: aisdk.V7}
		for limit := 1; limit <= 9; limit++ {
			var read, loaded []aisdk.Message
			for more := true; more; {
				chat := p.messagesOf(fmt.Sprintf("&offset=%d&limit=%d", len(read), limit))
				opts := load
				opts.Offset, opts.Limit = len(read), limit
				got, err := server.LoadUIMessages(t.Context(), db, p.id, opts)
				if err != nil {
					t.Fatal(err)
				}
				if *chat.Total != 7 || got.Total != 7 || *chat.HasMore != got.HasMore || len(chat.Messages) > limit || len(chat.Waiting) != 2 {
					t.Fatalf("%d messages from %d on, of %d: %+v", len(chat.Messages), len(read), *chat.Total, chat.Waiting)
				}
				read, loaded, more = append(read, chat.Messages...), append(loaded, got.Messages...), *chat.HasMore
			}
			for who, got := range map[string][]aisdk.Message{"over HTTP": read, "in Go": loaded} {
				if got, want := encodedMessages(t, got), encodedMessages(t, whole.Messages); got != want {
					t.Errorf("%s pages of %d are\n%s\nand the whole is\n%s", who, limit, got, want)
				}
			}
		}
		all, err := server.LoadAllUIMessages(t.Context(), db, p.id, load)
		if err != nil || encodedMessages(t, all) != encodedMessages(t, whole.Messages) {
			t.Errorf("all messages: %v\n%s", err, encodedMessages(t, all))
		}
		if past := p.messagesOf("&offset=99"); len(past.Messages) != 0 || *past.HasMore {
			t.Errorf("past the end there is %s", shown(past.Messages))
		}
		load.GenerateID = func(i int, m *aisdk.Message) string { return fmt.Sprint(m.Role, i) }
		load.Offset, load.Limit = 3, 2
		named, err := server.LoadUIMessages(t.Context(), db, p.id, load)
		if err != nil || named.Messages[0].ID != "assistant3" || named.Messages[1].ID != "user4" {
			t.Errorf("with ids of one's own: %v %s", err, encodedMessages(t, named.Messages))
		}
	})
}

func TestChatMessageOptions(t *testing.T) {
	t.Parallel()
	s := serve(t, inMemory(t), []*helix.Agent{desk(nil)}, nil)
	p := s.page("chat-1")
	p.say("hello")
	p.say("weather")
	whole := shown(p.messagesOf("&includeReasoning=true&includeToolResults=1").Messages)
	if whole != shown(p.messagesOf("").Messages) || !strings.Contains(whole, "A greeting.") || !strings.Contains(whole, "sun in Rome") {
		t.Errorf("by default there is %s", whole)
	}
	for query, gone := range map[string]string{"&includeReasoning=false": "A greeting.", "&includeToolResults=0&limit=4": `"sun in Rome"`} {
		got := shown(p.messagesOf(query).Messages)
		if strings.Contains(got, gone) || !strings.Contains(got, "no weather in Oslo") || !strings.Contains(got, "Looking.") {
			t.Errorf("with %s there is %s", query, got)
		}
	}
	for query, field := range map[string]string{
		"limit=0": "limit", "limit=201": "limit", "limit=x": "limit", "offset=-1": "offset", "offset=1.5": "offset",
		"includeReasoning=no": "includeReasoning", "includeToolResults=2": "includeToolResults", "limit=1&tail=1": "tail",
	} {
		status, _, raw := p.fetch(http.MethodGet, "/chat/chat-1/messages?"+query, nil)
		if status != http.StatusBadRequest || !strings.Contains(string(raw), `"field":"`+field+`"`) {
			t.Errorf("%s is answered with %d %s", query, status, raw)
		}
	}
	for field, opts := range map[string]server.UIMessageOptions{
		"Limit": {Tenant: "north", Limit: 201}, "Offset": {Tenant: "north", Offset: -1},
	} {
		_, err := server.LoadUIMessages(t.Context(), s.db, "chat-1", opts)
		if e := session.AsError(err); e == nil || e.Code != session.CodeInvalid || e.Field != field {
			t.Errorf("%+v is answered with %v", opts, err)
		}
	}
	if _, err := server.LoadUIMessages(t.Context(), s.db, "chat-1", server.UIMessageOptions{}); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("the session of another tenant is read: %v", err)
	}
}

// A page of messages ends before it becomes too large, and says that more follow.
func TestChatPagesAreBounded(t *testing.T) {
	t.Parallel()
	s := serve(t, inMemory(t), []*helix.Agent{desk(nil)}, func(cfg *server.Config) { cfg.Limits.PageBytes = 3000 })
	p := s.page("chat-1")
	for range 3 {
		p.say(strings.Repeat("x", 1000))
	}
	chat := p.messagesOf("&offset=1&limit=200")
	if len(chat.Messages) != 2 || !*chat.HasMore || *chat.Total != 6 || chat.Messages[0].ID != "u1.reply" {
		t.Errorf("the page has %d messages, %s", len(chat.Messages), encodedMessages(t, chat.Messages)[:200])
	}
}

// While a reply is made, it is not part of a page, and the page that has the end of the
// chat is shown it by the stream.
func TestChatPagesWhileARunIsAtWork(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	agent := desk(map[string]scripted.Step{"slow": scripted.Reply(scripted.Say("One "), scripted.Until(gate), scripted.Say("two."))})
	s := serve(t, inMemory(t), []*helix.Agent{agent}, nil)
	p := s.page("chat-1")
	p.say("hello")
	p.messages = append(p.messages, aisdk.Message{ID: "u2", Role: "user", Parts: []aisdk.Part{{Type: aisdk.PartText, Text: "slow"}}})
	read := p.open(http.MethodPost, "/chat?sdk=7", p.body(aisdk.TriggerSubmit, ""), false)
	s.untilText("chat-1", `"delta":"One`)
	for offset := range 3 {
		chat := p.messagesOf(fmt.Sprintf("&offset=%d&limit=1", offset))
		if *chat.Total != 3 || !chat.Running || len(chat.Messages) != 1 || *chat.HasMore != (offset < 2) {
			t.Errorf("the page at %d is %s of %d", offset, shown(chat.Messages), *chat.Total)
		}
	}
	close(gate)
	read()
	late := s.page("chat-1")
	late.messages = p.messages[:3:3]
	if late.resume(""); !strings.Contains(shown(late.messages), "One two.") {
		t.Errorf("the reply that ended in between is not shown: %s", shown(late.messages))
	}
}

// A server may leave out of chats what is not for its pages, live and after a reload.
func TestChatOptionsOfAServer(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		s := serve(t, db, []*helix.Agent{desk(nil)}, func(cfg *server.Config) {
			cfg.Chat = aisdk.Options{
				OmitReasoning: true, OmitToolResults: true,
				Filter:         func(c *aisdk.Chunk) bool { return c.Tool != "subagent__scout" && c.Type != "data-subagent" },
				StartMetadata:  func(*aisdk.Metadata) map[string]any { return map[string]any{"brand": "Acme"} },
				FinishMetadata: func(m *aisdk.Metadata) map[string]any { return map[string]any{"how": m.Status} },
			}
		})
		p := s.page("chat-1")
		p.say("hello")
		p.say("weather")
		p.same()
		got := shown(p.messages)
		for _, gone := range []string{"A greeting.", `"sun in Rome"`} {
			if strings.Contains(got, gone) {
				t.Errorf("the page shows %s: %s", gone, got)
			}
		}
		for who, m := range map[string]*aisdk.Message{"live": &p.messages[3], "after a reload": &slices.Clone(p.history().Messages)[3]} {
			if extra := m.Metadata.Extra; string(extra["brand"]) != `"Acme"` || string(extra["how"]) != `"completed"` {
				t.Errorf("%s the metadata has %s", who, extra)
			}
		}
		p.say("both")
		if got := shown(p.messages); strings.Contains(got, "subagent__scout") || !strings.Contains(got, `"delete"`) {
			t.Errorf("the page shows %s", got)
		}
		p.same()
	})
}
