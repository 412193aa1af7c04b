package server_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/server"
	"github.com/helixagents/helix/server/aisdk"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
)

// untouched is a backend and an executor that can be asked for their tenants and for
// nothing else: every other call panics.
type untouched struct{ store.Backend }

type untouchedExecutor struct{ helix.Executor }

type (
	untouchedSessions struct{ session.Store }
	untouchedStreams  struct{ stream.Manager }
)

func (untouched) Sessions() session.Store                { return untouchedSessions{} }
func (untouched) Streams() stream.Manager                { return untouchedStreams{} }
func (u untouchedExecutor) Tenant(string) helix.Executor { return u }
func (u untouchedSessions) Tenant(string) session.Store  { return u }
func (u untouchedStreams) Tenant(string) stream.Manager  { return u }

// post sends a body to a server in this process.
func post(t *testing.T, handler http.Handler, path, body string) (status int, refused wire.Error) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", wire.ContentJSON)
	r.Header.Set("Accept", wire.ContentJSON)
	r.Header.Set("Authorization", "Bearer alice-token")
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		if err := json.Unmarshal(w.Body.Bytes(), &refused); err != nil {
			t.Fatalf("%s: %v: %s", path, err, w.Body)
		}
	}
	return w.Code, refused
}

// send posts a body and reads the answer.
func (s *service) send(path, body string) (status int, answer string) {
	s.t.Helper()
	response := s.request(http.MethodPost, path, body)
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response.StatusCode, string(raw)
}

