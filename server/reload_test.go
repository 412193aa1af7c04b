package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/server/aisdk"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/store"
)

// A page reads the messages and then the stream. It is shown a reply once, also if the
// reply ends between the two.
func TestReloadAtTheEndOfAReply(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		end := make(chan struct{})
		agent := &helix.Agent{Name: "slow", Model: scripted.New(
			scripted.Reply(scripted.Say("Once upon"), scripted.Until(end), scripted.Say(" a time.")), scripted.Text("More."))}
		s := serve(t, db, []*helix.Agent{agent}, nil)
		call[wire.Started](s, http.StatusOK, http.MethodPost, "/start", wire.Start{SessionID: "s-1", AgentType: "slow", Message: wire.Text("Hi!")})
		s.untilText("s-1", "upon")
		early := s.page("s-1")
		early.messages = early.history().Messages
		if len(early.messages) != 1 {
			t.Fatalf("while it runs the chat has %s", shown(early.messages))
		}
		close(end)
		s.settle("s-1")
		if m := early.resume(""); m == nil || shown(early.messages) != shown(s.page("s-1").history().Messages) {
			t.Errorf("a page that came just before the end shows %s", shown(early.messages))
		}
		late := s.page("s-1")
		late.messages = late.history().Messages
		if m := late.resume(""); m != nil {
			t.Errorf("a page that has the reply is shown it again: %s", shown(late.messages))
		}
		// What was read while the next run was at work does not count for a page that comes later.
		early.say("More!")
		if m := early.resume(""); m != nil {
			t.Errorf("a page that saw the reply is shown it again: %s", shown(early.messages))
		}
	})
}

// A page that cannot take back what it was shown is not shown a step that may yet be: it
// waits until the session says more.
func TestReloadInAStepHoldsItBack(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		more, end := make(chan struct{}), make(chan struct{})
		agent := &helix.Agent{Name: "slow", Model: scripted.New(scripted.Reply(
			scripted.Say("Once "), scripted.Until(more), scripted.Say("upon "), scripted.Until(end), scripted.Say("a time.")))}
		s := serve(t, db, []*helix.Agent{agent}, nil)
		call[wire.Started](s, http.StatusOK, http.MethodPost, "/start", wire.Start{SessionID: "s-1", AgentType: "slow", Message: wire.Text("Hi!")})
		s.untilText("s-1", "Once")
		answer := s.request(http.MethodGet, "/chat/s-1/stream", nil)
		defer answer.Body.Close()
		var raw []byte
		until := func(text string) string {
			buf := make([]byte, 4<<10)
			for !strings.Contains(string(raw), text) {
				n, err := answer.Body.Read(buf)
				raw = append(raw, buf[:n]...)
				if err != nil && !strings.Contains(string(raw), text) {
					t.Fatalf("the stream has no %s: %v: %s", text, err, raw)
				}
			}
			return string(raw)
		}
		if got := until(`"start"`); strings.Contains(got, "Once") {
			t.Errorf("what may be taken back is shown: %s", got)
		}
		close(more)
		if got := until("upon"); strings.Count(got, "Once") != 1 {
			t.Errorf("when the step continues the stream has %s", got)
		}
		close(end)
		until(aisdk.Done)
	})
}

// Without a word of its version a client is sent only what all versions read, and an
// approval is decided with the call's output.
func TestChatWithoutAVersion(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		s := serve(t, db, []*helix.Agent{desk(nil)}, nil)
		for _, approved := range []bool{true, false} {
			p := s.page(map[bool]string{true: "yes", false: "no"}[approved])
			post := func() string {
				status, header, raw := p.fetch(http.MethodPost, "/chat", p.body(aisdk.TriggerSubmit, ""))
				p.take(status, header, raw, false)
				return string(raw)
			}
			p.messages = []aisdk.Message{{ID: "u1", Role: "user", Parts: []aisdk.Part{{Type: aisdk.PartText, Text: "delete"}}}}
			all := post()
			waiting := call[wire.PendingCalls](s, http.StatusOK, http.MethodGet, "/sessions/"+p.id+"/pending", nil).Items
			for i := range waiting {
				part := p.tool("delete", i)
				if part.State != aisdk.StateInputAvailable {
					t.Fatalf("a call that waits is %+v", part)
				}
				part.State = aisdk.StateOutputAvailable
				part.Output = fmt.Appendf(nil, `{"approvalId":%q,"approved":%v,"reason":"so"}`, waiting[i].ApprovalID, approved)
			}
			all += post()
			if want := map[bool]string{true: aisdk.StateOutputAvailable, false: aisdk.StateOutputError}[approved]; p.tool("delete", 0).State != want {
				t.Errorf("the call is %+v", p.tool("delete", 0))
			}
			for _, kind := range []string{aisdk.TypeApprovalRequest, aisdk.TypeOutputDenied, aisdk.TypeApprovalResponse, aisdk.TypeResetStep} {
				if strings.Contains(all, `"`+kind+`"`) {
					t.Errorf("a client that may be of version 5 is sent %s", kind)
				}
			}
		}
	})
}
