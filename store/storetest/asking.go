package storetest

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/helixagents/helix/session"
)

func askingCases() []testCase {
	return []testCase{
		{"ask", "a question opens its call again, counts, and waits under an id of its own, without changing the version", dated, askQuestion},
		{"again", "a question that was recorded before changes nothing, whatever has happened since and whatever it asks now", 0, askAgain},
		{"next", "a second question follows the answer to the first, which stays readable", 0, askNext},
		{"approved", "a call that was approved may ask, which consumes its approval", 0, askApproved},
		{"reopen", "calls that were claimed and did not start are open again; others stay", 0, askReopen},
		{"stale", "a question of a lost lease is refused and changes nothing", 0, askStale},
		{"refused", "a question of an unknown or settled call, or with a wrong number, is refused and changes nothing", 0, askRefused},
		{"limits", "a question over the limits is refused and changes nothing", 0, askLimits},
		{"answer", "a question takes an answer, a refusal to answer or an error, once", 0, askAnswer},
		{"answer-kind", "an answer of another kind is refused and nothing is stored", 0, askAnswerKind},
		{"answer-bytes", "an answer keeps its bytes, also a late one", 0, askAnswerBytes},
		{"waits", "a commit that suspends for a question is refused once it is answered", 0, askWaits},
		{"deadline", "the deadline of a question is found when it has passed", clock, askDeadline},
		{"listed", "a question is listed among the calls that wait, until it is answered", 0, askListed},
		{"rewind", "a rewind supersedes the questions of the messages that it drops", 0, askRewind},
		{"race", "of many that record the same question one does, and it waits once", second, askRace},
		{"replace-calls", "a later commit of the step replaces rows of calls, but no results", 0, replaceCalls},
		{"replace-waits", "a later commit of the step replaces entries that wait, in their place, but no answers and no ends", dated, replaceWaits},
		{"replace-resolve", "an entry that a commit both replaces and ends has ended", 0, replaceResolve},
	}
}

// question is the n-th question of a call of message m1.
func question(callID string, n int) session.Ask {
	asking := call("m1", callID, 0)
	asking.Asked, asking.Memo = n, raw(fmt.Sprintf(`{"round":%d}`, n))
	return session.Ask{Call: asking, Pending: session.Pending{
		CallID: session.QuestionID(callID, n), For: callID, MessageID: "m1", Tool: "tool", Kind: session.PendingQuestion,
		Input: raw(`{"q":1}`), Prompt: fmt.Sprintf("Which size, <%d>?", n), Schema: raw(`{"type":"string"}`),
	}}
}

func (t *bed) ask(r *turn, ask session.Ask) {
	t.Helper()
	t.ok(t.store().Ask(t.Context(), r.id, r.fence, ask), "ask "+ask.Pending.CallID)
}

// callIs reads the row of a call of message m1 of session a.
func (t *bed) callIs(callID string) session.Call {
	t.Helper()
	rows, err := t.store().Calls(t.Context(), "a", "m1")
	t.ok(err, "Calls")
	for i := range rows {
		if rows[i].ID == callID {
			return rows[i]
		}
	}
	t.Fatalf("no row of call %s", callID)
	return session.Call{}
}

// replies is an answer to a question.
func replies(questionID, value string) session.Submission {
	s := session.Reply(questionID, raw(value))
	s.By = "someone"
	return s
}