// many is a list of so many things, without brackets.
func many(n int, format string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// What a request has too much of is refused before the store, or the executor, is
// asked for anything. The error says what, and how much is allowed.
func TestTooMuchIsRefusedBeforeTheStore(t *testing.T) {
	t.Parallel()
	authenticate, err := server.Tokens(tokens...)
	if err != nil {
		t.Fatal(err)
	}
	agent := echo()
	agent.State = helix.StateOf(map[string]any{}).Open("k0")
	srv, err := server.New(server.Config{
		Executor: untouchedExecutor{}, Backend: untouched{}, Agents: func() []*helix.Agent { return []*helix.Agent{agent} },
		Authenticate: authenticate, Logger: slog.New(slog.DiscardHandler), Ready: nil,
	})
	if err != nil {
		t.Fatal(err)
	}
	const start, chat = `{"agentType":"echo","message":"hi",%s}`, `{"id":"c","messages":[{"id":"u","role":"user","parts":[{"type":"text","text":"hi"}]}],%s}`
	messages := `{"agentType":"echo","sessionId":"a","message":[%s]}`
	for _, c := range []struct{ name, path, body, field, limit string }{
		{"9,000 tags", "/start", fmt.Sprintf(start, `"tags":[`+many(9_000, `"t%d"`)+`]`), "tags", "64"},
		{"65 tags", "/start", fmt.Sprintf(start, `"tags":[`+many(65, `"t%d"`)+`]`), "tags", "64"},
		{"30,000 metadata entries", "/start", fmt.Sprintf(start, `"metadata":{`+many(30_000, `"%d":""`)+`}`), "metadata", "64"},
		{"65 metadata entries", "/start", fmt.Sprintf(start, `"metadata":{`+many(65, `"%d":""`)+`}`), "metadata", "64"},
		{"38,000 state keys", "/start", fmt.Sprintf(start, `"state":{`+many(38_000, `"%x":1`)+`}`), "state", "1000"},
		{"1,001 state keys", "/start", fmt.Sprintf(start, `"state":{`+many(1001, `"k%d":1`)+`}`), "state", "1000"},
		{"9,000 tags of a chat", "/chat", fmt.Sprintf(chat, `"tags":[`+many(9_000, `"t%d"`)+`]`), "tags", "64"},
		{"30,000 entries of a chat", "/chat", fmt.Sprintf(chat, `"metadata":{`+many(30_000, `"%d":""`)+`}`), "metadata", "64"},
		{"101 messages", "/start", fmt.Sprintf(messages, many(101, `{"parts":[{"kind":"text","text":"%d"}]}`)), "message", "100"},
		{"101 messages to resume", "/resume", fmt.Sprintf(`{"sessionId":"a","message":[%s]}`, many(101, `{"parts":[{"kind":"text","text":"%d"}]}`)), "message", "100"},
		{"101 messages of a branch", "/sessions/a/branch", fmt.Sprintf(`{"message":[%s]}`, many(101, `{"parts":[{"kind":"text","text":"%d"}]}`)), "message", "100"},
		{"1,001 parts", "/start", fmt.Sprintf(messages, `{"parts":[`+many(1001, `{"kind":"text","text":"%d"}`)+`]}`), "message[0].parts[1000]", "1000"},
		{"1,001 parts in all", "/start", fmt.Sprintf(messages, many(91, `{"parts":[`+strings.Repeat(`{"kind":"text","text":"x"},`, 10)+`{"kind":"text","text":"%d"}]}`)), "message[90].parts[10]", "1000"},
		{"139,000 empty parts", "/start", fmt.Sprintf(messages, `{"role":"user","parts":[`+strings.Repeat(`{},`, 1_39_000)+`{}]}`), "message[0].parts[0].kind", ""},
		{"1,001 parts of a chat", "/chat", `{"id":"c","messages":[{"id":"u","role":"user","parts":[` + many(1001, `{"type":"text","text":"%d"}`) + `]}]}`, "messages[0].parts[1000]", "1000"},
		{"long key of metadata", "/start", fmt.Sprintf(start, `"metadata":{"`+strings.Repeat("k", 257)+`":""}`), "metadata." + strings.Repeat("k", 80) + "…", "256"},
		{"long value of metadata", "/start", fmt.Sprintf(start, `"metadata":{"k":"`+strings.Repeat("v", 4097)+`"}`), "metadata.k", "4096"},
		{"long tag", "/start", fmt.Sprintf(start, `"tags":["`+strings.Repeat("t", 257)+`"]`), "tags[0]", "256"},
		{"closed state", "/start", fmt.Sprintf(start, `"state":{"k0":1,"k1":1}`), "state.k1", ""},
		{"late expiry", "/start", fmt.Sprintf(start, `"expiresAt":"9999-12-31T23:59:59-23:59"`), "expiresAt", "2261"},
		{"early expiry", "/start", fmt.Sprintf(start, `"expiresAt":"0000-01-01T00:00:00+23:59"`), "expiresAt", "1678"},
	} {
		status, refused := post(t, srv, c.path, c.body)
		if status != http.StatusBadRequest || refused.Code != session.CodeInvalid || refused.Field != c.field ||
			!strings.Contains(refused.Message, c.limit) || len(refused.Message) > 500 {
			t.Errorf("%s: %d %+v, want the field %s and the limit %s", c.name, status, refused, c.field, c.limit)
		}
	}
	// The filters of a listing become conditions of a query.
	for target, field := range map[string]string{
		"/sessions?" + strings.Repeat("tag=x&", 65):                                   "tag",
		"/sessions?" + strings.ReplaceAll(many(65, "metadata.k%d=x"), ",", "&"):       "metadata",
		"/sessions?createdAfter=" + url.QueryEscape("9999-12-31T23:59:59-23:59"):      "createdAfter",
		"/sessions?createdBefore=" + url.QueryEscape("0000-01-01T00:00:00+23:59"):     "createdBefore",
		"/sessions?" + strings.Repeat("status=active&", 500) + "status=" + "dreaming": "status",
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
		r.Header.Set("Authorization", "Bearer alice-token")
		w := httptest.NewRecorder()
		srv.ServeHTTP(w, r)
		var refused wire.Error
		if err := json.Unmarshal(w.Body.Bytes(), &refused); err != nil || w.Code != http.StatusBadRequest || refused.Field != field {
			t.Errorf("%.60s is %d: %s", target, w.Code, w.Body)
		}
	}
	// What is within the limits reaches the store: the test would notice.
	within := fmt.Sprintf(start, `"sessionId":"a","tags":[`+many(64, `"t%d"`)+`],"metadata":{`+many(64, `"%d":""`)+`},"state":{"k0":1},`+
		`"expiresAt":"2261-12-31T23:59:59Z"`)
	if status, refused := post(t, srv, "/start", within); status != http.StatusInternalServerError {
		t.Errorf("what is allowed is %d %+v", status, refused)
	}
}

// Limits are settings.
func TestLimitsAreSettings(t *testing.T) {
	t.Parallel()
	s := serve(t, inMemory(t), []*helix.Agent{{Name: "echo", Model: echo().Model, State: helix.StateOf(map[string]any{}).Open("a", "b", "c")}}, func(cfg *server.Config) {
		cfg.Limits = server.Limits{Tags: 1, Metadata: 1, StateKeys: 2, Messages: 1, Parts: 3}
	})
	part := `{"kind":"text","text":"x"}`
	for body, field := range map[string]string{
		`{"agentType":"echo","message":"x","tags":["a","b"]}`:                                                         "tags",
		`{"agentType":"echo","message":"x","metadata":{"a":"","b":""}}`:                                               "metadata",
		`{"agentType":"echo","message":"x","state":{"a":1,"b":2,"c":3}}`:                                              "state",
		`{"agentType":"echo","message":[{"parts":[` + part + `]},{"parts":[` + part + `]}]}`:                          "message",
		`{"agentType":"echo","message":[{"parts":[` + part + `,` + part + `,` + part + `,` + part + `]}]}`:            "message[0].parts[3]",
		`{"agentType":"echo","message":[{"parts":[` + part + `,{"kind":"file","url":"ftp://x","mediaType":"a/b"}]}]}`: "message[0].parts[1].url",
	} {
		if got := s.refused(http.StatusBadRequest, session.CodeInvalid, http.MethodPost, "/start", body); got.Field != field {
			t.Errorf("%s: refused as %+v", body, got)
		}
	}
	started := call[wire.Started](s, http.StatusOK, http.MethodPost, "/start",
		`{"agentType":"echo","message":[{"parts":[`+part+`,`+part+`,`+part+`]}],"tags":["a"],"metadata":{"a":""},"state":{"a":1,"b":2}}`)
	s.settle(started.SessionID)
	for _, bad := range []server.Limits{{Tags: 65}, {Metadata: 65}, {Tags: -1}, {Parts: -1}, {Buffered: 1 << 20}, {Body: 8 << 20, Buffered: 4 << 20}} {
		_, err := server.New(server.Config{
			Executor: s.runtime, Backend: s.db, Agents: func() []*helix.Agent { return nil }, AllowUnauthenticated: true, Limits: bad,
		})
		if e := session.AsError(err); e == nil || !strings.HasPrefix(e.Field, "Limits") {
			t.Errorf("%+v is taken: %v", bad, err)
		}
	}
}

// A message over HTTP has text and files. Everything else on it is the framework's.
func TestMessagesHaveTextAndFiles(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		s := serve(t, db, []*helix.Agent{echo()}, nil)
		done := s.start(wire.Start{AgentType: "echo", Message: wire.Text("first")})
		before := dump(t, db, "north")
		text := `{"kind":"text","text":"x"}`
		run := session.NewRunID()
		callID := session.CallID("s", run, 0)
		for message, field := range map[string]string{
			`{"role":"user","parts":[` + text + `],"metadata":{"hidden":true}}`:                    "metadata",
			`{"role":"user","parts":[` + text + `],"metadata":{}}`:                                 "metadata",
			`{"role":"user","parts":[` + text + `],"hidden":true}`:                                 "hidden",
			`{"role":"user","parts":[` + text + `],"at":"1999-01-01T00:00:00Z"}`:                   "at",
			`{"role":"user","parts":[` + text + `],"step":3}`:                                      "step",
			`{"role":"user","parts":[` + text + `],"runId":"` + run + `"}`:                         "runId",
			`{"role":"user","parts":[` + text + `],"v":2}`:                                         "v",
			`{"role":"user","parts":[` + text + `],"v":0}`:                                         "v",
			`{"role":"user","parts":[` + text + `],"later":1}`:                                     "later",
			`{"role":"user","parts":[` + text + `],"Metadata":{"hidden":true}}`:                    "Metadata",
			`{"role":"user","role":"user","parts":[` + text + `]}`:                                 "role",
			`{"role":"assistant","parts":[` + text + `]}`:                                          "role",
			`{"role":"system","parts":[` + text + `]}`:                                             "role",
			`{"role":"user","parts":[]}`:                                                           "parts",
			`{"role":"user"}`:                                                                      "parts",
			`{"role":"user","parts":[{"kind":"reasoning","text":"x"}]}`:                            "parts[0].kind",
			`{"role":"user","parts":[{"kind":"tool_call","callId":"c"}]}`:                          "parts[0].callId",
			`{"role":"user","parts":[{"text":"x"}]}`:                                               "parts[0].kind",
			`{"role":"user","parts":[{"kind":"text","text":""}]}`:                                  "parts[0].text",
			`{"role":"user","parts":[{"kind":"text","text":"x","url":"data:,x"}]}`:                 "parts[0].url",
			`{"role":"user","parts":[{"kind":"text","text":"x","provider":{}}]}`:                   "parts[0].provider",
			`{"role":"user","parts":[` + text + `],"id":"` + session.ReplyID(run, 1) + `"}`:        "id",
			`{"role":"user","parts":[` + text + `],"id":"` + run + `/in/0"}`:                       "id",
			`{"role":"user","parts":[` + text + `],"id":"` + callID + `"}`:                         "id",
			`{"role":"user","parts":[` + text + `],"id":"` + session.ResultID(callID) + `"}`:       "id",
			`{"role":"user","parts":[` + text + `],"id":"inbox/x"}`:                                "id",
			`{"role":"user","parts":[` + text + `],"id":"a\nb"}`:                                   "id",
			`{"role":"user","parts":[` + text + `],"id":"` + strings.Repeat("x", 257) + `"}`:       "id",
			`{"role":"user","parts":[{"kind":"file","url":"data:,x"}]}`:                            "parts[0].mediaType",
			`{"role":"user","parts":[{"kind":"file","url":"data:,x","mediaType":"a","text":"x"}]}`: "parts[0].text",
		} {
			for path, body := range map[string]string{
				"/start":  `{"agentType":"echo","message":[%s]}`,
				"/resume": `{"sessionId":"` + done.SessionID + `","message":[%s]}`,
				"/sessions/" + done.SessionID + "/branch": `{"message":[%s]}`,
			} {
				got := s.refused(http.StatusBadRequest, session.CodeInvalid, http.MethodPost, path, fmt.Sprintf(body, message))
				if got.Field != "message[0]."+field {
					t.Errorf("%s %s: refused as %+v", path, message, got)
				}
			}
		}
		if after := dump(t, db, "north"); after != before {
			t.Errorf("what was refused has left something: %s", after)
		}
		// What Go clients of earlier versions send is taken, and so are ids of messages.
		began := time.Now()
		id := session.NewMessageID()
		started := call[wire.Started](s, http.StatusOK, http.MethodPost, "/start", `{"agentType":"echo","message":[
			{"v":1,"id":"`+id+`","role":"user","parts":[{"kind":"text","text":"one"},{"kind":"file","url":"data:,x","mediaType":"text/plain","filename":"x.txt"}]},
			{"v":1,"role":"user","parts":[{"kind":"text","text":"two"}]}]}`)
		s.settle(started.SessionID)
		messages, err := db.Sessions().Tenant("north").AllMessages(t.Context(), started.SessionID)
		if err != nil || len(messages) != 3 {
			t.Fatalf("%d messages, %v", len(messages), err)
		}
		m := messages[0]
		if m.ID != id || m.Role != session.RoleUser || m.Metadata != nil || m.Extra != nil || m.At.Before(began.Add(-time.Minute)) ||
			m.Parts[1].Filename != "x.txt" || messages[1].Content() != "two" {
			t.Errorf("the messages are %+v", messages)
		}
	})
}

