package llmtest_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/server"
	"github.com/helixagents/helix/server/aisdk"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/memory"
)

// TestFinishReasonsReachTheChat takes a reply that ends at its limit, one that a filter
// cut off and one that it left nothing of from each provider's wire to the chunks that
// useChat reads, in each of its versions, and to what a reload shows.
func TestFinishReasonsReachTheChat(t *testing.T) {
	t.Parallel()
	for _, adapter := range adapters {
		for _, c := range []struct {
			recording, text, finish string
			code                    session.Code // of the run, if it fails
		}{
			{"text-whole.sse", "Yes.", "stop", ""},
			{"length.sse", "It was a dark and", "length", ""},
			{"content-filter.sse", "First you", "content-filter", ""},
			{"refused.sse", "", "content-filter", session.CodeContentFilter},
		} {
			t.Run(adapter.name+"/"+c.recording, func(t *testing.T) {
				t.Parallel()
				sdks := []string{"", "5", "6", "7"}
				recordings := make([]string, len(sdks))
				for i := range recordings {
					recordings[i] = c.recording
				}
				provider := playing(t, filepath.Join("..", filepath.FromSlash(adapter.testdata)), recordings...)
				chat := chatServer(t, &helix.Agent{Name: "tester", Model: adapter.open(provider.URL, "sk-test", nil)})
				for _, sdk := range sdks {
					id := "chat-" + sdk
					live, last, failed := talk(t, chat, id, sdk)
					if last.Type != aisdk.TypeFinish || last.FinishReason != c.finish {
						t.Errorf("version %q: the reply ends with %+v", sdk, last)
					}
					told := c.finish
					if c.finish == "stop" || c.code != "" {
						told = ""
					}
					if m := last.Metadata; m == nil || m.FinishReason != told || m.Code != c.code {
						t.Errorf("version %q: the metadata is %+v", sdk, m)
					}
					sentence := ""
					if c.code != "" {
						sentence = wire.Explain(c.code)
					}
					if !strings.HasPrefix(failed, sentence) || (sentence == "") != (failed == "") {
						t.Errorf("version %q: the error is %q", sdk, failed)
					}
					after := reload(t, chat, id, sdk)
					for when, m := range map[string]*aisdk.Message{"live": live, "after a reload": after} {
						if got := said(m); got != c.text || m.Metadata.FinishReason != told || m.Metadata.Code != c.code {
							t.Errorf("version %q: %s it says %q, with %+v", sdk, when, got, m.Metadata)
						}
					}
				}
			})
		}
	}
}

// chatServer serves an agent to everybody.
func chatServer(t *testing.T, agent *helix.Agent) http.Handler {
	t.Helper()
	db := memory.New(memory.Config{})
	t.Cleanup(func() { db.Close() })
	quiet := slog.New(slog.DiscardHandler)
	rt, err := local.New(local.Config{Backend: db, Agents: []*helix.Agent{agent}, RetryBackoff: time.Millisecond, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Close() })
	s, err := server.New(server.Config{
		Executor: rt, Backend: db, Agents: func() []*helix.Agent { return []*helix.Agent{agent} },
		AllowUnauthenticated: true, Hosts: []string{server.AnyHost}, RateLimit: server.RateLimit{PerSecond: -1}, Logger: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// talk says something in a new chat. It gives the reply as useChat has it, the chunk that
// finishes it and the text of an error chunk.
func talk(t *testing.T, chat http.Handler, id, sdk string) (m *aisdk.Message, finish aisdk.Chunk, failed string) {
	t.Helper()
	body := `{"id":"` + id + `","trigger":"submit-message","messages":[{"id":"u1","role":"user","parts":[{"type":"text","text":"Hi!"}]}]}`
	w := ask(chat, http.MethodPost, "/chat", sdk, body)
	m = &aisdk.Message{}
	for line := range strings.Lines(w.Body.String()) {
		data, found := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if !found || data == aisdk.Done {
			continue
		}
		var c aisdk.Chunk
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		m.Apply(&c)
		switch c.Type {
		case aisdk.TypeFinish:
			finish = c
		case aisdk.TypeError:
			failed = c.ErrorText
		}
	}
	return m, finish, failed
}

// reload is the reply as a page has it that is opened.
func reload(t *testing.T, chat http.Handler, id, sdk string) *aisdk.Message {
	t.Helper()
	w := ask(chat, http.MethodGet, "/chat/"+id+"/messages", sdk, "")
	var read aisdk.Chat
	if err := json.Unmarshal(w.Body.Bytes(), &read); err != nil || len(read.Messages) != 2 {
		t.Fatalf("the chat is %s: %v", w.Body, err)
	}
	return &read.Messages[1]
}

func ask(chat http.Handler, method, path, sdk, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	if sdk != "" {
		r.Header.Set(wire.HeaderAISDK, sdk)
	}
	w := httptest.NewRecorder()
	chat.ServeHTTP(w, r)
	return w
}

func said(m *aisdk.Message) string {
	var b strings.Builder
	for i := range m.Parts {
		if m.Parts[i].Type == aisdk.PartText {
			b.WriteString(m.Parts[i].Text)
		}
	}
	return b.String()
}