func askQuestion(t *bed) {
	r := t.replied("a")
	t.claim(r, "c1")
	version := t.load("a").Version
	asked := question("c1", 1)
	before := t.now()
	asked.Pending.Deadline = before.Add(time.Hour).Truncate(time.Microsecond)
	t.ask(r, asked)
	t.callsAre("a", "m1", "c1 open", "c2 open", "c3 open")
	row := t.callIs("c1")
	equal(t, "kind", row.Kind, session.CallQuestion)
	equal(t, "asked", row.Asked, 1)
	equal(t, "memo", string(row.Memo), `{"round":1}`)
	equal(t, "begun", row.BegunAt.IsZero(), true)
	equal(t, "waits under", row.WaitID(), "c1.q1")
	p := t.entry("a", "c1.q1")
	equal(t, "state", p.State, session.PendingWaiting)
	equal(t, "kind", p.Kind, session.PendingQuestion)
	equal(t, "for", p.For, "c1")
	equal(t, "prompt", p.Prompt, "Which size, <1>?")
	sameJSON(t, "schema", p.Schema, raw(`{"type":"string"}`))
	equal(t, "session", p.SessionID, "a")
	equal(t, "run", p.RunID, "run-1")
	sameTime(t, "deadline", p.Deadline, asked.Pending.Deadline)
	t.between("asked at", p.CreatedAt, before, t.now())
	state := t.load("a")
	equal(t, "version", state.Version, version)
	equal(t, "open entries", len(state.Pending), 1)
	equal(t, "the open entry", state.Pending[0].Prompt, p.Prompt)
	r.commit(session.Change{}) // the holder is not disturbed

	link := question("c2", 1)
	link.Pending.Schema, link.Pending.URL = nil, "https://example.com/sign-in?state=1"
	t.ask(r, link)
	equal(t, "url", t.entry("a", "c2.q1").URL, link.Pending.URL)
}

func askAgain(t *bed) {
	r := t.replied("a")
	t.ask(r, question("c1", 1))
	other := question("c1", 1)
	other.Call.Memo, other.Pending.Prompt, other.Pending.Schema = raw(`"another"`), "Another?", raw(`{"type":"integer"}`)
	other.Pending.Tool, other.Pending.Input = "another", raw(`{"q":2}`)
	t.unchanged("a", func() { t.ask(r, other) })
	t.submit("a", replies("c1.q1", `"L"`))
	t.unchanged("a", func() { t.ask(r, other) })
	_, fresh := t.claim(r, "c1")
	equal(t, "fresh", fresh, true)
	t.unchanged("a", func() { t.ask(r, other) })
	t.settle(r, call("m1", "c1", 0), `"done"`)
	t.unchanged("a", func() { t.ask(r, other) })
}

func askNext(t *bed) {
	r := t.replied("a")
	t.ask(r, question("c1", 1))
	t.submit("a", replies("c1.q1", `"L"`))
	t.claim(r, "c1")
	next := question("c1", 2)
	next.Resolve = []session.Resolution{{CallID: "c1.q1", State: session.PendingConsumed}}
	t.ask(r, next)
	t.pendingAre("a", "c1.q1 consumed", "c1.q2 waiting")
	row := t.callIs("c1")
	equal(t, "asked", row.Asked, 2)
	equal(t, "memo", string(row.Memo), `{"round":2}`)
	equal(t, "status", row.Status, session.CallOpen)
	equal(t, "the first answer", string(t.entry("a", "c1.q1").Response.Answer), `"L"`)
	without := question("c1", 3)
	without.Call.Memo = nil
	t.ask(r, without)
	equal(t, "memo", string(t.callIs("c1").Memo), "")
}

func askApproved(t *bed) {
	r := t.running("a")
	asks := call("m1", "c1", 0)
	asks.Kind = session.CallApproval
	approval := waiting("c1")
	approval.Kind, approval.ApprovalID, approval.MessageID = session.PendingApproval, "ap-1", "m1"
	r.commit(session.Change{
		Messages: []session.Message{reply("m1", "c1")}, Calls: []session.Call{asks}, Pending: []session.Pending{approval},
	})
	t.submit("a", session.Decide("c1", "ap-1", true, ""))
	t.claim(r, "c1")
	ask := question("c1", 1)
	ask.Resolve = []session.Resolution{{CallID: "c1", State: session.PendingConsumed}}
	t.ask(r, ask)
	t.pendingAre("a", "c1 consumed", "c1.q1 waiting")
	equal(t, "kind", t.callIs("c1").Kind, session.CallQuestion)
}

