package remote_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/remote"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

func TestCall(t *testing.T) {
	t.Parallel()
	there, url := serve(t, clerk())
	a := &remote.Agent{URL: url, Token: token, Agent: "clerk"}
	boss := bossOf(a.SubAgent())
	rt := newRuntime(t, boss)
	run, err := rt.Execute(t.Context(), boss, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!")})
	if err != nil {
		t.Fatal(err)
	}
	answer := func(tool string, with func(p session.Pending) helix.Submission) {
		t.Helper()
		res, err := run.Result(t.Context())
		if err != nil || res.Status != helix.SuspendedAwaitingChildren || len(res.Pending) != 1 || res.Pending[0].Tool != tool {
			t.Fatalf("the run is %+v, %v, want one that waits for %s", res, err, tool)
		}
		if out, err := rt.Submit(t.Context(), "s-1", with(res.Pending[0])); err != nil || out.Outcome != helix.SubmitAccepted {
			t.Fatalf("the answer is %+v, %v", out, err)
		}
		if run, err = rt.Resume(t.Context(), "s-1", helix.ResumeOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	answer("sign", func(p session.Pending) helix.Submission { return helix.Approve(p, helix.User{}) })
	answer("pick", func(p session.Pending) helix.Submission { return helix.ToolResult(p.CallID, "blue") })
	res, err := run.Result(t.Context())
	if err != nil || res.Status != helix.Completed || res.Text != "Thanks." {
		t.Fatalf("the run is %+v, %v", res, err)
	}
	refs, err := rt.db.Sessions().Children(t.Context(), "s-1")
	if err != nil || len(refs) != 1 || refs[0].Status != session.ChildCompleted {
		t.Fatalf("the references are %+v, %v", refs, err)
	}
	var at struct{ Peer string }
	if err := json.Unmarshal(refs[0].Remote, &at); err != nil {
		t.Fatal(err)
	}
	peer := at.Peer
	state, err := there.db.Sessions().Load(t.Context(), peer)
	if err != nil || state.UserID != "boss" || state.Metadata[helix.MetaCallerSession] != "s-1" {
		t.Fatalf("the session there is %+v, %v", state, err)
	}
	sameChunks(t, chunks(t, rt.db, "s-1"), chunks(t, there.db, peer), refs[0].SessionID)
}

// sameChunks wants the chunks that a stream has of a remote to be all that the
// remote's has, each once. Of a suspension it has the status: what waits is listed from
// the entries that are stored on this side.
func sameChunks(t *testing.T, ours, theirs []stream.Chunk, id string) {
	t.Helper()
	var got, want []string
	for i := range ours {
		if ours[i].AgentID == id {
			got = append(got, encode(t, ours[i]))
		}
	}
	for i := range theirs {
		c := theirs[i]
		c.AgentID, c.AgentType = id, "clerk"
		if c.Kind == stream.Suspended {
			var data struct {
				Status json.RawMessage `json:"status"`
			}
			if err := json.Unmarshal(c.Data, &data); err != nil {
				t.Fatal(err)
			}
			c.Data = json.RawMessage(`{"status":` + string(data.Status) + `}`)
		}
		want = append(want, encode(t, c))
	}
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Fatalf("the caller's stream has of the remote\n%s\nwant\n%s", g, w)
	}
}

func encode(t *testing.T, c stream.Chunk) string {
	t.Helper()
	raw, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestOutput(t *testing.T) {
	t.Parallel()
	type sum struct {
		Total int `json:"total"`
	}
	_, url := serve(t, &helix.Agent{Name: "clerk", Output: helix.OutputOf[sum](), Model: scripted.New(scripted.Finish(sum{8}))})
	part := call(t, &remote.Agent{URL: url, Token: token, Agent: "clerk", Name: "adder"})
	if part.Tool != "subagent__adder" || string(part.ResultJSON()) != `{"total":8}` {
		t.Fatalf("the result is %s of %s", part.ResultJSON(), part.Tool)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	_, url := serve(t, &helix.Agent{Name: "clerk", Model: scripted.New(scripted.Fail(session.CodeAuth, false, "the key is wrong"))})
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(wire.HeaderVersion, "7")
	}))
	t.Cleanup(other.Close)
	none := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }))
	t.Cleanup(none.Close)
	huge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(wire.HeaderVersion, wire.ProtocolVersion)
		fmt.Fprintf(w, `{"sessionId":%q}`, strings.Repeat("x", 2000))
	}))
	t.Cleanup(huge.Close)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for name, test := range map[string]struct {
		agent *remote.Agent
		words []string
	}{
		"unknown agent":   {&remote.Agent{URL: url, Token: token, Agent: "nobody"}, []string{string(session.CodeUnknownAgent)}},
		"failed there":    {&remote.Agent{URL: url, Token: token, Agent: "clerk"}, []string{string(session.CodeAuth)}},
		"wrong token":     {&remote.Agent{URL: url, Token: token + "x", Agent: "clerk"}, []string{string(wire.CodeUnauthorized)}},
		"wrong version":   {&remote.Agent{URL: other.URL, Token: token, Agent: "clerk"}, []string{string(wire.CodeVersion), `"7"`}},
		"no agent server": {&remote.Agent{URL: none.URL, Token: token, Agent: "clerk"}, []string{string(wire.CodeVersion)}},
		"huge answer":     {&remote.Agent{URL: huge.URL, Token: token, Agent: "clerk", MaxBody: 1000}, []string{string(session.CodeTooLarge)}},
		"unreachable":     {&remote.Agent{URL: gone.URL, Token: token, Agent: "clerk", Reach: 400 * time.Millisecond}, []string{string(session.CodeRemote), "unreachable"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			part := call(t, test.agent)
			if part.Error == nil || part.Error.Code != session.CodeSubAgent {
				t.Fatalf("the result is %+v, want an error", part)
			}
			for _, word := range test.words {
				if !strings.Contains(part.Error.Error(), word) {
					t.Errorf("the error %q does not say %s", part.Error, word)
				}
			}
			if strings.Contains(part.Error.Error(), token) {
				t.Errorf("the error %q tells the token", part.Error)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for field, a := range map[string]*remote.Agent{
		"Agent": {URL: "https://agents.example.com"},
		"URL":   {URL: "agents.example.com", Agent: "clerk"},
		"Token": {URL: "https://agents.example.com", Agent: "clerk", Token: "two\nlines"},
		"Reach": {URL: "https://agents.example.com", Agent: "clerk", Reach: -1},
	} {
		err := a.Check()
		if refused := session.AsError(err); err == nil || refused.Field != field {
			t.Errorf("%s: the error is %v", field, err)
		}
		sub := a.SubAgent()
		sub.Name = "clerk"
		if err := bossOf(sub).Check(); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: the error of the agent that calls it is %v", field, err)
		}
	}
	a := &remote.Agent{URL: "https://agents.example.com", Agent: "clerk", Token: token}
	if err := a.Check(); err != nil {
		t.Error(err)
	}
	for _, text := range []string{fmt.Sprint(a), fmt.Sprintf("%+v", a.SubAgent()), fmt.Sprintf("%#v", a)} {
		if strings.Contains(text, token) {
			t.Errorf("%s tells the token", text)
		}
	}
}

func TestEqual(t *testing.T) {
	t.Parallel()
	define := func() *remote.Agent {
		return &remote.Agent{URL: "https://agents.example.com", Agent: "clerk", Token: token}
	}
	boss, deputy := bossOf(define().SubAgent()), bossOf(define().SubAgent())
	deputy.Name = "deputy"
	rt := newRuntime(t, boss, deputy) // two agents may call one, each by its own definition
	changed := define()
	changed.Token = "another"
	other := bossOf(changed.SubAgent())
	other.Name = "other"
	if _, err := rt.Execute(t.Context(), other, helix.Input{Message: helix.UserText("Hi!")}); err == nil {
		t.Error("another agent of the same name was taken")
	}
}
