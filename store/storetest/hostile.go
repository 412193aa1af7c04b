package storetest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

func hostileCases() []testCase {
	return []testCase{
		{"ids", "an invalid session id is refused by writes and not found by reads", 0, hostileIDs},
		{"quotes", "text that looks like a query is text", 0, hostileQuotes},
		{"keys", "any top-level key of custom state works", 0, hostileKeys},
		{"text", "any text that a JSON string can contain round-trips byte for byte", 0, hostileText},
		{"json", "embedded JSON round-trips byte for byte", 0, hostileJSON},
		{"huge", "a message and a state value of megabytes round-trip", 0, hostileHuge},
		{"deep", "deeply nested JSON round-trips", 0, hostileDeep},
		{"many", "one commit of a thousand rows is applied completely", 0, hostileMany},
		{"unknown-fields", "fields of a later version survive reading, changing and writing back", 0, unknownFields},
		{"future-format", "a document of a later format is refused as corrupt, not misread", 0, futureFormat},
		{"corrupt-session", "an undecodable document fails alone", corrupt, corruptSession},
		{"corrupt-message", "an undecodable message fails its transcript alone", corrupt, corruptMessage},
		{"corrupt-run", "an undecodable run fails alone", corrupt, corruptRun},
		{"corrupt-checkpoint", "an undecodable checkpoint fails alone", corrupt, corruptCheckpoint},
		{"corrupt-call", "an undecodable call fails alone", corrupt, corruptCall},
		{"corrupt-pending", "an undecodable pending entry does not block a sweep", clock | corrupt, corruptPending},
		{"corrupt-child", "an undecodable child reference fails alone", corrupt, corruptChild},
		{"corrupt-chunk", "an undecodable chunk fails the readers of its stream, but neither its writer nor other streams", corrupt, corruptChunk},
		{"corrupt-sweep", "an undecodable document does not hide other sessions from sweeps", clock | corrupt, corruptSweep},
	}
}

func hostileIDs(t *bed) {
	for _, id := range []string{
		"", "/a", ".a", "a..b", "a b", "a\x00b", "a\nb", "a'b", `a"b`, "a%b", "é", "a\xffb", "a*b", "a;b", strings.Repeat("x", session.MaxIDBytes+1),
	} {
		state := blank(id)
		t.refused(session.Create(t.Context(), t.store(), state), session.ErrInvalid, fmt.Sprintf("Create %q", id))
		_, err := t.store().StartRun(t.Context(), createAndStart(state, "run-1"))
		t.refused(err, session.ErrInvalid, fmt.Sprintf("StartRun that creates %q", id))
		for what, read := range map[string]func() error{
			"Load":   func() error { _, err := t.store().Load(t.Context(), id); return err },
			"Delete": func() error { return t.delete(id) },
			"Merge":  func() error { _, err := session.Merge(t.Context(), t.store(), id, put("k", `1`)); return err },
		} {
			err := read()
			if !errors.Is(err, session.ErrNotFound) && !errors.Is(err, session.ErrInvalid) {
				t.Fatalf("%s %q: got %v, want not found or invalid", what, id, err)
			}
		}
	}
	equal(t, "sessions", len(t.listed(session.Query{})), 0)
}

