package server_test

import (
	"net/http"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/server"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

func TestStart(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		s := serve(t, db, []*helix.Agent{echo()}, nil)
		started := s.start(wire.Start{AgentType: "echo", Message: wire.Text("hello"), RequestID: "r1"})
		if started.StreamID != started.SessionID || started.StartSequence != 0 {
			t.Errorf("started: %+v", started)
		}
		again := call[wire.Started](s, http.StatusOK, http.MethodPost, "/start",
			wire.Start{SessionID: started.SessionID, AgentType: "echo", Message: wire.Text("hello"), RequestID: "r1"})
		if again != started {
			t.Errorf("a repeat answers %+v, not %+v", again, started)
		}
		status := call[wire.Status](s, http.StatusOK, http.MethodGet, "/status?sessionId="+started.SessionID, nil)
		if status.Status != session.Completed || status.Text != "You said: hello" || status.Turn != 1 || status.AwaitingClientTool ||
			status.RunID != started.RunID || status.Sequence == 0 {
			t.Errorf("status: %+v", status)
		}
		events := s.settle(started.SessionID)
		if last := events[len(events)-1]; last.kind != "end" || last.data[:22] != `{"status":"completed",` {
			t.Errorf("the stream ends with %+v", last)
		}
	})
}

// Nothing is served to whom nobody knows, and a server is not made by accident
// that does.
func TestAuthenticationFailsClosed(t *testing.T) {
	t.Parallel()
	db := inMemory(t)
	s := serve(t, db, []*helix.Agent{echo()}, nil)
	for _, token := range []string{"", "wrong", "alice-toke", "alice-token2"} {
		s.as(token).refused(http.StatusUnauthorized, wire.CodeUnauthorized, http.MethodGet, "/status?sessionId=a", nil)
	}
	_, err := server.New(server.Config{Executor: s.runtime, Backend: db, Agents: func() []*helix.Agent { return nil }})
	if e := session.AsError(err); e == nil || e.Field != "Authenticate" {
		t.Errorf("a server without authentication is made, or refused with %v", err)
	}
}