// Who is not an operator sets the state that the agent opens.
func TestInitialStateIsOperators(t *testing.T) {
	t.Parallel()
	type plan struct {
		Language string `json:"language"`
		Tier     string `json:"tier"`
	}
	state := helix.StateOf(plan{Language: "en", Tier: "free"})
	agents := []*helix.Agent{
		{Name: "open", Model: echo().Model, State: state.Open("language")}, {Name: "closed", Model: echo().Model, State: state}, echo(),
	}
	s := serve(t, inMemory(t), agents, nil)
	try := func(token, agent, given, field, want string) {
		t.Helper()
		body := `{"agentType":"` + agent + `","message":"x","state":` + given + `}`
		if field != "" {
			if got := s.as(token).refused(http.StatusBadRequest, session.CodeInvalid, http.MethodPost, "/start", body); got.Field != field {
				t.Errorf("%s: refused as %+v", body, got)
			}
			return
		}
		started := call[wire.Started](s.as(token), http.StatusOK, http.MethodPost, "/start", body)
		s.as(token).settle(started.SessionID)
		document, err := s.db.Sessions().Tenant("north").Load(t.Context(), started.SessionID)
		if err != nil {
			t.Fatal(err)
		}
		if raw, err := document.Custom.MarshalJSON(); err != nil || string(raw) != want {
			t.Errorf("%s: the state is %s, not %s: %v", body, raw, want, err)
		}
	}
	const alice, operator = "alice-token", "operator-token"
	try(alice, "open", `{"language":"de"}`, "", `{"language":"de","tier":"free"}`)
	try(alice, "open", `{"language":"de","tier":"gold"}`, "state.tier", "")
	try(alice, "open", `{"other":1}`, "state.other", "")
	try(alice, "closed", `{"language":"de"}`, "state.language", "")
	try(alice, "closed", `{}`, "", `{"language":"en","tier":"free"}`)
	try(alice, "echo", `{"anything":1}`, "state.anything", "")
	try(operator, "open", `{"language":"de","tier":"gold"}`, "", `{"language":"de","tier":"gold"}`)
	try(operator, "closed", `{"tier":"gold"}`, "", `{"language":"en","tier":"gold"}`)
	try(operator, "closed", `{"other":1}`, "state.other", "")
	if ids := tenantSessions(t, s.db, "north"); len(ids) != 4 {
		t.Errorf("what was refused has made sessions: %q", ids)
	}
}