func hostileQuotes(t *bed) {
	evil := `'; DROP TABLE sessions; --" OR 1=1 \ % _ ? $1 {{x}} :id ` + "`"
	t.create("a", func(s *session.State) {
		s.UserID, s.Agent, s.Tags, s.Metadata = evil, evil, []string{evil}, map[string]string{evil: evil}
	})
	t.create("b")
	for _, q := range []session.Query{{UserID: evil}, {Agent: evil}, {Tags: []string{evil}}, {Metadata: map[string]string{evil: evil}}} {
		equal(t, "sessions found", t.listed(q), []string{"a"})
	}
	start := t.startOf("a", "run "+evil)
	start.Run.RequestID, start.Owner = "request "+evil, "owner "+evil
	r := t.begin(start)
	message := user("m "+evil, evil)
	assistant := reply("m2 "+evil, "c "+evil)
	request := r.request(session.Change{
		Messages: []session.Message{message, assistant}, Calls: []session.Call{call(assistant.ID, "c "+evil, 0)},
		Writes: put(evil, `1`), Pending: []session.Pending{waiting("p " + evil)},
		Checkpoint: &session.NewCheckpoint{ID: "cp " + evil, Step: 1, Source: session.FromStep},
	})
	request.Key = "key " + evil
	_, err := t.store().Commit(t.Context(), request)
	t.ok(err, "commit")
	again, err := t.store().Commit(t.Context(), request)
	t.ok(err, "commit again")
	equal(t, "repeated", again.Repeated, true)
	t.messagesAre("a", message.ID, assistant.ID)
	t.callsAre("a", assistant.ID, "c "+evil+" open")
	equal(t, "outcome", t.submit("a", answer("p "+evil, `1`)), session.SubmitAccepted)
	run, err := t.store().RunByRequest(t.Context(), "a", "request "+evil)
	t.ok(err, "RunByRequest")
	equal(t, "run", run.ID, "run "+evil)
	cp, err := t.store().Checkpoint(t.Context(), "a", "cp "+evil)
	t.ok(err, "Checkpoint")
	equal(t, "state has the key", cp.State.Has(evil), true)
}

func hostileKeys(t *bed) {
	odd := []string{
		"a.b", "$.x", "$", "0", "-1", "a[0]", "é", "😀", " ", "a\nb", `q"q`, `b\b`, "%", "_", "__proto__", "<b>", "\u2028",
		"null", "K", "k", "ключ", strings.Repeat("long", 200),
	}
	t.create("a")
	r := t.start("a", "run-1")
	want := session.CustomState{}
	for i, key := range odd {
		w := session.Compose(put(key, fmt.Sprintf(`{"i":%d}`, i)), push("list "+key, fmt.Sprint(i)))
		change := step(i+1, fmt.Sprintf("cp%d", i))
		change.Writes = w
		r.commit(change)
		t.ok(want.Apply(w), "apply")
	}
	for i, key := range odd {
		if i%2 == 0 {
			r.commit(session.Change{Writes: drop(key)})
			t.ok(want.Apply(drop(key)), "apply")
		}
	}
	encoded, err := want.MarshalJSON()
	t.ok(err, "encode")
	t.customIs("a", string(encoded))
}

// oddTexts are strings that have caused problems in encodings, databases and
// protocols.
func oddTexts() []string {
	return []string{
		"plain", "<script>alert('&amp;')</script>", "\x00nul\x00", "\x01\x1f\x7f", "a\tb\nc\rd", "\u2028\u2029", "\ufeffbom",
		"é", "e\u0301", "😀👩‍👩‍👧", "\U0010ffff", "\\u0041\\", `"quoted"`, "ﷺ", "a\xffb", "\xed\xa0\x80", "trailing space ", " ", "$1 ? :x %s", "'';--",
	}
}

func hostileText(t *bed) {
	r := t.running("a")
	var want []session.Message
	for i, s := range oddTexts() {
		want = append(want, user(fmt.Sprintf("m%d", i), s))
	}
	r.commit(session.Change{Messages: want})
	t.sameMessages(want)
	var chunks []stream.Chunk
	for _, s := range oddTexts() {
		chunks = append(chunks, text(s))
	}
	t.append("a", producer("a", 1), 1, chunks...)
	for i, item := range t.items("a", 0) {
		sameJSON(t, "chunk", item.Chunk, &chunks[i])
	}
	for i, s := range oddTexts() {
		id := fmt.Sprintf("e%d", i)
		body, err := session.Encode(s)
		t.ok(err, "encode")
		t.ok(t.store().Send(t.Context(), "a", session.InboxEntry{ID: id, Kind: "note", Body: body, At: noon}), "Send")
	}
	entries, err := t.store().Inbox(t.Context(), "a")
	t.ok(err, "Inbox")
	for i, s := range oddTexts() {
		body, err := session.Encode(s)
		t.ok(err, "encode")
		equal(t, "body", string(entries[i].Body), string(body))
	}
}

