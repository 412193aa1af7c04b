package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/memory"
)

func TestBackoff(t *testing.T) {
	t.Parallel()
	least := func(time.Duration) time.Duration { return 0 }
	most := func(n time.Duration) time.Duration { return n - 1 }
	overloaded := llm.Error("provider_overloaded", true, "overloaded")
	asked := overloaded.WithCause(&llm.RetryAfterError{After: 7 * time.Second}, "overloaded")
	for _, c := range []struct {
		attempt     int
		err         error
		least, most time.Duration
	}{
		{1, overloaded, 500 * time.Millisecond, time.Second},
		{2, overloaded, time.Second, 2 * time.Second},
		{4, overloaded, 4 * time.Second, 8 * time.Second},
		{7, overloaded, 30 * time.Second, time.Minute},
		{1000, overloaded, 30 * time.Second, time.Minute},
		{1, asked, 7 * time.Second, 7 * time.Second},
		{9, fmt.Errorf("wrapped: %w", asked), 7 * time.Second, 7 * time.Second},
	} {
		low, high := backoff(time.Second, c.attempt, c.err, least), backoff(time.Second, c.attempt, c.err, most)
		if low != c.least || high != c.most {
			t.Errorf("after attempt %d (%v) it waits %s to %s, want %s to %s", c.attempt, c.err, low, high, c.least, c.most)
		}
	}
}

func TestCheckReply(t *testing.T) {
	t.Parallel()
	calls := func(n int) *llm.Response {
		r := &llm.Response{}
		for range n {
			r.Parts = append(r.Parts, session.Part{Kind: session.PartToolCall, Tool: "t"})
		}
		return r
	}
	for name, c := range map[string]struct {
		reply     *llm.Response
		refused   bool
		retryable bool
	}{
		"none":          {nil, true, true},
		"empty":         {&llm.Response{Parts: []session.Part{{Kind: session.PartText}, {Kind: session.PartReasoning}}}, true, true},
		"a text":        {&llm.Response{Parts: []session.Part{{Kind: session.PartText, Text: "hi"}}}, false, false},
		"a file":        {&llm.Response{Parts: []session.Part{{Kind: session.PartFile}}}, false, false},
		"many calls":    {calls(maxCalls), false, false},
		"one call more": {calls(maxCalls + 1), true, false},
	} {
		err := checkReply(c.reply)
		if (err != nil) != c.refused || session.IsRetryable(err) != c.retryable {
			t.Errorf("%s: %v, retryable %v", name, err, session.IsRetryable(err))
		}
	}
}

// The pauses between attempts to deliver a stop double, up to a limit.
func TestStopDue(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for tries, pause := range map[int]time.Duration{
		0: 0, 1: 500 * time.Millisecond, 2: time.Second, 5: 8 * time.Second, 11: 5 * time.Minute, 1000: 5 * time.Minute,
	} {
		stop := &undeliveredStop{Tries: tries, At: at}
		if !stop.due(at.Add(pause)) || (pause > 0 && stop.due(at.Add(pause-1))) {
			t.Errorf("after %d attempts, the next is not due after %s", tries, pause)
		}
	}
}

// show renders parts in short.
func show(parts []session.Part) string {
	var out []string
	for _, p := range parts {
		out = append(out, string(p.Kind)+":"+p.Text+p.Tool)
	}
	return strings.Join(out, " ")
}

func TestStopKeeps(t *testing.T) {
	t.Parallel()
	text := func(s string) session.Part { return session.Part{Kind: session.PartText, Text: s} }
	began := session.Part{Kind: session.PartToolCall}
	calls := func(tools ...string) *llm.Response {
		r := &llm.Response{Parts: []session.Part{{Kind: session.PartReasoning, Text: "hm"}, text("all of the text")}}
		for _, tool := range tools {
			r.Parts = append(r.Parts, session.Part{Kind: session.PartToolCall, Tool: tool})
		}
		return r
	}
	for name, c := range map[string]struct {
		reply modelReply
		want  string
	}{
		"nothing":                           {modelReply{}, ""},
		"text that was seen":                {modelReply{seen: []session.Part{text("half a")}}, "text:half a"},
		"no text that was not seen":         {modelReply{Response: calls()}, ""},
		"no reasoning":                      {modelReply{seen: []session.Part{{Kind: session.PartReasoning}, text("a")}}, "text:a"},
		"no call that was only begun":       {modelReply{seen: []session.Part{text("a"), began}}, "text:a"},
		"a call that is complete":           {modelReply{Response: calls("x"), seen: []session.Part{text("a"), began}}, "text:a tool-call:x"},
		"calls in their places":             {modelReply{Response: calls("x", "y"), seen: []session.Part{began, text("a"), began}}, "tool-call:x text:a tool-call:y"},
		"of two calls the one that arrived": {modelReply{Response: calls("x"), seen: []session.Part{began, began}}, "tool-call:x"},
		"a call that was not seen":          {modelReply{Response: calls("x"), seen: []session.Part{text("a")}}, "text:a tool-call:x"},
	} {
		want := strings.ReplaceAll(c.want, "tool-call", string(session.PartToolCall))
		if got := show(c.reply.kept()); got != want {
			t.Errorf("%s: kept is %q, want %q", name, got, want)
		}
	}
}

