package server_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/server"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// secret is what alice says in every session of hers, and nobody else may read.
const secret = "tulip-7"

// hostile is what the boss puts beside every conversation: bytes that must not run on the
// server's origin.
var hostile = []byte("<!doctype html><script>fetch('/ran')</script>" + secret)

type note struct {
	Text string `json:"text"`
}

// staff are agents for every state that a session can be in. Those that are slow
// continue when the gate is closed.
func staff(gate <-chan struct{}) []*helix.Agent {
	publish := func(context.Context, *helix.Call, note) (string, error) { return "published " + secret, nil }
	clerk := &helix.Agent{
		Name: "clerk", Description: "Publishes.",
		Model: speaker(func(request *llm.Request) scripted.Step {
			if text := lastText(request); strings.HasPrefix(text, "result") {
				return scripted.Text("Done: " + text)
			} else if strings.Contains(text, "pick") {
				return scripted.Call("pick", note{"which? " + secret})
			}
			return scripted.Call("publish", note{"a note on " + secret})
		}),
		Tools: []helix.Tool{
			{Name: "publish", Description: "Publish.", Execute: helix.Func(publish), Approval: helix.RequireApproval},
			{Name: "pick", Description: "Pick.", Execute: helix.OnClient[note]()},
		},
	}
	boss := &helix.Agent{
		Name: "boss",
		Model: speaker(func(request *llm.Request) scripted.Step {
			if text := lastText(request); strings.HasPrefix(text, "result") {
				return scripted.Finish(note{"all done: " + text})
			}
			return scripted.Call("subagent__clerk", map[string]string{"task": "publish " + secret})
		}),
		SubAgents: []helix.SubAgent{{Agent: clerk}}, Companions: []helix.Companion{{Agent: clerk}},
		Output: helix.OutputOf[note](), State: helix.StateOf(note{Text: "none"}),
		Hooks: helix.Hooks{BeforeLLMCall: func(ctx context.Context, h *helix.HookContext, _ helix.BeforeLLMCallEvent) error {
			_, err := h.PutBlob(ctx, hostile)
			return err
		}},
	}
	broken := &helix.Agent{Name: "broken", Model: speaker(func(*llm.Request) scripted.Step {
		return scripted.Fail(session.CodeBadRequest, false, "the provider refused")
	})}
	slow := &helix.Agent{Name: "slow", Model: speaker(func(*llm.Request) scripted.Step {
		return scripted.Reply(scripted.Say("I am at it"), scripted.Until(gate), scripted.Say(" and done with it"))
	})}
	vault := &helix.Agent{Name: "vault", Internal: true, Model: speaker(func(*llm.Request) scripted.Step { return scripted.Text(secret) })}
	return []*helix.Agent{echo(), clerk, boss, broken, slow, vault}
}

// files are sessions of one user, in every state.
type files struct {
	done, paused, failed, waiting, running, child string
	// The call that waiting waits for, and things of done that have ids.
	call, approval, run, checkpoint string
}

// sessions lists all of them.
func (f *files) sessions() []string {
	return []string{f.done, f.paused, f.failed, f.waiting, f.running, f.child}
}

// fill makes a user's sessions.
func (s *service) fill(prefix string) *files {
	s.t.Helper()
	begin := func(name, agent string) wire.Started {
		return call[wire.Started](s, http.StatusOK, http.MethodPost, "/start", wire.Start{
			SessionID: prefix + name, AgentType: agent, Message: wire.Text("about " + secret), Tags: []string{secret},
			Metadata: map[string]string{"topic": secret},
		})
	}
	done := begin("done", "echo")
	f := &files{
		done: done.SessionID, run: done.RunID, paused: begin("paused", "echo").SessionID, failed: begin("failed", "broken").SessionID,
		waiting: begin("waiting", "boss").SessionID, running: begin("running", "slow").SessionID,
	}
	for _, id := range []string{f.done, f.paused, f.failed, f.waiting} {
		s.settle(id)
	}
	s.untilChunk(f.running, "text_delta")
	call[wire.Paused](s, http.StatusOK, http.MethodPost, "/sessions/"+url.PathEscape(f.paused)+"/pause", wire.Pause{Reason: "held"})
	pending := call[wire.PendingCalls](s, http.StatusOK, http.MethodGet, "/sessions/"+url.PathEscape(f.waiting)+"/pending", nil).Items
	if len(pending) != 1 {
		s.t.Fatalf("%d calls wait, not 1", len(pending))
	}
	f.call, f.approval, f.child = pending[0].CallID, pending[0].ApprovalID, pending[0].SessionID
	f.checkpoint = call[wire.CheckpointPage](s, http.StatusOK, http.MethodGet, "/sessions/"+url.PathEscape(f.done)+"/checkpoints", nil).Items[0].ID
	return f
}

// untilChunk reads an open stream until a chunk of a kind arrives.
func (s *service) untilChunk(id, kind string) {
	s.t.Helper()
	s.untilText(id, `"type":"`+kind+`"`)
}

// untilText reads an open stream until a text arrives.
func (s *service) untilText(id, text string) {
	s.t.Helper()
	s.untilOn("/sse?sessionId="+id, text)
}

// untilOn reads an open stream, of either kind, until a text arrives.
func (s *service) untilOn(path, text string) {
	s.t.Helper()
	answer := s.request(http.MethodGet, path, nil)
	defer answer.Body.Close()
	var raw []byte
	buf := make([]byte, 4<<10)
	for {
		n, err := answer.Body.Read(buf)
		raw = append(raw, buf[:n]...)
		if strings.Contains(string(raw), text) {
			return
		}
		if err != nil {
			s.t.Fatalf("%s has no %s: %v: %s", path, text, err, raw)
		}
	}
}

// staffed is a server with staff. Slow ones continue when the test is over.
func staffed(t testing.TB, db store.Backend, change func(*server.Config)) *service {
	t.Helper()
	gate := make(chan struct{})
	s := serve(t, db, staff(gate), change)
	t.Cleanup(func() { close(gate) })
	return s
}
