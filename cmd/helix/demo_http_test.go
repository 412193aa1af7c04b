package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/helixagents/helix/client"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/runtime/dbos"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/runtime/temporal"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// talkOver has a conversation with an agent of a server.
type talkOver struct {
	t  *testing.T
	c  *client.Client
	id string
}

// finished waits for a run and gives its chunks and how the session stands then.
func (k *talkOver) finished(runID string) ([]stream.Chunk, *wire.Status) {
	k.t.Helper()
	var chunks []stream.Chunk
	for item, err := range k.c.ReadRun(k.t.Context(), k.id, runID, 0) {
		if err != nil {
			k.t.Fatal(err)
		}
		if item.Chunk != nil {
			chunks = append(chunks, *item.Chunk)
		}
	}
	status, err := k.c.Status(k.t.Context(), k.id)
	if err != nil {
		k.t.Fatal(err)
	}
	return chunks, status
}

func (k *talkOver) say(agent, words string) ([]stream.Chunk, *wire.Status) {
	k.t.Helper()
	return k.finished(begin(k.t, k.c, agent, k.id, words).RunID)
}

// answer answers the one call that waits, which is one of a tool, and resumes the session.
func (k *talkOver) answer(status *wire.Status, tool string, answer func(*session.Pending, *wire.Submit)) ([]stream.Chunk, *wire.Status) {
	k.t.Helper()
	if len(status.Pending) != 1 || status.Pending[0].Tool != tool || !status.AwaitingClientTool || status.Status != session.Active {
		k.t.Fatalf("it does not wait for %s alone: %+v", tool, status)
	}
	submit := wire.Submit{SessionID: k.id, ToolCallID: status.Pending[0].CallID, Resume: true}
	answer(&status.Pending[0], &submit)
	done, err := k.c.Submit(k.t.Context(), submit)
	if err != nil {
		k.t.Fatal(err)
	}
	if done.Outcome != session.SubmitAccepted || done.RunID == "" {
		k.t.Fatalf("the answer: %+v", done)
	}
	return k.finished(done.RunID)
}

func (k *talkOver) completes(status *wire.Status, text string) {
	k.t.Helper()
	if status.Status != session.Completed || status.Text != text {
		k.t.Errorf("%s: %q, %v; want %q", status.Status, status.Text, status.Error, text)
	}
}

func granting(approved bool, reason string) func(*session.Pending, *wire.Submit) {
	return func(p *session.Pending, s *wire.Submit) {
		s.Approval = &wire.Approval{ApprovalID: p.ApprovalID, Approved: approved, Reason: reason}
	}
}

// The demo does over HTTP what it does at all, on every runtime. A commit does each scene
// on one of them.
func TestServedDemo(t *testing.T) {
	t.Parallel()
	has := testshare.Has(t, len(runtimes))
	names := slices.Sorted(maps.Keys(scenes))
	for i, kind := range runtimes {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			d := serveDemo(t, writeDemo(t, "5ms", ""), runsOn(t, kind)...)
			for j, name := range names {
				if !has(i + j) {
					continue
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					k := &talkOver{t, d.Client, "demo/" + fmt.Sprintf("%x", name)}
					scenes[name](k)
					read(t, d.Client, k.id).toEnd(d.Client, session.Completed)
					runs, err := d.Runs(t.Context(), k.id, session.PageRequest{})
					if err != nil {
						t.Fatal(err)
					}
					for i := range runs.Items {
						if runs.Items[i].Runtime != kind {
							t.Errorf("a run is on %s", runs.Items[i].Runtime)
						}
					}
				})
			}
		})
	}
}

// runtimes are those that the program can serve agents on.
var runtimes = []string{local.Name, temporal.Name, dbos.Name}

// runsOn are the flags that have a server run agents on a runtime, in a deployment of
// its own.
func runsOn(t *testing.T, kind string) []string {
	t.Helper()
	flags := []string{"--runtime", kind}
	if kind == temporal.Name {
		flags = append(flags, "--temporal-address", testserver.Temporal(t), "--task-queue", fmt.Sprintf("helix-%016x", rand.Uint64()))
	}
	return flags
}