// What watchers see of a stream of deltas: text in one piece, split where something
// else comes in between.
func TestSight(t *testing.T) {
	t.Parallel()
	var s sight
	for _, d := range []llm.Delta{
		{Kind: llm.DeltaReasoning, Text: "hm"},
		{Kind: llm.DeltaText, Text: "a"},
		{Kind: llm.DeltaText, Text: "b"},
		{Kind: llm.DeltaText},
		{Kind: llm.DeltaCallStart, Tool: "x"},
		{Kind: llm.DeltaCallArgs, Text: "{}"},
		{Kind: llm.DeltaCallEnd},
		{Kind: llm.DeltaCallStart, Tool: "y"},
		{Kind: llm.DeltaText, Text: "c"},
	} {
		s.add(d)
	}
	call := string(session.PartToolCall)
	want := fmt.Sprintf("%s: %s:ab %s: %s: %s:c", session.PartReasoning, session.PartText, call, call, session.PartText)
	if got := show(s.all()); got != want {
		t.Errorf("seen is %q, want %q", got, want)
	}
}

func TestAfterStep(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit      int
		output     bool
		step       int
		mustFinish bool
		want       machine.Next
	}{
		{3, false, 1, false, machine.NextModel},
		{3, false, 3, false, machine.NextClose},
		{3, true, 2, false, machine.NextModel},
		{3, true, 2, true, machine.NextFinish},
		{3, true, 3, false, machine.NextFinish}, // one more, in which it can only finish
		{3, true, 4, true, machine.NextClose},
		{helix.Unlimited, false, 1000, false, machine.NextModel},
		{helix.Unlimited, true, 1000, true, machine.NextFinish},
		{0, false, helix.DefaultMaxSteps, false, machine.NextClose},
	} {
		agent := &helix.Agent{MaxSteps: c.limit}
		if c.output {
			agent.Output = helix.OutputOf[place]()
		}
		if got := afterStep(agent, c.step, c.mustFinish); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// What an entry of a wait means for its call.
func TestVerdict(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	input := json.RawMessage(`{"where":"here"}`)
	entry := func(state session.PendingState, response *session.Response) *session.Pending {
		return &session.Pending{
			Tool: "pay", State: state, Response: response, Fingerprint: session.Fingerprint("pay", input),
			CreatedAt: began, Deadline: began.Add(time.Minute), SubmittedAt: began.Add(time.Second),
		}
	}
	approval := func(approved bool) *session.Response {
		return &session.Response{Kind: session.PendingApproval, Approved: approved, Reason: "too much"}
	}
	result := &session.Response{Kind: session.PendingClientTool, Result: json.RawMessage(`7`)}
	failure := &session.Response{Kind: session.PendingClientTool, Error: "broken"}
	other := entry(session.PendingAnswered, approval(true))
	other.Fingerprint = session.Fingerprint("pay", json.RawMessage(`{"where":"there"}`))
	for name, c := range map[string]struct {
		kind    session.CallKind
		entry   *session.Pending
		settles bool
		output  string
		code    session.Code
	}{
		"no answer yet":                      {session.CallClient, entry(session.PendingWaiting, nil), false, "", ""},
		"nobody answered in time":            {session.CallClient, entry(session.PendingTimedOut, nil), true, "", session.CodeClientTimeout},
		"a result":                           {session.CallClient, entry(session.PendingAnswered, result), true, "7", ""},
		"a result that is nothing":           {session.CallClient, entry(session.PendingAnswered, &session.Response{Kind: session.PendingClientTool}), true, "null", ""},
		"an error":                           {session.CallClient, entry(session.PendingAnswered, failure), true, "", session.CodeToolFailed},
		"an error in place of an approval":   {session.CallApproval, entry(session.PendingAnswered, failure), true, "", session.CodeToolNotRun},
		"not approved":                       {session.CallApproval, entry(session.PendingAnswered, approval(false)), true, "", session.CodeToolDenied},
		"approved: the call is to be made":   {session.CallApproval, entry(session.PendingAnswered, approval(true)), false, "", ""},
		"approved, but with different input": {session.CallApproval, other, true, "", session.CodeToolDenied},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			of := &call{Call: session.Call{Tool: "pay", Kind: c.kind}, part: session.Part{Input: input}}
			v := verdictOf(of, c.entry)
			var code session.Code
			if v.failure != nil {
				code = v.failure.Code
			}
			if v.settles != c.settles || string(v.output) != c.output || code != c.code {
				t.Errorf("it settles the call: %v, with %s %v", v.settles, v.output, v.failure)
			}
		})
	}
}

