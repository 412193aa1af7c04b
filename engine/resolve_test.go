package engine

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/session"
)

type place struct {
	Where string `json:"where"`
}

// far is a remote agent that nobody calls.
type far struct{ helix.Remote }

func run(context.Context, *helix.Call, place) (string, error) { return "", nil }

// clerk is an agent with a tool of each kind.
func clerk() *helix.Agent {
	friend := &helix.Agent{Name: "friend"}
	return &helix.Agent{
		Name:   "clerk",
		Output: helix.OutputOf[place](),
		Tools: []helix.Tool{
			{Name: "look", ReadOnly: true, Execute: helix.Func(run)},
			{Name: "send", Idempotent: true, Execute: helix.Func(run)},
			{Name: "pay", Execute: helix.Func(run)},
			{Name: "book", FinishWith: true, Execute: helix.Func(run)},
			{Name: "choose", Execute: helix.OnClient[place]()},
		},
		SubAgents:  []helix.SubAgent{{Agent: &helix.Agent{Name: "helper"}}, {Name: "office", Remote: far{}}},
		Companions: []helix.Companion{{Agent: friend}, {Agent: &helix.Agent{Name: "worker"}, Mode: helix.NonBlocking}},
	}
}

// Which kind a call is, and why one is rejected, follows from its name and its input.
func TestResolve(t *testing.T) {
	t.Parallel()
	const fits = `{"where":"here"}`
	for _, c := range []struct {
		tool, input string
		finishOnly  bool
		kind        session.CallKind
		rejected    session.Code
		child       string // how the child's id begins
	}{
		{tool: "pay", input: fits, kind: session.CallServer},
		{tool: "choose", input: fits, kind: session.CallClient},
		{tool: session.FinishTool, input: fits, kind: session.CallFinish},
		{tool: "subagent__helper", input: `{"task":"hi"}`, kind: session.CallSubAgent, child: "s-sub-"},
		{tool: "subagent__office", input: `{"task":"hi"}`, kind: session.CallRemote, child: "s-remote-"},
		{tool: helix.SpawnAgentTool, input: `{"agent":"friend","initialMessage":"hi"}`, kind: session.CallCompanion},
		{tool: helix.ListChildrenTool, input: ``, kind: session.CallCompanion},

		{tool: "pay", input: fits, finishOnly: true, kind: session.CallServer, rejected: session.CodeToolNotRun},
		{tool: "subagent__helper", input: `{"task":"hi"}`, finishOnly: true, kind: session.CallServer, rejected: session.CodeToolNotRun},
		{tool: session.FinishTool, input: fits, finishOnly: true, kind: session.CallFinish},
		{tool: session.FinishTool, input: `{"where":1}`, kind: session.CallFinish, rejected: session.CodeToolInput},
		{tool: "nothing", input: fits, kind: session.CallServer, rejected: session.CodeToolUnknown},
		{tool: strings.Repeat("x", 5000), input: fits, kind: session.CallServer, rejected: session.CodeToolUnknown},
		{tool: "pay", input: `{"where":`, kind: session.CallServer, rejected: session.CodeToolInput},
		{tool: "pay", input: `{"where":1}`, kind: session.CallServer, rejected: session.CodeToolInput},
		{tool: "pay", input: `{"where":"a","where":"b"}`, kind: session.CallServer, rejected: session.CodeToolInput},
		{tool: "choose", input: ``, kind: session.CallServer, rejected: session.CodeToolInput},
		{tool: "subagent__helper", input: `{"task":1}`, kind: session.CallServer, rejected: session.CodeToolInput},
		{tool: helix.SpawnAgentTool, input: `{}`, kind: session.CallServer, rejected: session.CodeToolInput},
	} {
		name := c.tool + " " + c.input
		if c.finishOnly {
			name += " when it can only finish"
		}
		t.Run(name[:min(len(name), 60)], func(t *testing.T) {
			t.Parallel()
			r := newResolver(clerk())
			row := session.Call{ID: "call_1", Tool: c.tool}
			part := session.Part{Kind: session.PartToolCall, Tool: c.tool, Input: json.RawMessage(c.input)}
			r.resolve(&row, &part, 1000, c.finishOnly)
			var rejected session.Code
			if row.Rejected != nil {
				rejected = row.Rejected.Code
			}
			if row.Kind != c.kind || rejected != c.rejected || !strings.HasPrefix(row.Child, c.child) || (c.child == "" && row.Child != "") {
				t.Errorf("it is %s, rejected as %q, for session %q; want %s, %q and %q", row.Kind, rejected, row.Child, c.kind, c.rejected, c.child)
			}
			if !json.Valid(part.Input) || session.CheckKeyID("tool", row.Tool) != nil {
				t.Errorf("a store would not keep %q with %s", row.Tool, part.Input)
			}
		})
	}
}

func newResolver(agent *helix.Agent) *toolResolver {
	return &toolResolver{agent: agent, sessionID: "s"}
}

// What may be repeated is part of the row, so that a deploy does not change it.
func TestResolveRecordsWhatMayRepeat(t *testing.T) {
	t.Parallel()
	for tool, want := range map[string][3]bool{ // ReadOnly, Idempotent, FinishWith
		"look": {true, false, false}, "send": {false, true, false}, "pay": {}, "book": {false, false, true}, "choose": {},
	} {
		row := session.Call{Tool: tool}
		part := session.Part{Tool: tool, Input: json.RawMessage(`{"where":"here"}`)}
		newResolver(clerk()).resolve(&row, &part, 1000, false)
		if got := [3]bool{row.ReadOnly, row.Idempotent, row.FinishWith}; got != want {
			t.Errorf("%s: %v, want %v", tool, got, want)
		}
	}
}