// scenes are what the demo shows.
var scenes = map[string]func(*talkOver){
	"streaming": func(k *talkOver) {
		chunks, _ := k.say("assistant", askStory)
		tellsStory(k.t, k.c, k.id)
		if n := pieces(chunks); n < 3 {
			k.t.Errorf("the story came in %d pieces", n)
		}
	},
	"parallel tools": func(k *talkOver) {
		chunks, status := k.say("assistant", "What time is it, and what is 6 * 7?")
		if status.Status != session.Completed || len(status.Text) < 20 || status.Text[len(status.Text)-10:] != "6 * 7 = 42" {
			k.t.Errorf("%s: %q", status.Status, status.Text)
		}
		lastStart, firstEnd := -1, -1
		for i := range chunks {
			switch {
			case chunks[i].Kind == stream.ToolStart:
				lastStart = i
			case chunks[i].Kind == stream.ToolEnd && firstEnd < 0:
				firstEnd = i
			}
		}
		if lastStart < 0 || firstEnd < lastStart {
			k.t.Errorf("a call began after another had ended: %d, %d", lastStart, firstEnd)
		}
	},
	"an approval granted": func(k *talkOver) {
		k.say("assistant", "Remember that the compass points north.")
		_, status := k.say("assistant", "Forget everything.")
		_, status = k.answer(status, "forget", granting(true, ""))
		k.completes(status, "It is all forgotten.")
	},
	"an approval denied": func(k *talkOver) {
		_, status := k.say("assistant", "Forget everything.")
		_, status = k.answer(status, "forget", granting(false, "I like them"))
		k.completes(status, "forget did not work: the call was not approved by the user: I like them")
	},
	"a client tool": func(k *talkOver) {
		_, status := k.say("assistant", "Choose between tea and coffee.")
		_, status = k.answer(status, "choose", func(_ *session.Pending, s *wire.Submit) { s.Result = json.RawMessage(`"tea"`) })
		k.completes(status, "So it is tea.")
	},
	"a nested approval granted": func(k *talkOver) {
		_, status := k.say("planner", "Ask the buyer to order ten pencils.")
		chunks, status := k.answer(status, "order", granting(true, ""))
		k.completes(status, "The buyer says: It is ordered.")
		if !slices.ContainsFunc(chunks, func(c stream.Chunk) bool { return c.AgentType == "buyer" && c.Kind == stream.TextDelta }) {
			k.t.Error("what the buyer says is not in the stream")
		}
	},
	"a nested approval denied": func(k *talkOver) {
		_, status := k.say("planner", "Ask the buyer to order ten pencils.")
		_, status = k.answer(status, "order", granting(false, "too many"))
		k.completes(status, "The buyer says: order did not work: the call was not approved by the user: too many")
	},
	"a companion": func(k *talkOver) {
		_, status := k.say("host", "Tell the diary to remember that I planted a tree.")
		k.completes(status, "The diary says: I will remember that.")
		_, status = k.say("host", "Ask the diary what it remembers.")
		k.completes(status, "The diary says: I remember: I planted a tree.")
	},
	"skills": func(k *talkOver) {
		chunks, status := k.say("writer", "Write release notes.")
		if status.Status != session.Completed || !strings.Contains(status.Text, "**Fixed**: what works again.") {
			k.t.Errorf("%s: %q", status.Status, status.Text)
		}
		loaded := slices.IndexFunc(chunks, func(c stream.Chunk) bool { return c.Kind == stream.Custom && c.Name == "skill_loaded" })
		if loaded < 0 || string(chunks[loaded].Data) != `{"name":"release-notes"}` {
			k.t.Errorf("the stream does not tell which skill was loaded")
		}
		_, status = k.say("writer", "Write release notes.")
		k.completes(status, "The skill release-notes is loaded already and has not changed. Its instructions are above: follow them.")
	},
	"structured output": func(k *talkOver) {
		chunks, status := k.say("ticket", "The printer on floor 3 is on fire. Urgent!")
		var out struct{ Subject, Priority string }
		if err := json.Unmarshal(status.Output, &out); err != nil || out.Subject != "The printer on floor 3 is on fire" || out.Priority != "high" {
			k.t.Errorf("the output is %s, %v", status.Output, err)
		}
		if !slices.ContainsFunc(chunks, func(c stream.Chunk) bool { return c.Kind == stream.Output }) {
			k.t.Error("the output is not in the stream")
		}
	},
}

func pieces(chunks []stream.Chunk) (n int) {
	for i := range chunks {
		if chunks[i].Kind == stream.TextDelta {
			n++
		}
	}
	return n
}
