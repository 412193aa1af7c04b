package runtimetest

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
)

func blobScenarios() []Scenario {
	return []Scenario{
		{"put and get", "a tool puts bytes and names them in its result; a later call reads them", blobsPutGet},
		{"takeover", "a blob put by a process that died is there, and putting it again counts once", blobsTakeover},
		{"branch and delete", "a branch has the blobs of its source, also once that is deleted; nobody else has", blobsBranch},
		{"retry", "a rewind drops no blob", blobsRetry},
		{"sub-agent", "what a sub-agent puts belongs to the conversation, and its caller can read it", blobsBelow},
		{"foreign", "a reference that another session or tenant has gives a tool nothing", blobsForeign},
		{"limits", "a blob that is too large, or for which the session has no room, is a tool error, and the session stays usable", blobsLimits},
		{"weight", "a session that blobs have made too large takes no new message", blobsWeight},
		{"bad reference", "a bad reference is a clear error", blobsBadReference},
		{"outside a run", "a scope outside of a run has no blobs", blobsOutside},
	}
}

// content is the blob with a number.
func content(n int) []byte { return bytes.Repeat([]byte{byte(n), 0xff, '<'}, 1000+n) }

// keep is a tool that puts the blob with a number and returns the reference.
func keep() helix.Tool {
	tool := newTool("keep", func(ctx context.Context, call *helix.Call, n int) (string, error) {
		return call.PutBlob(ctx, content(n))
	})
	tool.Idempotent = true
	return tool
}

// fetch is a tool that reads the blob with a number and returns its size.
func fetch() helix.Tool {
	return newTool("fetch", func(ctx context.Context, call *helix.Call, n int) (int, error) {
		data, err := call.Blob(ctx, blob.RefOf(content(n)))
		if err == nil && !bytes.Equal(data, content(n)) {
			return 0, session.ErrInternal.WithMessage("these are not the bytes that were put")
		}
		return len(data), err
	})
}

var blobRefs = regexp.MustCompile(`sha256:[0-9a-f]{64}`)

// namedBlobs checks that a session can read every blob that its messages name, and
// returns how many these are.
func (s *Stage) namedBlobs(id string) int {
	s.Helper()
	messages := s.messages(id)
	raw, err := json.Marshal(messages)
	s.ok(err, "encode the messages of %s", id)
	refs := blobRefs.FindAllString(string(raw), -1)
	for _, ref := range refs {
		_, err := s.Backend.Blobs().Get(s.ctx(), id, ref)
		s.ok(err, "blob of %s", id)
	}
	return len(refs)
}

func blobsPutGet(s *Stage) {
	agent := newAgent(scripted.New(scripted.Call("keep", num{1}), scripted.Call("fetch", num{1}), scripted.Text("ok"), scripted.Call("fetch", num{1}), scripted.Text("ok")),
		keep(), fetch())
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	s.ended(s.Say(x, agent, "s-1", "Again!"), helix.Completed)
	s.transcript("s-1", "user: Go!", `assistant: keep({"n":1})`, `tool keep: "`+blob.RefOf(content(1))+`"`, `assistant: fetch({"n":1})`, "tool fetch: 3003",
		"assistant: ok", "user: Again!", `assistant: fetch({"n":1})`, "tool fetch: 3003", "assistant: ok")
	s.same(s.namedBlobs("s-1"), 1, "blobs that messages name")
}

func blobsTakeover(s *Stage) {
	g := s.newGate()
	tool := newTool("keep", func(ctx context.Context, call *helix.Call, n int) (string, error) {
		ref, err := call.PutBlob(ctx, content(n))
		if err == nil {
			err = g.pass(ctx)
		}
		return ref, err
	})
	tool.Idempotent = true
	agent := newAgent(scripted.New(scripted.Call("keep", num{2}), scripted.Text("kept")), tool)
	run := s.orphan(agent, g)
	_, err := s.Backend.Blobs().Get(s.ctx(), "s-1", blob.RefOf(content(2)))
	s.ok(err, "the blob of the process that died")
	g.release()
	s.takenOver(run, agent)
	s.same(s.namedBlobs("s-1"), 1, "blobs that messages name")
	size, err := s.Backend.Blobs().Size(s.ctx(), "s-1")
	s.ok(err, "size")
	s.same(size, blob.Charge(int64(len(content(2)))), "size of the blobs")
}

func blobsBranch(s *Stage) {
	agent := newAgent(scripted.New(scripted.Call("keep", num{3}), scripted.Text("ok"), scripted.Call("fetch", num{3}), scripted.Text("ok")), keep(), fetch())
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	s.ended(s.Result(s.branch(x, agent, "s-2", helix.Branch{From: "s-1"}, "Continue!")), helix.Completed)
	s.same(s.messages("s-2")[6].Parts[0].Error == nil, true, "the branch read the blob")
	_, err := s.store().Delete(s.ctx(), "s-1")
	s.ok(err, "delete")
	_, err = s.Backend.Blobs().Sweep(s.ctx(), 0, 1000)
	s.ok(err, "sweep")
	s.same(s.namedBlobs("s-2"), 1, "blobs that messages of the branch name")
	_, err = s.Backend.Blobs().Get(s.ctx(), "s-1", blob.RefOf(content(3)))
	s.refused(err, helix.ErrNotFound)
}

