package main

import (
	"testing"

	"github.com/helixagents/helix/client"
	"github.com/helixagents/helix/internal/testbackend"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// pair is two servers on one store: what begins on one continues on the other.
type pair struct {
	t             *testing.T
	first, second *daemon
}

func TestServePairs(t *testing.T) {
	t.Parallel()
	address := map[string]func(testing.TB) string{}
	for _, kind := range testbackend.Shared() {
		address[kind.Name] = kind.Address
	}
	for name, flags := range map[string][]string{
		"postgres":                   {"--store", address["postgres"](t)},
		"postgres, streams in redis": {"--store", address["postgres"](t), "--streams", address["redis"](t)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := writeDemo(t, "20ms", quick)
			flags = append([]string{"--config", defaultConfig, "--allow-unauthenticated"}, flags...)
			p := &pair{t, serve(t, dir, flags...), serve(t, dir, flags...)}
			p.testStopping()
			p.testAnswering()
			p.testTakeover()
			p.second.stop()
		})
	}
}

// both reads a session's stream from its beginning through both servers.
func (p *pair) both(id string, want session.Status) {
	p.t.Helper()
	for _, d := range []*daemon{p.first, p.second} {
		read(p.t, d.Client, id).toEnd(d.Client, want)
	}
}

// testStopping streams, interrupts and resumes on the second what began on the first.
func (p *pair) testStopping() {
	p.t.Helper()
	begin(p.t, p.first.Client, "assistant", "tale", askStory)
	reader := read(p.t, p.second.Client, "tale")
	reader.words(5)
	if _, err := p.second.Interrupt(p.t.Context(), wire.Stop{SessionID: "tale", Reason: "enough"}); err != nil {
		p.t.Fatal(err)
	}
	reader.toEnd(p.second.Client, session.Interrupted)
	p.both("tale", session.Interrupted)
	if _, err := p.second.Resume(p.t.Context(), wire.Resume{SessionID: "tale"}); err != nil {
		p.t.Fatal(err)
	}
	p.both("tale", session.Completed)
}

// testAnswering answers on the second what the first asks, at any depth.
func (p *pair) testAnswering() {
	p.t.Helper()
	for agent, words := range map[string]string{"assistant": "Forget everything.", "planner": "Ask the buyer to order ten pencils."} {
		k := &talkOver{p.t, p.first.Client, "asks-" + agent}
		_, status := k.say(agent, words)
		k.c = p.second.Client
		_, status = k.answer(status, status.Pending[0].Tool, granting(true, ""))
		if status.Status != session.Completed {
			p.t.Errorf("%s: %+v", agent, status)
		}
		p.both(k.id, session.Completed)
	}
	// The session continues there after an answer that is given here.
	k := &talkOver{p.t, p.first.Client, "choice"}
	_, status := k.say("assistant", "Choose between tea and coffee.")
	submit := wire.Submit{SessionID: k.id, ToolCallID: status.Pending[0].CallID, Result: []byte(`"tea"`)}
	if _, err := p.second.Submit(p.t.Context(), submit); err != nil {
		p.t.Fatal(err)
	}
	again, err := p.first.Submit(p.t.Context(), submit)
	if err != nil || again.Outcome != session.SubmitAlreadyCompleted {
		p.t.Errorf("the same answer on the other server: %+v, %v", again, err)
	}
	started, err := p.first.Resume(p.t.Context(), wire.Resume{SessionID: k.id})
	if err != nil {
		p.t.Fatal(err)
	}
	_, status = k.finished(started.RunID)
	k.completes(status, "So it is tea.")
}

// testTakeover kills the first in the middle of turns: the second continues them.
func (p *pair) testTakeover() {
	p.t.Helper()
	var readers []*reading
	ids := []string{"one", "two", "three"}
	for _, id := range ids {
		begin(p.t, p.first.Client, "assistant", id, askStory)
		readers = append(readers, read(p.t, p.second.Client, id))
	}
	for _, reader := range readers {
		reader.words(5)
	}
	p.first.kill()
	for i, reader := range readers {
		reader.toEnd(p.second.Client, session.Completed)
		tellsStory(p.t, p.second.Client, ids[i])
		if n := reader.count(stream.StepDiscarded); n != 1 {
			p.t.Errorf("what the killed server had shown was taken back %d times", n)
		}
		p.sameRun(p.second.Client, ids[i])
	}
}

// sameRun checks that a takeover continues a run and begins none.
func (p *pair) sameRun(c *client.Client, id string) {
	p.t.Helper()
	runs, err := c.Runs(p.t.Context(), id, session.PageRequest{})
	if err != nil || len(runs.Items) != 1 {
		p.t.Errorf("%d runs, %v", len(runs.Items), err)
	}
}