func hostileJSON(t *bed) {
	// Each is valid JSON that a normalising store would change.
	values := []string{
		`{ "b" : 1 , "a" : 2 }`, `{"a":1,"a":2}`, `1.0`, `1e3`, `-0`, `12345678901234567890123`, `0.10000000000000000000001`,
		`"\u0041\/\u00e9"`, `"\ud83d\ude00"`, `"\u0000"`, `"<>&"`, `[ ]`, "{\n\t\"x\": [1,\n2]\n}", `"` + "\u2028" + `"`,
	}
	r := t.running("a")
	var w session.Writes
	message := session.Message{ID: "m1", Role: session.RoleAssistant}
	for i, v := range values {
		w.Ops = append(w.Ops, session.Op{Kind: session.OpReplace, Key: fmt.Sprintf("k%02d", i), Value: raw(v)})
		message.Parts = append(message.Parts, session.Part{
			Kind: session.PartToolCall, CallID: fmt.Sprintf("c%d", i), Tool: "tool", Input: raw(v), Provider: raw(v),
		})
	}
	change := step(1, "cp1", message)
	change.Writes = w
	r.commit(change)
	state := t.load("a")
	cp, err := t.store().Checkpoint(t.Context(), "a", "cp1")
	t.ok(err, "Checkpoint")
	messages, err := t.store().AllMessages(t.Context(), "a")
	t.ok(err, "AllMessages")
	for i, v := range values {
		equal(t, "state value", string(state.Custom.Get(fmt.Sprintf("k%02d", i))), v)
		equal(t, "state value at the checkpoint", string(cp.State.Get(fmt.Sprintf("k%02d", i))), v)
		equal(t, "input", string(messages[0].Parts[i].Input), v)
		equal(t, "provider's part", string(messages[0].Parts[i].Provider), v)
	}
}

func hostileHuge(t *bed) {
	const size = 5 << 18
	r := t.running("a")
	big := strings.Repeat("0123456789abcdef", size/16)
	change := step(1, "cp1", user("u1", big))
	change.Writes = put("k", `"`+big+`"`)
	r.commit(change)
	messages, err := t.store().AllMessages(t.Context(), "a")
	t.ok(err, "AllMessages")
	equal(t, "the text is the same", messages[0].Content() == big, true)
	state := t.load("a")
	equal(t, "the value is the same", string(state.Custom.Get("k")) == `"`+big+`"`, true)
	r.commit(session.Change{Writes: put("k", `1`)})
	cp, err := t.store().Checkpoint(t.Context(), "a", "cp1")
	t.ok(err, "Checkpoint")
	equal(t, "the value at the checkpoint is the same", string(cp.State.Get("k")) == `"`+big+`"`, true)
}

func hostileDeep(t *bed) {
	deep := strings.Repeat(`[{"k":`, 500) + `null` + strings.Repeat(`}]`, 500)
	r := t.running("a")
	message := reply("m1")
	message.Parts = append(message.Parts, session.Part{Kind: session.PartToolCall, CallID: "c1", Tool: "t", Input: raw(deep)})
	r.commit(session.Change{Messages: []session.Message{message}, Writes: put("k", deep)})
	state := t.load("a")
	equal(t, "the value is the same", string(state.Custom.Get("k")) == deep, true)
	t.sameMessages([]session.Message{message})
}

func hostileMany(t *bed) {
	const n = 1000
	r := t.running("a")
	var change session.Change
	for i := range n {
		change.Messages = append(change.Messages, user(fmt.Sprintf("u%d", i), "x"))
		change.Calls = append(change.Calls, call("m1", fmt.Sprintf("c%d", i), i))
		change.Writes.Ops = append(change.Writes.Ops, session.Op{Kind: session.OpReplace, Key: fmt.Sprintf("k%d", i), Value: raw(`1`)})
	}
	r.commit(change)
	equal(t, "messages", len(t.texts("a")), n)
	rows, err := t.store().Calls(t.Context(), "a", "m1")
	t.ok(err, "Calls")
	equal(t, "calls", len(rows), n)
	equal(t, "a call in call order", rows[n-1].ID, fmt.Sprintf("c%d", n-1))
	state := t.load("a")
	equal(t, "keys", state.Custom.Len(), n)
}