func blobsRetry(s *Stage) {
	agent := newAgent(scripted.New(scripted.Call("keep", num{4}), scripted.Text("one"), scripted.Text("two")), keep())
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{Checkpoint: s.atTheStart()})), helix.Completed)
	s.transcript("s-1", "user: Go!", "assistant: two")
	_, err := s.Backend.Blobs().Get(s.ctx(), "s-1", blob.RefOf(content(4)))
	s.ok(err, "the blob after the rewind")
}

func blobsBelow(s *Stage) {
	child := named("child", scripted.New(scripted.Call("keep", num{5}), scripted.Text("kept")), keep())
	agent := newAgent(scripted.New(hand("child", "do it"), scripted.Call("fetch", num{5}), scripted.Text("Thanks.")).ByPosition(), fetch())
	agent.SubAgents = []helix.SubAgent{{Agent: child}}
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	s.same(s.namedBlobs(s.child("s-1")), 1, "blobs that messages of the sub-agent name")
	part := s.messages("s-1")[4].Parts[0]
	s.same(string(part.Output), "3015", "what its caller read")
	_, err := s.store().Delete(s.ctx(), "s-1")
	s.ok(err, "delete")
	used, err := s.Backend.Blobs().Referenced(s.ctx(), blob.RefOf(content(5)))
	s.ok(err, "referenced")
	s.same(used, false, "the blob is referenced after the deletion")
}

func blobsForeign(s *Stage) {
	agent := newAgent(scripted.New(scripted.Call("keep", num{6}), scripted.Text("ok"), scripted.Call("fetch", num{6}), scripted.Text("no")), keep(), fetch())
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	s.ended(s.Say(x, agent, "s-2", "Go!"), helix.Completed)
	s.refused(s.messages("s-2")[2].Parts[0].Error, helix.ErrNotFound, "blob")
}

func blobsLimits(s *Stage) {
	big := newTool("big", func(ctx context.Context, call *helix.Call, n int) (string, error) {
		return call.PutBlob(ctx, make([]byte, n))
	})
	agent := newAgent(scripted.New(
		scripted.Call("big", num{blob.MaxBytes + 1}), scripted.Call("big", num{60_000}), scripted.Call("big", num{50_000}), scripted.Call("big", num{60_000}),
		scripted.Call("big", num{10}), scripted.Text("ok")), big)
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, MaxSession: 100_000})
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	results := s.messages("s-1")
	for i, words := range []string{"bytes, at most", "", "no room", "", ""} {
		part := results[2+2*i].Parts[0]
		if words == "" {
			s.same(part.Error == nil, true, "the error of call %d: %v", i, part.Error)
			continue
		}
		s.refused(part.Error, session.ErrTooLarge, words)
	}
	// Over the limit of a session is over the limit of a blob only without one.
	other := newAgent(scripted.New(scripted.Call("big", num{blob.MaxBytes + 1}), scripted.Text("ok")), big)
	y := s.StartOther(Options{Agents: []*helix.Agent{other}, MaxSession: -1})
	s.ended(s.Say(y, other, "s-2", "Go!"), helix.Completed)
	s.refused(s.messages("s-2")[2].Parts[0].Error, session.ErrTooLarge, "16777216")
}

func blobsWeight(s *Stage) {
	big := newTool("big", func(ctx context.Context, call *helix.Call, n int) (string, error) {
		return call.PutBlob(ctx, make([]byte, n))
	})
	agent := newAgent(scripted.New(scripted.Call("big", num{90_000}), scripted.Text("ok"), scripted.Text("more"), scripted.Text("more")), big)
	x := s.StartWith(Options{Agents: []*helix.Agent{agent}, MaxSession: 100_000})
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	_, err := x.Execute(s.ctx(), agent, helix.Input{SessionID: "s-1", Message: helix.UserText(strings.Repeat("x", 20_000))})
	s.refused(err, session.ErrTooLarge, "begin a new one")
	s.ended(s.Say(x, agent, "s-1", "A short one."), helix.Completed)
}

func blobsBadReference(s *Stage) {
	tool := newTool("bad", func(ctx context.Context, call *helix.Call, _ int) (int, error) {
		data, err := call.Blob(ctx, "sha256:../../etc/passwd")
		return len(data), err
	})
	agent := newAgent(scripted.New(scripted.Call("bad", num{1}), scripted.Text("ok")), tool)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	s.refused(s.messages("s-1")[2].Parts[0].Error, helix.ErrInvalid, "not a reference")
}

func blobsOutside(s *Stage) {
	var scope helix.Scope
	_, err := scope.PutBlob(s.ctx(), nil)
	s.refused(err, session.ErrNotSupported)
	_, err = scope.Blob(s.ctx(), blob.RefOf(nil))
	s.refused(err, session.ErrNotSupported)
}
