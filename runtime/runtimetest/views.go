package runtimetest

import (
	"context"
	"fmt"
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
)

func viewScenarios() []Scenario {
	return []Scenario{
		{"marker", "the model is sent the last marker, what it keeps and what came after; the history stays whole", viewMarker},
		{"markers", "a marker speaks for the earlier ones", viewMarkers},
		{"stable", "between two markers each prompt begins with the one before", viewStable},
		{"trimmed", "a trim cuts what is before it and is not made again: behind it each prompt begins with the one before", viewTrimmed},
		{"rows", "opening a run on a long session with a marker reads the view only", viewRows},
		{"branch", "a branch has the marker if it is taken behind it", viewBranch},
		{"rewind", "a rewind to before the marker undoes it", viewRewind},
		{"retry", "a retry is sent the same view", viewRetry},
		{"approval", "a run that waited for an approval continues with the view", viewApproval},
		{"takeover", "a run that is taken over continues with the view", viewTakeover},
		{"companion", "a companion that was consulted before the marker is known behind it", viewCompanion},
		{"resume at the marker", "a session whose last message is a marker can be resumed", viewResume},
	}
}

// mark appends a summary to session s-1, which nobody runs. The stream does not have it.
func (s *Stage) mark(text string, kept int) {
	s.Helper()
	s.markAs(session.Compaction{Kind: session.CompactionSummary, Kept: kept}, text)
}

// markAs appends any marker.
func (s *Stage) markAs(c session.Compaction, text string) {
	s.Helper()
	m, err := c.Marker(text)
	s.ok(err, "make a marker")
	m.ID = text
	_, err = session.AppendMessages(s.ctx(), s.store(), "s-1", []session.Message{m})
	s.ok(err, "append a marker")
	s.loose["s-1"] = true
}

// sent renders what the model was sent in its n-th request.
func (s *Stage) sent(model *scripted.Model, n int) string {
	s.Helper()
	var texts []string
	for _, m := range model.Requests()[n].Messages {
		switch {
		case m.Role == session.RoleTool:
			texts = append(texts, "result")
		case len(m.Calls()) > 0:
			texts = append(texts, "calls")
		default:
			texts = append(texts, m.Content())
		}
	}
	return strings.Join(texts, ", ")
}

// spoken leaves session s-1 with two turns of text, and a model that has more to say.
func (s *Stage) spoken(more ...scripted.Step) (Executor, *helix.Agent, *scripted.Model) {
	s.Helper()
	model := scripted.New(append([]scripted.Step{scripted.Text("one"), scripted.Text("two")}, more...)...)
	agent := newAgent(model)
	agent.InstructionsFunc = func(_ context.Context, p *helix.Prompt) (string, error) {
		return fmt.Sprintf("There are %d messages.", p.MessageCount), nil
	}
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "first"), helix.Completed)
	s.ended(s.Say(x, agent, "s-1", "second"), helix.Completed)
	return x, agent, model
}

func viewMarker(s *Stage) {
	x, agent, model := s.spoken(scripted.Text("three"), scripted.Text("four"))
	s.mark("summary", 2)
	s.ended(s.Say(x, agent, "s-1", "third"), helix.Completed)
	s.ended(s.Say(x, agent, "s-1", "fourth"), helix.Completed)
	s.same(s.sent(model, 2), "summary, second, two, third", "what the model was sent")
	s.same(s.sent(model, 3), "summary, second, two, third, three, fourth", "what the model was sent next")
	s.same(model.Requests()[3].Instructions, "There are 8 messages.", "what functions see of the history")
	s.transcript("s-1", "user: first", "assistant: one", "user: second", "assistant: two", "user: summary [hidden]",
		"user: third", "assistant: three", "user: fourth", "assistant: four")
	s.same(s.load("s-1").MessageCount, 9, "messages")
	page, err := x.Sessions().Messages(s.ctx(), "s-1", session.PageRequest{})
	s.ok(err, "messages")
	s.same(len(page.Items), 9, "messages of the whole history")
	s.same(page.Items[4].Hidden(), true, "the marker is hidden from people")
	last := s.checkpoints("s-1")
	s.same(last[len(last)-1].MessageCount, 9, "messages that the last checkpoint counts")
}

func viewMarkers(s *Stage) {
	x, agent, model := s.spoken(scripted.Text("three"), scripted.Text("four"))
	s.mark("summary", 2)
	s.ended(s.Say(x, agent, "s-1", "third"), helix.Completed)
	s.mark("all", 4) // with the earlier marker among what it keeps
	s.ended(s.Say(x, agent, "s-1", "fourth"), helix.Completed)
	s.same(s.sent(model, 3), "all, two, third, three, fourth", "what the model was sent")
}