func askReopen(t *bed) {
	r := t.replied("a")
	for _, id := range []string{"c1", "c2", "c3"} {
		t.claim(r, id)
	}
	ask := question("c1", 1)
	ask.Reopen = []string{"c3", "c9"}
	t.ask(r, ask)
	t.callsAre("a", "m1", "c1 open", "c2 begun", "c3 open")
	_, fresh := t.claim(r, "c3")
	equal(t, "fresh", fresh, true)

	r = t.replied("settled")
	t.settle(r, call("m1", "c3", 2), `3`)
	t.ask(r, ask)
	t.callsAre("settled", "m1", "c1 open", "c2 open", "c3 settled")
}

func askStale(t *bed) {
	r := t.replied("a")
	thief, older := r.fence, r.fence
	thief.Owner = "thief"
	older.Epoch--
	for what, fence := range map[string]session.Fence{"another owner": thief, "an older epoch": older, "no fence": {}} {
		t.unchanged("a", func() {
			err := t.store().Ask(t.Context(), "a", fence, question("c1", 1))
			t.conflict(err, session.ErrStale, t.load("a"), "ask with "+what)
		})
	}
	t.refused(t.store().Ask(t.Context(), "nobody", r.fence, question("c1", 1)), session.ErrNotFound, "ask in no session")
}

func askRefused(t *bed) {
	r := t.replied("a")
	t.settle(r, call("m1", "c2", 1), `1`)
	elsewhere := question("c1", 1)
	elsewhere.Pending.MessageID = "m9"
	foreign := question("c1", 1)
	foreign.Pending.For = "c3"
	unnumbered := question("c1", 1)
	unnumbered.Pending.CallID = "c1"
	tool := question("c1", 1)
	tool.Pending.Kind = session.PendingClientTool
	t.unchanged("a", func() {
		for what, try := range map[string]struct {
			ask  session.Ask
			want *session.Error
		}{
			"an unknown call":          {question("c9", 1), session.ErrNotFound},
			"a settled call":           {question("c2", 1), session.ErrInvalid},
			"the second first":         {question("c1", 2), session.ErrInvalid},
			"number 0":                 {question("c1", 0), session.ErrInvalid},
			"too many":                 {question("c1", session.MaxQuestions+1), session.ErrInvalid},
			"another message's entry":  {elsewhere, session.ErrInvalid},
			"another call's entry":     {foreign, session.ErrInvalid},
			"an entry under the call":  {unnumbered, session.ErrInvalid},
			"an entry of another kind": {tool, session.ErrInvalid},
		} {
			t.refused(t.store().Ask(t.Context(), "a", r.fence, try.ask), try.want, "ask of "+what)
		}
	})
}

func askLimits(t *bed) {
	r := t.replied("a")
	long := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = 'x'
		}
		return string(b)
	}
	t.unchanged("a", func() {
		for what, try := range map[string]struct {
			change func(*session.Ask)
			want   *session.Error
		}{
			"a huge prompt":     {func(a *session.Ask) { a.Pending.Prompt = long(session.MaxPrompt + 1) }, session.ErrTooLarge},
			"no prompt":         {func(a *session.Ask) { a.Pending.Prompt = "" }, session.ErrInvalid},
			"a huge schema":     {func(a *session.Ask) { a.Pending.Schema = raw(`"` + long(session.MaxSchema) + `"`) }, session.ErrTooLarge},
			"a broken schema":   {func(a *session.Ask) { a.Pending.Schema = raw(`{`) }, session.ErrInvalid},
			"schema and url":    {func(a *session.Ask) { a.Pending.URL = "https://example.com" }, session.ErrInvalid},
			"a script as a url": {func(a *session.Ask) { a.Pending.Schema, a.Pending.URL = nil, "javascript:alert(1)" }, session.ErrInvalid},
			"a huge memo":       {func(a *session.Ask) { a.Call.Memo = raw(`"` + long(session.MaxMemo) + `"`) }, session.ErrTooLarge},
			"a broken memo":     {func(a *session.Ask) { a.Call.Memo = raw(`{`) }, session.ErrInvalid},
		} {
			ask := question("c1", 1)
			try.change(&ask)
			t.refused(t.store().Ask(t.Context(), "a", r.fence, ask), try.want, "ask with "+what)
		}
	})
	ask := question("c1", 1)
	ask.Pending.Prompt, ask.Call.Memo = long(session.MaxPrompt), raw(`"`+long(session.MaxMemo-2)+`"`)
	t.ask(r, ask)
	equal(t, "the size of the prompt", len(t.entry("a", "c1.q1").Prompt), session.MaxPrompt)
}