// Calls of a step that is abandoned: what is done or answered stands.
func TestUnansweredResult(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	why := toolError(session.CodeAbandoned, "abandoned")
	answered := func(kind session.PendingKind, r session.Response) *session.Pending {
		return &session.Pending{Kind: kind, State: session.PendingAnswered, Response: &r}
	}
	for name, c := range map[string]struct {
		tool  string
		entry *session.Pending
		want  string // the result, or the code of the error
		ends  session.PendingState
	}{
		"a finish call":   {session.FinishTool, nil, string(session.FinishAcknowledged), ""},
		"without a wait":  {"pay", nil, string(session.CodeAbandoned), ""},
		"without answer":  {"pay", &session.Pending{State: session.PendingWaiting}, string(session.CodeAbandoned), session.PendingAbandoned},
		"before its time": {"pay", &session.Pending{State: session.PendingWaiting, Deadline: now.Add(1)}, string(session.CodeAbandoned), session.PendingAbandoned},
		"overdue":         {"pay", &session.Pending{State: session.PendingWaiting, Deadline: now}, string(session.CodeClientTimeout), session.PendingTimedOut},
		"with a result": {
			"pay", answered(session.PendingClientTool, session.Response{Kind: session.PendingClientTool, Result: json.RawMessage(`7`)}),
			"7", session.PendingConsumed,
		},
		"with an error": {
			"pay", answered(session.PendingClientTool, session.Response{Kind: session.PendingClientTool, Error: "x"}),
			string(session.CodeToolFailed), session.PendingConsumed,
		},
		"not approved": {
			"pay", answered(session.PendingApproval, session.Response{Kind: session.PendingApproval}),
			string(session.CodeToolDenied), session.PendingConsumed,
		},
		"approved, and not carried out": {
			"pay", answered(session.PendingApproval, session.Response{Kind: session.PendingApproval, Approved: true}),
			string(session.CodeAbandoned), session.PendingConsumed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := unansweredResult(session.Part{Kind: session.PartToolCall, CallID: "c", Tool: c.tool}, c.entry, now, why)
			got := string(m.Parts[0].ResultJSON())
			if err := m.Parts[0].Error; err != nil {
				got = string(err.Code)
			}
			if got != c.want {
				t.Errorf("the result is %s, want %s", got, c.want)
			}
			if c.entry != nil {
				if end := ending(c.entry, now); end.State != c.ends {
					t.Errorf("the wait ends as %s, want %s", end.State, c.ends)
				}
			}
		})
	}
}

// Which call may run again, and which rides in the results commit.
func TestFlight(t *testing.T) {
	t.Parallel()
	of := func(kind session.CallKind, change func(*call)) *call {
		c := &call{Call: session.Call{Kind: kind}}
		if change != nil {
			change(c)
		}
		return c
	}
	readOnly := func(c *call) { c.ReadOnly = true }
	rejected := func(c *call) { c.Rejected = toolError(session.CodeToolInput, "no") }
	done := func(c *call) { c.settled = &settled{} }
	stopped := func(c *call) { c.settled = &settled{err: toolError(session.CodeRunStopped, "stopped")} }
	interrupt := &session.Stop{Kind: session.StopInterrupt}
	for name, c := range map[string]struct {
		calls                     []*call
		readOnly, waits, cutShort bool
	}{
		"no calls":                      {nil, true, false, false},
		"a read-only call":              {[]*call{of(session.CallServer, readOnly)}, true, false, true},
		"a call with an effect":         {[]*call{of(session.CallServer, readOnly), of(session.CallServer, nil)}, false, false, true},
		"a rejected call":               {[]*call{of(session.CallServer, rejected)}, true, false, false},
		"a finish call":                 {[]*call{of(session.CallFinish, nil)}, true, false, false},
		"a client tool":                 {[]*call{of(session.CallClient, readOnly)}, false, true, true},
		"a sub-agent":                   {[]*call{of(session.CallSubAgent, done)}, false, true, false},
		"a call that has its result":    {[]*call{of(session.CallServer, done)}, false, false, false},
		"a call that the stop cut off":  {[]*call{of(session.CallServer, done), of(session.CallServer, stopped)}, false, false, true},
		"a call that was not settled":   {[]*call{of(session.CallServer, func(c *call) { c.result = &settled{} })}, false, false, false},
		"a finish call and an open one": {[]*call{of(session.CallFinish, nil), of(session.CallServer, nil)}, false, false, true},
	} {
		f := &flight{calls: c.calls}
		if f.readOnly() != c.readOnly || f.waits() != c.waits || f.cutShort(interrupt) != c.cutShort {
			t.Errorf("%s: read-only %v, waits %v, cut short %v", name, f.readOnly(), f.waits(), f.cutShort(interrupt))
		}
		if f.cutShort(nil) {
			t.Errorf("%s: cut short without a stop", name)
		}
	}
}