func viewStable(s *Stage) {
	model := scripted.New(scripted.Text("one"), scripted.Call("double", num{1}), scripted.Call("double", num{2}), scripted.Text("two"), scripted.Text("three"))
	agent := newAgent(model, double())
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "first"), helix.Completed)
	s.mark("marker", 1)
	s.ended(s.Say(x, agent, "s-1", "second"), helix.Completed)
	s.ended(s.Say(x, agent, "s-1", "third"), helix.Completed)
	s.same(s.sent(model, 1), "marker, one, second", "what the model was sent behind the marker")
	s.growing(model, 1)
	s.same(len(model.Requests()), 5, "requests")
}

// growing requires that each request from one on begins with the messages of the one before.
func (s *Stage) growing(model *scripted.Model, from int) {
	s.Helper()
	before := ""
	for _, r := range model.Requests()[from:] {
		var now strings.Builder
		for i := range r.Messages {
			raw, err := r.Messages[i].AppendJSON(nil)
			s.ok(err, "encode")
			now.Write(raw)
		}
		if !strings.HasPrefix(now.String(), before) {
			s.Fatalf("the prompt\n%s\ndoes not begin with\n%s", now.String(), before)
		}
		before = now.String()
	}
}

func viewTrimmed(s *Stage) {
	large := newTool("large", func(_ context.Context, _ *helix.Call, n int) (string, error) { return strings.Repeat("x", 1000*n), nil })
	model := scripted.New(scripted.Call("large", num{1}), scripted.Text("one"), scripted.Call("large", num{2}), scripted.Text("two"), scripted.Text("three"))
	agent := newAgent(model, large)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "first"), helix.Completed)
	s.markAs(session.Compaction{Kind: session.CompactionTrim, Kept: 1, Results: 300}, "trim")
	s.ended(s.Say(x, agent, "s-1", "second"), helix.Completed)
	s.ended(s.Say(x, agent, "s-1", "third"), helix.Completed)
	s.same(s.sent(model, 4), "first, calls, result, one, second, calls, result, two, third", "what the model was sent")
	s.growing(model, 2)
	sizes := func(request int) string {
		var out []string
		for _, m := range model.Requests()[request].Messages {
			if m.Role == session.RoleTool {
				out = append(out, fmt.Sprint(len(m.Parts[0].Text)))
			}
		}
		return strings.Join(out, " ")
	}
	s.same(sizes(1), "1000", "bytes of the result before the trim")
	s.same(sizes(4), "299 2000", "bytes of the results behind the trim")
	page, err := x.Sessions().Messages(s.ctx(), "s-1", session.PageRequest{})
	s.ok(err, "messages")
	s.same(len(page.Items[2].Parts[0].Text), 1000, "bytes of the result in the history")
}

func viewRows(s *Stage) {
	const long, kept = 10_000, 4
	model := scripted.New(scripted.Text("one"), scripted.Call("double", num{1}), scripted.Text("two"))
	agent := newAgent(model, double())
	backend := s.newFrail(s.Backend)
	s.album = nil // snapshots are of the whole history
	x := s.startOn(backend, Options{Agents: []*helix.Agent{agent}})
	s.ended(s.Say(x, agent, "s-1", "first"), helix.Completed)
	var many []session.Message
	for i := range long - 2 {
		m := session.UserText(fmt.Sprint("message ", i))
		m.ID = fmt.Sprint("m", i)
		many = append(many, m)
	}
	for ; len(many) > 0; many = many[min(1000, len(many)):] {
		_, err := session.AppendMessages(s.ctx(), s.store(), "s-1", many[:min(1000, len(many))])
		s.ok(err, "append")
	}
	s.mark("summary", kept)
	backend.faults.rows.Store(0)
	s.ended(s.Say(x, agent, "s-1", "second"), helix.Completed)
	s.same(backend.faults.rows.Load(), int64(kept+1), "messages read for a turn on a session of 10,000")
	s.same(len(model.Requests()[1].Messages), kept+2, "messages that the model was sent")
	s.same(s.load("s-1").MessageCount, long+1+4, "messages")
}

func viewBranch(s *Stage) {
	x, agent, model := s.spoken(scripted.Text("three"), scripted.Text("behind"), scripted.Text("before"))
	before := s.checkpoints("s-1")
	s.mark("summary", 1)
	s.ended(s.Say(x, agent, "s-1", "third"), helix.Completed)
	behind := s.checkpoints("s-1")
	s.loose["s-2"] = true
	s.ended(s.Result(s.branch(x, agent, "s-2", helix.Branch{From: "s-1", Checkpoint: behind[len(behind)-1].ID}, "go on")), helix.Completed)
	s.same(s.sent(model, 3), "summary, two, third, three, go on", "the branch behind the marker")
	s.ended(s.Result(s.branch(x, agent, "s-3", helix.Branch{From: "s-1", Checkpoint: before[len(before)-1].ID}, "go on")), helix.Completed)
	s.same(s.sent(model, 4), "first, one, second, two, go on", "the branch before the marker")
	s.same(len(s.load("s-3").Marks), 0, "marks of the branch before the marker")
}