func askAnswer(t *bed) {
	r := t.replied("a")
	for _, id := range []string{"c1", "c2", "c3"} {
		t.ask(r, question(id, 1))
	}
	equal(t, "outcome", t.submit("a", replies("c1.q1", `"L"`)), session.SubmitAccepted)
	equal(t, "outcome", t.submit("a", session.Decline("c2.q1", "none of your business")), session.SubmitAccepted)
	equal(t, "outcome", t.submit("a", session.Submission{CallID: "c3.q1", Response: session.Response{
		Kind: session.PendingClientTool, Error: "nobody knows",
	}}), session.SubmitAccepted)
	t.pendingAre("a", "c1.q1 answered", "c2.q1 answered", "c3.q1 answered")
	equal(t, "answer", string(t.entry("a", "c1.q1").Response.Answer), `"L"`)
	equal(t, "by", t.entry("a", "c1.q1").Response.By, "someone")
	declined := t.entry("a", "c2.q1").Response
	equal(t, "declined", declined.Declined, true)
	equal(t, "reason", declined.Reason, "none of your business")
	equal(t, "error", t.entry("a", "c3.q1").Response.Error, "nobody knows")
	t.unchanged("a", func() {
		equal(t, "outcome", t.submit("a", replies("c1.q1", `"XL"`)), session.SubmitAlreadyCompleted)
	})
}

func askAnswerKind(t *bed) {
	r := t.replied("a")
	t.ask(r, question("c1", 1))
	link := question("c2", 1)
	link.Pending.Schema, link.Pending.URL = nil, "https://example.com/"
	t.ask(r, link)
	r.commit(session.Change{Pending: []session.Pending{waiting("p1")}})
	both := replies("c1.q1", `1`)
	both.Declined = true
	t.unchanged("a", func() {
		for what, try := range map[string]struct {
			s    session.Submission
			want *session.Error
		}{
			"a client tool's result": {answer("c1.q1", `1`), session.ErrSubmissionKind},
			"an approval":            {session.Decide("c1.q1", "", true, ""), session.ErrSubmissionKind},
			"nothing":                {session.Reply("c1.q1", nil), session.ErrSubmissionKind},
			"an answer for a tool":   {replies("p1", `1`), session.ErrSubmissionKind},
			"an answer and none":     {both, session.ErrInvalid},
			"an answer, no JSON":     {replies("c1.q1", `{`), session.ErrInvalid},
			"a huge answer":          {replies("c1.q1", fmt.Sprintf(`"%0*d"`, session.MaxAnswer, 0)), session.ErrTooLarge},
		} {
			_, err := t.store().Submit(t.Context(), "a", try.s)
			t.refused(err, try.want, "submit "+what)
		}
	})
	equal(t, "outcome of a confirmation", t.submit("a", session.Reply("c2.q1", nil)), session.SubmitAccepted)
}

func askAnswerBytes(t *bed) {
	value := `{"html":"<a>&",  "uni":"é\u2028😀","n":1.0,"big":12345678901234567890}`
	r := t.replied("a")
	t.ask(r, question("c1", 1))
	t.ask(r, question("c2", 1))
	t.submit("a", replies("c1.q1", value))
	equal(t, "answer", string(t.entry("a", "c1.q1").Response.Answer), value)
	r.commit(session.Change{Resolve: []session.Resolution{{CallID: "c2.q1", State: session.PendingTimedOut}}})
	equal(t, "outcome", t.submit("a", replies("c2.q1", value)), session.SubmitLate)
	equal(t, "late answer", string(t.entry("a", "c2.q1").Late.Answer), value)
}

