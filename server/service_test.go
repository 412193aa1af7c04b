package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/version"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/server"
	"github.com/helixagents/helix/server/aisdk"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// lockedBuffer is a log that requests write at the same time.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A server with a name says it wherever it speaks of itself.
func TestServiceName(t *testing.T) {
	t.Parallel()
	log := &lockedBuffer{}
	s := serve(t, inMemory(t), []*helix.Agent{echo()}, func(cfg *server.Config) {
		cfg.ServiceName, cfg.Logger = "orders", slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	for path, status := range map[string]string{"/healthz": "ok", "/readyz": "ready"} {
		if got := call[wire.Health](s, http.StatusOK, http.MethodGet, path, nil); got != (wire.Health{Status: status, Service: "orders", Version: version.Helix()}) {
			t.Errorf("%s answers %+v", path, got)
		}
	}
	document := call[map[string]json.RawMessage](s, http.StatusOK, http.MethodGet, "/openapi.json", nil)
	if info := string(document["info"]); !strings.Contains(info, `"title":"orders"`) {
		t.Errorf("the document is about %s", info)
	}
	r := httptest.NewRequest(http.MethodGet, "/agents", nil)
	r.Header.Set("Authorization", "Bearer "+s.token)
	s.server.ServeHTTP(httptest.NewRecorder(), r) // which returns when the line is written
	if lines := log.String(); !strings.Contains(lines, "service=orders") {
		t.Errorf("the log does not name the service: %s", lines)
	}
}

// An answer that the server's schema does not allow is refused, however it comes and in
// whichever form, and nothing is changed. What is wrong with it is told to operators.
func TestSubmitSchema(t *testing.T) {
	t.Parallel()
	schema, err := helix.ParseSchema(json.RawMessage(`{"oneOf":[
		{"properties":{"kind":{"const":"client-tool-result"},"result":{"type":"object","required":["lat"]}},"required":["result"]},
		{"properties":{"kind":{"const":"approval-response"},"reason":{"minLength":3}},"required":["reason"]}
	]}`))
	if err != nil {
		t.Fatal(err)
	}
	onBackends(t, func(t *testing.T, db store.Backend) {
		steps := map[string]scripted.Step{"erase": scripted.Call("delete", item{3})}
		s := serve(t, db, []*helix.Agent{desk(steps)}, func(cfg *server.Config) { cfg.SubmitSchema = schema })
		refuses := func(id string, user *service, path, field string, body map[string]any) wire.Error {
			t.Helper()
			before := s.page(id).history().Waiting
			got := user.refused(http.StatusBadRequest, session.CodeInvalid, http.MethodPost, path, body)
			if got.Field != field || fmt.Sprint(s.page(id).history().Waiting) != fmt.Sprint(before) {
				t.Errorf("%v is refused for %s, and what waits is %v", body, got.Field, s.page(id).history().Waiting)
			}
			return got
		}
		p := s.page("chat-1")
		p.say("where")
		part := p.tool("locate", 0)
		for _, body := range []map[string]any{
			{"toolCallId": part.CallID, "result": "north"},
			{"kind": "client-tool-result", "toolCallId": part.CallID, "result": map[string]int{"lon": 1}},
		} {
			if got := refuses(p.id, s, "/chat/chat-1/submit-tool-result", "result", body); got.Detail != "" {
				t.Errorf("a user is told %q", got.Detail)
			}
			body["sessionId"] = p.id
			if got := refuses(p.id, s.as("operator-token"), "/submit-tool-result", "result", body); got.Detail == "" {
				t.Error("an operator is not told what is wrong")
			}
		}
		refuses(p.id, s, "/chat/chat-1/submit-tool-result", "error", map[string]any{"toolCallId": part.CallID, "error": "no signal"})
		part.State, part.Output = aisdk.StateOutputAvailable, json.RawMessage(`"north"`)
		p.refusedSend(http.StatusBadRequest, session.CodeInvalid, aisdk.TriggerSubmit, "")
		part.Output = json.RawMessage(`{"lat":1}`)
		p.send(aisdk.TriggerSubmit, "")
		if !strings.Contains(shown(p.messages), "So: result") {
			t.Errorf("the page shows %s", shown(p.messages))
		}

		other := s.page("chat-2")
		other.say("erase")
		waits := other.history().Waiting[0]
		answer := map[string]any{"toolCallId": waits.CallID, "approval": map[string]any{"approvalId": waits.ApprovalID, "approved": true, "reason": "ok"}}
		refuses("chat-2", s, "/chat/chat-2/submit-tool-result", "approved", answer)
		answer = map[string]any{
			"kind": "approval-response", "toolCallId": waits.CallID, "approvalId": waits.ApprovalID, "approved": true, "reason": "too old",
		}
		call[wire.Submitted](s, http.StatusOK, http.MethodPost, "/chat/chat-2/submit-tool-result", answer)
	})
}