// Files are sent along, or are on the public web.
func TestFilesOfMessages(t *testing.T) {
	t.Parallel()
	db := inMemory(t)
	agents := []*helix.Agent{echo()}
	open := serve(t, db, agents, nil)
	strict := serve(t, db, agents, func(cfg *server.Config) { cfg.Limits.RefuseRemoteFiles = true })
	for address, takers := range map[string][2]bool{
		"data:image/png;base64,AA==":           {true, true},
		"https://example.com/a.png":            {true, false},
		"http://169.254.169.254/latest":        {false, false},
		"https://user:pass@example.com/a.png":  {false, false},
		"https://" + strings.Repeat("x", 8200): {false, false},
		"file:///etc/passwd":                   {false, false},
		"gs://project/other":                   {false, false},
	} {
		for i, s := range []*service{open, strict} {
			for path, body := range map[string]string{
				"/start": `{"agentType":"echo","message":[{"parts":[{"kind":"text","text":"x"},{"kind":"file","mediaType":"image/png","url":"%s"}]}]}`,
				"/chat": `{"id":"` + session.NewID() + `","agent":"echo","messages":[{"id":"a","role":"assistant","parts":[]},
					{"id":"u","role":"user","parts":[{"type":"text","text":"x"},{"type":"file","mediaType":"image/png","url":"%s"}]}]}`,
			} {
				status, raw := s.send(path, fmt.Sprintf(body, address))
				want := http.StatusBadRequest
				if takers[i] {
					want = http.StatusOK
				}
				if status != want || (status == http.StatusBadRequest && !strings.Contains(raw, `[0].parts[1].url"`) && !strings.Contains(raw, `[1].parts[1].url"`)) {
					t.Errorf("%s of %.60s on server %d is %d: %s", path, address, i, status, raw)
				}
			}
		}
	}
}