func askWaits(t *bed) {
	r := t.replied("a")
	t.ask(r, question("c1", 1))
	suspend := session.Change{
		Outcome: &session.Outcome{Status: session.RunSuspendedClientTool, SuspendedStep: "m1"}, Waits: []string{"c1.q1"},
	}
	t.submit("a", replies("c1.q1", `"L"`))
	t.unchanged("a", func() {
		_, err := t.store().Commit(t.Context(), r.request(suspend))
		got := t.refusal(err, session.ErrAnswered, "suspend")
		equal(t, "answered", got.Calls, []string{"c1.q1"})
	})
	t.claim(r, "c1")
	next := question("c1", 2)
	next.Resolve = []session.Resolution{{CallID: "c1.q1", State: session.PendingConsumed}}
	t.ask(r, next)
	suspend.Waits = []string{"c1.q2"}
	r.commit(suspend)
	state := t.load("a")
	equal(t, "waits", len(state.Suspension().Pending), 1)
	equal(t, "for", state.Suspension().Pending[0].For, "c1")
}

func askDeadline(t *bed) {
	r := t.replied("a")
	ask := question("c1", 1)
	ask.Pending.Deadline = t.now().Add(t.ttl())
	t.ask(r, ask)
	t.noneBefore(ask.Pending.Deadline, "deadlines before their time", t.deadlines)
	t.pass(2 * t.ttl())
	t.dueAre("deadlines", t.deadlines, "a/c1.q1")
	t.submit("a", replies("c1.q1", `"L"`))
	t.dueAre("deadlines after the answer", t.deadlines)
}

func askListed(t *bed) {
	r := t.replied("a")
	listed := func() []session.Waiting {
		page, err := t.store().Waiting(t.Context(), session.WaitingQuery{})
		t.ok(err, "Waiting")
		return page.Items
	}
	equal(t, "calls that wait", len(listed()), 0)
	t.ask(r, question("c1", 1))
	found := listed()
	equal(t, "calls that wait", len(found), 1)
	equal(t, "question", found[0].Call.CallID, "c1.q1")
	equal(t, "for", found[0].Call.For, "c1")
	equal(t, "prompt", found[0].Call.Prompt, "Which size, <1>?")
	t.submit("a", replies("c1.q1", `"L"`))
	equal(t, "calls that wait", len(listed()), 0)
}

func askRewind(t *bed) {
	r := t.replied("a")
	t.ask(r, question("c1", 1))
	r.commit(session.Change{KeepMessages: new(1)})
	t.pendingAre("a", "c1.q1 superseded")
	t.callsAre("a", "m1")
	equal(t, "outcome", t.submit("a", replies("c1.q1", `"L"`)), session.SubmitAlreadyCompleted)
}

func askRace(t *bed) {
	r := t.replied("a")
	var failed atomic.Pointer[error]
	together(8, func(i int) {
		ask := question("c1", 1)
		ask.Call.Memo = raw(fmt.Sprint(i))
		b := t.Backend
		if i%2 == 1 {
			b = t.second()
		}
		if err := t.sessionsOf(b).Ask(t.Context(), "a", r.fence, ask); err != nil {
			failed.Store(&err)
		}
	})
	if err := failed.Load(); err != nil {
		t.Fatalf("ask: %v", *err)
	}
	t.pendingAre("a", "c1.q1 waiting")
	equal(t, "asked", t.callIs("c1").Asked, 1)
}