func unknownFields(t *bed) {
	extra := session.Extra{"later": raw(`{"a":[1,null]}`)}
	check := func(what string, got session.Extra) {
		t.Helper()
		equal(t, what, compact(string(got["later"])), `{"a":[1,null]}`)
	}
	state := blank("a")
	state.Extra = extra
	start := createAndStart(state, "run-1")
	start.Run.Extra = extra
	r := t.begin(start)
	message, c, p, ref := reply("m1", "c1"), call("m1", "c1", 0), waiting("p1"), child("kid")
	message.Extra, message.Parts[0].Extra, c.Extra, p.Extra, ref.Extra = extra, extra, extra, extra, extra
	r.commit(session.Change{
		Messages: []session.Message{message}, Calls: []session.Call{c}, Pending: []session.Pending{p}, Children: []session.ChildRef{ref},
	})

	// The store changes each of them once.
	t.claim(r, "c1")
	t.submit("a", answer("p1", `1`))
	_, err := t.store().UpdateChild(t.Context(), "a", "kid", func(c *session.ChildRef) error { c.Awaited = true; return nil })
	t.ok(err, "UpdateChild")
	r.finish(session.RunCompleted)
	loaded := t.load("a")
	loaded.UserID = "changed"
	t.ok(session.Save(t.Context(), t.store(), loaded), "save")

	check("of the document", t.load("a").Extra)
	messages, err := t.store().AllMessages(t.Context(), "a")
	t.ok(err, "AllMessages")
	check("of the message", messages[0].Extra)
	check("of the part", messages[0].Parts[0].Extra)
	rows, err := t.store().Calls(t.Context(), "a", "m1")
	t.ok(err, "Calls")
	check("of the call", rows[0].Extra)
	check("of the pending entry", t.entry("a", "p1").Extra)
	check("of the child reference", t.children("a")[0].Extra)
	run, err := t.store().CurrentRun(t.Context(), "a")
	t.ok(err, "CurrentRun")
	check("of the run", run.Extra)
}

func futureFormat(t *bed) {
	var state session.State
	err := session.Decode("session a", raw(`{"v":99,"sessionId":"a"}`), &state)
	t.refused(err, session.ErrCorrupt, "decode")
}

// damage damages a row of the session or stream "bad".
func (t *bed) damage(what string) {
	t.Helper()
	t.Corrupt(t.TB, what, t.tenant, "bad")
}

func corruptSession(t *bed) {
	t.crowd("bad")
	t.crowd("good")
	before := t.snapshot("good")
	t.damage(RowSession)
	_, err := t.store().Load(t.Context(), "bad")
	t.refused(err, session.ErrCorrupt, "Load")
	_, err = t.store().Load(t.Context(), "good")
	t.ok(err, "Load of another")
	page, err := t.store().List(t.Context(), session.Query{})
	t.ok(err, "List")
	found := false
	for _, item := range page.Items {
		found = found || item.ID == "good"
	}
	equal(t, "the other is listed", found, true)
	t.sameSnapshot("good", before)
	t.ok(t.delete("bad"), "delete the damaged session")
	t.exists("bad", false)
}

func corruptMessage(t *bed) {
	t.numbered("bad", 3)
	t.numbered("good", 3)
	t.damage(RowMessage)
	_, err := t.store().AllMessages(t.Context(), "bad")
	t.refused(err, session.ErrCorrupt, "AllMessages")
	_, err = t.store().MessagesFrom(t.Context(), "bad", 1)
	t.refused(err, session.ErrCorrupt, "MessagesFrom")
	page, err := t.store().Messages(t.Context(), "bad", session.PageRequest{Limit: 2})
	t.ok(err, "the page before it")
	equal(t, "messages", len(page.Items), 2)
	t.messagesAre("good", "m0", "m1", "m2")
	_, err = session.TruncateMessages(t.Context(), t.store(), "bad", 2)
	t.ok(err, "drop the damaged message")
	t.messagesAre("bad", "m0", "m1")
}