// What stock clients send along with a chat's messages is left alone, and so is what
// an application adds. Ids that the framework gave come back, but are not for new
// messages.
func TestChatMessagesHaveTextAndFiles(t *testing.T) {
	t.Parallel()
	s := serve(t, inMemory(t), []*helix.Agent{echo()}, nil)
	p := s.page("chat-1")
	status, raw := p.service.send("/chat", `{"id":"chat-1","state":{"a":1},"hidden":true,"messages":[
		{"id":"u1","role":"user","metadata":{"hidden":true,"at":"1999-01-01T00:00:00Z"},"hidden":true,"createdAt":"1999-01-01T00:00:00Z",
		 "parts":[{"type":"text","text":"hello","providerMetadata":{"x":1}},{"type":"data-x","data":1},{"type":"reasoning","text":"no"}]}]}`)
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, raw)
	}
	messages, err := s.db.Sessions().Tenant("north").AllMessages(t.Context(), "chat-1")
	if err != nil || len(messages) != 2 {
		t.Fatalf("%d messages, %v", len(messages), err)
	}
	if m := messages[0]; m.ID != "u1" || m.Metadata != nil || m.Extra != nil || len(m.Parts) != 1 || m.Parts[0].Extra != nil || m.At.Year() < 2020 {
		t.Errorf("the message is %+v", m)
	}
	refused := s.refused(http.StatusBadRequest, session.CodeInvalid, http.MethodPost, "/chat", map[string]any{"id": "chat-2", "messages": []any{
		map[string]any{"id": "run_1/in/0", "role": "user", "parts": []any{map[string]any{"type": "text", "text": "x"}}},
	}})
	if refused.Field != "messages[0].id" {
		t.Errorf("refused as %+v", refused)
	}
	// A message that the API began has an id of the framework's; a page may replace it.
	started := s.start(wire.Start{SessionID: "chat-3", AgentType: "echo", Message: wire.Text("one")})
	s.start(wire.Start{SessionID: started.SessionID, AgentType: "echo", Message: wire.Text("two")})
	p = s.page("chat-3")
	p.messages = p.history().Messages
	second := p.messages[2]
	if !session.IsDerivedMessageID(second.ID) {
		t.Fatalf("the message's id is %s", second.ID)
	}
	p.messages = append(p.messages[:2], aisdk.Message{ID: second.ID, Role: "user", Parts: []aisdk.Part{{Type: aisdk.PartText, Text: "instead"}}})
	p.send(aisdk.TriggerSubmit, second.ID)
	if got := p.messages[3].Parts; got[len(got)-1].Text != "You said: instead" {
		t.Errorf("the reply is %+v", got)
	}
	p.same()
}