func TestLineage(t *testing.T) {
	t.Parallel()
	sessions := memory.New(memory.Config{}).Sessions()
	add := func(id, parent, root string) {
		t.Helper()
		err := session.Create(t.Context(), sessions, &session.State{
			ID: id, Agent: "a", StreamID: id, Status: session.Active, ParentID: parent, RootID: root,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	add("root", "", "")
	add("sub", "root", "root")
	add("below", "sub", "root")
	add("companion", "below", "") // works by itself
	add("helper", "companion", "companion")
	add("orphan", "deleted", "")
	for id, want := range map[string]struct {
		head, root string
		detached   bool
		others     []string
	}{
		"root":      {"root", "root", false, nil},
		"sub":       {"root", "root", false, []string{"root"}},
		"below":     {"root", "root", false, []string{"root"}},
		"companion": {"companion", "root", true, []string{"root"}},
		"helper":    {"companion", "root", true, []string{"companion", "root"}},
		"orphan":    {"orphan", "orphan", false, nil},
	} {
		state, err := sessions.Load(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		l, err := lineageOf(t.Context(), sessions, state)
		if err != nil || l.self != id || l.head != want.head || l.root != want.root || l.detached != want.detached ||
			!slices.Equal(l.others(), want.others) {
			t.Errorf("%s: %+v, others %v, %v", id, l, l.others(), err)
		}
		if detached(state) != (id == "companion" || id == "orphan") {
			t.Errorf("%s works by itself: %v", id, detached(state))
		}
	}
}

func TestLossOf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		owner                       string
		version, progress, attempts int
		want                        Loss
	}{
		"its first process died":              {"p", 3, 0, 0, Loss{}},
		"it was recovered once, and died":     {"p", 3, 3, 1, Loss{Before: 1}},
		"it made progress since":              {"p", 4, 3, 1, Loss{}},
		"it was handed over":                  {"", 3, 0, 0, Loss{HandedOver: true}},
		"it was recovered and handed over":    {"", 3, 3, 1, Loss{HandedOver: true}},
		"it died, was recovered, handed over": {"", 3, 3, 2, Loss{HandedOver: true, Before: 1}},
	} {
		state := &session.State{Version: int64(c.version), Lease: session.Lease{Owner: c.owner}}
		run := &session.Run{ProgressVersion: int64(c.progress), Attempts: c.attempts}
		if got := LossOf(state, run); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// A stop reaches what a turn does and the turns below it; an abort replaces an
// interrupt, and not the other way round.
func TestStopSignal(t *testing.T) {
	t.Parallel()
	interrupt, abort := &session.Stop{Kind: session.StopInterrupt}, &session.Stop{Kind: session.StopAbort}
	above, below, late := &stopSignal{}, &stopSignal{}, &stopSignal{}
	above.attach(below)
	watched, release := below.watch(t.Context())
	defer release()
	above.request(interrupt)
	if !errors.Is(context.Cause(watched), errStopped) || below.requested() != interrupt {
		t.Errorf("below: %v, %v", context.Cause(watched), below.requested())
	}
	above.request(abort)
	above.request(interrupt)
	if above.requested() != abort || below.requested() != abort {
		t.Errorf("it is %v, below %v", above.requested(), below.requested())
	}
	above.attach(late)
	after, releaseAfter := late.watch(t.Context())
	defer releaseAfter()
	if late.requested() != abort || after.Err() == nil {
		t.Errorf("a turn that came later: %v, %v", late.requested(), after.Err())
	}
	other, free := &stopSignal{}, &stopSignal{}
	other.attach(free)
	other.detach(free)
	other.request(abort)
	if free.requested() != nil {
		t.Error("a turn that was detached was stopped")
	}
}

func TestProgressSignal(t *testing.T) {
	t.Parallel()
	above, below := &progressSignal{}, &progressSignal{}
	below.attach(above)
	watched := above.watch()
	select {
	case <-watched:
		t.Fatal("progress was reported before there was any")
	default:
	}
	below.report()
	<-watched
	below.report() // nobody watches
}