func corruptRun(t *bed) {
	t.chain("bad")
	r := t.start("bad", "run-2")
	r.finish(session.RunCompleted)
	t.chain("good")
	t.damage(RowRun)
	_, err := t.store().Run(t.Context(), "bad", "run-2")
	t.refused(err, session.ErrCorrupt, "Run")
	_, err = t.store().Run(t.Context(), "bad", "run-1")
	t.ok(err, "an earlier run")
	_, err = t.store().Run(t.Context(), "good", "run-1")
	t.ok(err, "another session's run")
	t.load("bad")
}

func corruptCheckpoint(t *bed) {
	t.chain("bad")
	t.chain("good")
	t.damage(RowCheckpoint)
	_, err := t.store().Checkpoint(t.Context(), "bad", "bad-cp3")
	t.refused(err, session.ErrCorrupt, "Checkpoint")
	_, err = t.store().Checkpoint(t.Context(), "bad", "bad-cp1")
	t.ok(err, "an earlier checkpoint")
	_, err = t.store().Checkpoint(t.Context(), "good", "good-cp3")
	t.ok(err, "another session's checkpoint")
	t.messagesAre("bad", "u1", "m1", "u2", "m2", "u3")
}

func corruptCall(t *bed) {
	r, other := t.replied("bad"), t.replied("good")
	t.damage(RowCall)
	_, _, err := t.store().Claim(t.Context(), "bad", r.version, r.fence, "m1", "c3")
	t.refused(err, session.ErrCorrupt, "Claim")
	t.claim(r, "c1")
	t.claim(other, "c3")
	r.finish(session.RunSuspendedPartial)
	t.ok(session.DropCalls(t.Context(), t.store(), "bad", "m1"), "DropCalls")
	t.callsAre("bad", "m1")
}

func corruptPending(t *bed) {
	soon := t.now().Add(t.ttl())
	t.asking("bad", due("p1", soon))
	t.asking("good", due("p1", soon))
	t.damage(RowPending)
	_, err := t.store().PendingCalls(t.Context(), "bad", true)
	t.refused(err, session.ErrCorrupt, "PendingCalls")
	t.pass(2 * t.ttl())
	found := false
	for _, d := range t.due("DueDeadlines", t.deadlines) {
		found = found || d.ID == "good"
	}
	equal(t, "the other's deadline is listed", found, true)
	equal(t, "the calls that wait", t.inbox(session.WaitingQuery{}), []string{"good/p1"})
	equal(t, "outcome", t.submit("good", answer("p1", `1`)), session.SubmitAccepted)
}

func corruptChild(t *bed) {
	t.create("bad")
	t.create("good")
	for _, id := range []string{"bad", "good"} {
		t.ok(session.PutChildren(t.Context(), t.store(), id, []session.ChildRef{child("kid-1"), child("kid-2")}), "PutChildren")
	}
	t.damage(RowChild)
	_, err := t.store().Children(t.Context(), "bad")
	t.refused(err, session.ErrCorrupt, "Children")
	equal(t, "children of the other", len(t.children("good")), 2)
	t.ok(t.delete("bad"), "delete")
}

func corruptChunk(t *bed) {
	t.append("bad", producer("bad", 1), 1, numberedTexts(1, 3)...)
	t.append("good", producer("good", 1), 1, numberedTexts(1, 3)...)
	t.damage(RowChunk)
	r := t.read(t.streams(), "bad", 0, false)
	for {
		item, err, ok := r.next()
		if err != nil {
			t.refused(err, session.ErrCorrupt, "read")
			break
		}
		if !ok || item.Frame != stream.FrameChunk || item.Sequence > 2 {
			t.Fatalf("the reader of a damaged stream got %s", show(item))
		}
	}
	t.append("bad", producer("bad", 1), 4, text("t4"))
	equal(t, "texts after it", t.deltas("bad", 3), []string{"t4"})
	equal(t, "the other stream", len(t.deltas("good", 0)), 3)
}

func corruptSweep(t *bed) {
	t.brief("bad")
	t.brief("good")
	t.damage(RowSession)
	t.pass(2 * t.ttl())
	found := false
	for _, d := range t.due("ExpiredLeases", t.leases) {
		found = found || d.ID == "good"
	}
	equal(t, "the other's lease is listed", found, true)
}