func viewRewind(s *Stage) {
	x, agent, model := s.spoken(scripted.Text("three"), scripted.Text("again"), scripted.Text("and again"))
	before := s.checkpoints("s-1")
	s.mark("summary", 1)
	s.ended(s.Say(x, agent, "s-1", "third"), helix.Completed)
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{
		Checkpoint: before[len(before)-1].ID, Message: new(helix.UserText("other")),
	})), helix.Completed)
	s.same(s.sent(model, 3), "first, one, second, two, other", "after the rewind")
	s.same(len(s.load("s-1").Marks), 0, "marks after the rewind")
	s.ended(s.Say(x, agent, "s-1", "more"), helix.Completed)
	s.same(s.sent(model, 4), "first, one, second, two, other, again, more", "the turn after the rewind")
}

func viewRetry(s *Stage) {
	x, agent, model := s.spoken(scripted.Fail(session.CodeProvider, false, "no"), scripted.Text("three"))
	s.mark("summary", 1)
	s.ended(s.Say(x, agent, "s-1", "third"), helix.Failed)
	s.ended(s.Result(s.Retry(x, "s-1")), helix.Completed)
	s.same(s.sent(model, 3), s.sent(model, 2), "what the retry was sent")
	s.same(s.sent(model, 3), "summary, two, third", "what the model was sent")
}

func viewApproval(s *Stage) {
	var ran tally
	model := scripted.New(scripted.Text("one"), scripted.Call("sign", num{3}), scripted.Text("signed"), scripted.Text("two"))
	agent := newAgent(model, guarded(&ran, "sign"))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "first"), helix.Completed)
	s.mark("summary", 0)
	s.ended(s.Say(x, agent, "s-1", "second"), helix.SuspendedClientTool)
	s.approve(x, "sign")
	s.ended(s.resumed(x), helix.Completed)
	s.same(s.sent(model, 2), "summary, second, calls, result", "what the resumed run was sent")
	s.ended(s.Say(x, agent, "s-1", "third"), helix.Completed)
	s.same(s.sent(model, 3), "summary, second, calls, result, signed, third", "what the next turn was sent")
	s.same(ran.of("sign"), 1, "times that the tool ran")
}

func viewTakeover(s *Stage) {
	g := s.newGate()
	var ran tally
	slow := newTool("slow", func(ctx context.Context, _ *helix.Call, n int) (int, error) {
		if ran.add("slow") == 1 {
			g.enter()
			<-ctx.Done()
			return 0, ctx.Err()
		}
		return n, nil
	})
	slow.Idempotent = true
	model := scripted.New(scripted.Text("one"), scripted.Call("slow", num{1}), scripted.Text("two"))
	agent := newAgent(model, slow)
	x := s.mortal(agent)
	s.ended(s.Say(x, agent, "s-1", "first"), helix.Completed)
	s.mark("summary", 1)
	run := s.Begin(x, agent, "s-1", "second")
	s.receive("the tool runs", g.entered)
	x.Kill()
	s.takenOver(run, agent)
	s.same(s.sent(model, 2), "summary, one, second, calls, result", "what the model was sent after the takeover")
	s.transcript("s-1", "user: first", "assistant: one", "user: summary [hidden]", "user: second", `assistant: slow({"n":1})`, "tool slow: 1", "assistant: two")
}

func viewCompanion(s *Stage) {
	helper := named("helper", scripted.New(scripted.Text("hello"), scripted.Text("again")))
	agent := team(newAgent(scripted.New(scripted.Reply(spawning("bob", "the task")), scripted.Text("one"),
		scripted.Reply(messaging("bob", "more")), scripted.Text("two"))), helix.Blocking, helper)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "first"), helix.Completed)
	s.mark("summary", 0)
	s.ended(s.Say(x, agent, "s-1", "second"), helix.Completed)
	s.transcript(s.companion("bob"), "user: the task", "assistant: hello", "user: more", "assistant: again")
}

func viewResume(s *Stage) {
	x, _, model := s.spoken(scripted.Text("three"))
	s.mark("summary", 1)
	_, err := session.CreateCheckpoint(s.ctx(), s.store(), "s-1", session.NewCheckpoint{ID: "here", Source: session.FromSave})
	s.ok(err, "create a checkpoint")
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{Checkpoint: "here"})), helix.Completed)
	s.same(s.sent(model, 2), "summary, two, Continue where you stopped.", "what the model was sent")
}