// The model is offered tools, then sub-agents, then companion tools, in the order of
// the definition. That order is part of prompt caches.
func TestOffered(t *testing.T) {
	t.Parallel()
	names := func(agent *helix.Agent) []string {
		tools, err := newResolver(agent).offered()
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, tool := range tools {
			out = append(out, tool.Name)
		}
		return out
	}
	want := []string{
		"look", "send", "pay", "book", "choose", "subagent__helper", "subagent__office", helix.SpawnAgentTool, helix.SendMessageTool,
		helix.ListChildrenTool, helix.GetChildStatusTool, helix.TerminateChildTool, helix.WaitForResultTool,
	}
	if got := names(clerk()); !slices.Equal(got, want) {
		t.Errorf("offered are %v, want %v", got, want)
	}
	if got := names(&helix.Agent{Name: "bare"}); len(got) > 0 {
		t.Errorf("an agent without tools is offered %v", got)
	}
	alone := &helix.Agent{Name: "a", Companions: []helix.Companion{{Agent: &helix.Agent{Name: "w"}, Mode: helix.NonBlocking}}}
	if got := names(alone); slices.Contains(got, helix.WaitForResultTool) != waitable(alone) {
		t.Errorf("with companions that work by themselves, offered are %v", got)
	}
}

// bindCompanion finds the companion that a call is about.
func TestBindCompanion(t *testing.T) {
	t.Parallel()
	refs := []session.ChildRef{
		{SessionID: "c-old", Agent: "friend", Name: "bob", Mode: session.ChildPersistent, Status: session.ChildSuperseded},
		{SessionID: "c-bob", Agent: "friend", Name: "bob", Mode: session.ChildPersistent, Blocking: true, Status: session.ChildCompleted},
		{SessionID: "c-1", Agent: "friend", Name: "friend-1", Mode: session.ChildPersistent, Blocking: true},
		{SessionID: "c-sub", Agent: "helper", Name: "sub", Mode: session.ChildEphemeral},
	}
	for _, c := range []struct {
		name, tool, input string
		as, child         string // the companion's name, and how its session's id begins
		rejected          session.Code
	}{
		{"by name", helix.SendMessageTool, `{"name":"bob","message":"hi"}`, "bob", "c-bob", ""},
		{"again", helix.SpawnAgentTool, `{"agent":"friend","name":"bob","initialMessage":"hi"}`, "bob", "c-bob", ""},
		{"a new one", helix.SpawnAgentTool, `{"agent":"worker","name":"ann","initialMessage":"hi"}`, "ann", "s-agent-", ""},
		{"without a name", helix.SpawnAgentTool, `{"agent":"friend","initialMessage":"hi"}`, "friend-2", "s-agent-", ""},
		{"a list is about none", helix.ListChildrenTool, `{}`, "", "", ""},
		{"an unknown name", helix.GetChildStatusTool, `{"name":"eve"}`, "", "", session.CodeToolInput},
		{"a sub-agent is none", helix.TerminateChildTool, `{"name":"sub"}`, "", "", session.CodeToolInput},
		{"an unknown agent", helix.SpawnAgentTool, `{"agent":"eve","initialMessage":"hi"}`, "", "", session.CodeToolInput},
		{"a name that does not fit", helix.SpawnAgentTool, `{"agent":"friend","name":"a b","initialMessage":"hi"}`, "", "", session.CodeToolInput},
		{"a name of another agent", helix.SpawnAgentTool, `{"agent":"worker","name":"bob","initialMessage":"hi"}`, "", "", session.CodeToolInput},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := &call{Call: session.Call{Tool: c.tool, Kind: session.CallCompanion}, part: session.Part{Input: json.RawMessage(c.input)}}
			err := newResolver(clerk()).bindCompanion(got, refs)
			var rejected session.Code
			if err != nil {
				rejected = err.Code
			}
			if rejected != c.rejected || got.Name != c.as || !strings.HasPrefix(got.Child, c.child) {
				t.Errorf("it is %q, %q, %v; want %q, %q and %q", got.Name, got.Child, err, c.as, c.child, c.rejected)
			}
		})
	}
}

// Who may answer is decided by the tool's policy of today; a call that was made under
// a policy is not answered without one.
func TestApproverOf(t *testing.T) {
	t.Parallel()
	agent := clerk()
	agent.Tools[0].Approver = func(context.Context, *helix.Answer) error { return nil }
	for _, c := range []struct {
		tool        string
		underPolicy bool
		has, fails  bool
	}{
		{"look", false, true, false},
		{"look", true, true, false},
		{"pay", false, false, false},
		{"pay", true, false, true},
		{"gone", false, false, false},
		{"gone", true, false, true},
	} {
		approver, err := approverOf(t.Context(), agent, &session.Pending{Tool: c.tool, Policy: c.underPolicy})
		if (approver != nil) != c.has || (err != nil) != c.fails {
			t.Errorf("%s, made under a policy: %v: has one: %v, %v", c.tool, c.underPolicy, approver != nil, err)
		}
	}
}