// Of a chat only the last message is read, however many there are and whatever they
// hold.
func TestChatSkipsHistory(t *testing.T) {
	t.Parallel()
	s := serve(t, inMemory(t), []*helix.Agent{echo()}, nil)
	history := many(5000, `{"id":"u%d","role":"user","parts":[{"type":"text","text":7},{"type":"file","url":"http://x"}],"metadata":"x"},{"role":"assistant","parts":["x"]}`)
	body := `{"id":"chat-1","messages":[` + history + `,{"id":"u","role":"user","parts":[{"type":"text","text":"now"}]}]}`
	status, raw := s.send("/chat", body)
	if status != http.StatusOK || !strings.Contains(raw, "now") {
		t.Errorf("%d %.300s", status, raw)
	}
	messages, err := s.db.Sessions().Tenant("north").AllMessages(t.Context(), "chat-1")
	if err != nil || len(messages) != 2 {
		t.Errorf("%d messages, %v", len(messages), err)
	}
}

// Every text of an answer or a stop is bounded, and one that is not changes nothing.
func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	s := staffed(t, inMemory(t), nil)
	f := s.fill("a/")
	before := dump(t, s.db, "north")
	long := func(n int) string { return `"` + strings.Repeat("x", n) + `"` }
	for _, c := range []struct {
		path, body, field string
		status            int
	}{
		{"/submit-tool-result", `{"sessionId":"%s","toolCallId":` + long(257) + `,"result":1}`, "toolCallId", 400},
		{"/submit-tool-result", `{"sessionId":` + long(257) + `,"toolCallId":"c","result":"%.0s"}`, "sessionId", 400},
		{"/submit-tool-result", `{"sessionId":"%s","toolCallId":"c","error":` + long(8193) + `}`, "error", 413},
		{"/submit-tool-result", `{"sessionId":"%s","toolCallId":"c","result":` + long(1<<20) + `}`, "result", 413},
		{"/submit-tool-result", `{"sessionId":"%s","toolCallId":"c","approval":{"approvalId":` + long(257) + `}}`, "approval.approvalId", 400},
		{"/submit-tool-result", `{"sessionId":"%s","toolCallId":"c","approval":{"approvalId":"a","reason":` + long(8193) + `}}`, "approval.reason", 413},
		{"/submit-tool-result", `{"sessionId":"%s","toolCallId":"c","result":1,"seen":{"toolName":` + long(257) + `}}`, "seen.toolName", 400},
		{"/submit-tool-result", `{"sessionId":"%s","toolCallId":"c","result":1,"seen":{"input":` + long(1<<20) + `}}`, "seen.input", 413},
		{"/submit-tool-result", `{"sessionId":"%s","toolCallId":"c","result":1,"seen":{"input":[` + many(50_001, `[%d]`) + `]}}`, "seen.input", 400},
		{"/interrupt", `{"sessionId":"%s","reason":` + long(1025) + `}`, "reason", 413},
		{"/abort", `{"sessionId":"%s","runId":` + long(257) + `}`, "runId", 400},
		{"/chat/" + url.PathEscape(f.waiting) + "/abort", `{"reason":` + long(1025) + `,"runId":"%.0s"}`, "reason", 413},
		{"/chat/" + url.PathEscape(f.waiting) + "/submit-tool-result", `{"error":` + long(8193) + `,"toolCallId":"%.0s"}`, "error", 413},
		{"/sessions/" + url.PathEscape(f.waiting) + "/pause", `{"reason":"%.0s` + long(1025)[1:] + `}`, "reason", 413},
		{"/sessions/" + url.PathEscape(f.waiting) + "/retry", `{"requestId":"%.0s` + long(257)[1:] + `}`, "requestId", 400},
		{"/resume", `{"sessionId":"%s","checkpointId":` + long(513) + `}`, "checkpointId", 413},
	} {
		status, raw := s.send(c.path, fmt.Sprintf(c.body, f.waiting))
		refused := decodeAs[wire.Error](t, raw)
		if status != c.status || refused.Field != c.field || len(raw) > 1000 {
			t.Errorf("%s %.80s is %d: %s", c.path, c.body, status, raw)
		}
	}
	// Of answers on a page, one that is too long keeps the others from being taken, too.
	p := serve(t, inMemory(t), []*helix.Agent{desk(nil)}, nil).page("chat-1")
	p.say("delete")
	p.approve(p.tool("delete", 0), true)
	p.approve(p.tool("delete", 1), true)
	p.tool("delete", 1).Approval.Reason = strings.Repeat("x", 8193)
	p.refusedSend(http.StatusRequestEntityTooLarge, session.CodeTooLarge, aisdk.TriggerSubmit, "")
	if waiting := p.history().Waiting; len(waiting) != 2 {
		t.Errorf("%d calls wait", len(waiting))
	}
	if after := dump(t, s.db, "north"); after != before {
		t.Error("what was refused has changed something")
	}
}

// A body whose length is announced as too large is not read.
func TestAnnouncedBody(t *testing.T) {
	t.Parallel()
	s := serve(t, inMemory(t), []*helix.Agent{echo()}, nil)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/start", unreadable{})
	r.ContentLength = 4<<20 + 1
	r.Header.Set("Content-Type", wire.ContentJSON)
	r.Header.Set("Authorization", "Bearer alice-token")
	w := httptest.NewRecorder()
	s.server.ServeHTTP(w, r)
	if w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// unreadable is a body that must not be read.
type unreadable struct{ io.Reader }