func replaceCalls(t *bed) {
	r := t.replied("a")
	t.claim(r, "c2")
	t.settle(r, call("m1", "c3", 2), `"first"`)
	one, two, three := call("m1", "c1", 0), call("m1", "c2", 1), call("m1", "c3", 2)
	one.Kind, one.Asked, one.Memo = session.CallQuestion, 1, raw(`{"a":1}`)
	two = settled(two, `"two"`)
	two.Writes = push("list", `2`)
	three.Kind = session.CallClient
	r.commit(session.Change{Calls: []session.Call{one, two, three}})
	t.callsAre("a", "m1", "c1 open", "c2 settled", "c3 settled")
	equal(t, "kind", t.callIs("c1").Kind, session.CallQuestion)
	equal(t, "memo", string(t.callIs("c1").Memo), `{"a":1}`)
	equal(t, "result", t.callIs("c2").Result.Parts[0].Text, "two")
	sameJSON(t, "writes", t.callIs("c2").Writes, two.Writes)
	equal(t, "the result that stands", t.callIs("c3").Result.Parts[0].Text, "first")
	equal(t, "its kind", t.callIs("c3").Kind, session.CallServer)
	message := result("c1", `1`)
	r.commit(session.Change{Promote: &session.Promotion{MessageID: "m1", Results: []session.Promoted{
		{CallID: "c1", Message: &message}, {CallID: "c2"}, {CallID: "c3"},
	}}})
	t.messagesAre("a", "u1", "m1", "c1.r", "c2.r", "c3.r")
}

func replaceWaits(t *bed) {
	r := t.running("a")
	r.commit(session.Change{Pending: []session.Pending{waiting("p1"), waiting("p2"), waiting("p3")}})
	t.submit("a", answer("p2", `"answered"`))
	since := t.entry("a", "p1").CreatedAt
	r.commit(session.Change{Pending: []session.Pending{waiting("p0")}, Resolve: []session.Resolution{{CallID: "p3", State: session.PendingAbandoned}}})
	deadline := t.now().Add(time.Hour).Truncate(time.Microsecond)
	var again []session.Pending
	for _, id := range []string{"p3", "p2", "p1"} {
		p := waiting(id)
		p.Tool, p.Input, p.Deadline = "other", raw(`{"q":2}`), deadline
		again = append(again, p)
	}
	r.commit(session.Change{Pending: append(again, waiting("p4"))})
	t.pendingAre("a", "p1 waiting", "p2 answered", "p3 abandoned", "p0 waiting", "p4 waiting")
	sameTime(t, "waits since", t.entry("a", "p1").CreatedAt, since)
	p := t.entry("a", "p1")
	equal(t, "tool", p.Tool, "other")
	equal(t, "input", string(p.Input), `{"q":2}`)
	sameTime(t, "deadline", p.Deadline, deadline)
	equal(t, "the tool of the answered one", t.entry("a", "p2").Tool, "ask")
	equal(t, "its answer", string(t.entry("a", "p2").Response.Result), `"answered"`)
	equal(t, "the tool of the ended one", t.entry("a", "p3").Tool, "ask")
	page, err := t.store().Waiting(t.Context(), session.WaitingQuery{})
	t.ok(err, "Waiting")
	equal(t, "calls that wait", len(page.Items), 3)
	equal(t, "the one that waits longest", page.Items[0].Call.CallID, "p1")
}

func replaceResolve(t *bed) {
	r := t.running("a")
	r.commit(session.Change{Pending: []session.Pending{waiting("p1"), waiting("p2")}})
	t.submit("a", answer("p2", `1`))
	one, two := waiting("p1"), waiting("p2")
	one.Tool, two.Tool = "other", "other"
	r.commit(session.Change{Pending: []session.Pending{one, two}, Resolve: []session.Resolution{
		{CallID: "p1", State: session.PendingTimedOut}, {CallID: "p2", State: session.PendingConsumed},
	}})
	t.pendingAre("a", "p1 timed_out", "p2 consumed")
	equal(t, "tool", t.entry("a", "p1").Tool, "other")
	equal(t, "the tool of the answered one", t.entry("a", "p2").Tool, "ask")
}
