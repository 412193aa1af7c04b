package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/config"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/skill"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/memory"
)

// demo is the demo's agents on the scripted model.
type demo struct {
	t      *testing.T
	rt     *local.Runtime
	db     store.Backend
	agents map[string]*helix.Agent
}

func newDemo(t *testing.T) *demo {
	t.Helper()
	file, err := readConfig("")
	if err != nil {
		t.Fatal(err)
	}
	agents, err := file.Build(config.BuildOptions{
		OpenModel: func(config.Model) (llm.Model, error) { return scripted.Demo(scripted.DemoConfig{}), nil },
		Skills:    demoSkills(),
	})
	if err != nil {
		t.Fatal(err)
	}
	d := &demo{t: t, db: memory.New(memory.Config{}), agents: map[string]*helix.Agent{}}
	if d.rt, err = local.New(local.Config{Backend: d.db, Agents: agents}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.rt.Shutdown(context.Background()) })
	for _, agent := range agents {
		d.agents[agent.Name] = agent
	}
	return d
}

func (d *demo) result(run helix.Run, err error) *helix.Result {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
	result, err := run.Result(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	return result
}

// say says something to an agent, in a session of its own, as each of its
// descriptions says one can.
func (d *demo) say(agent, words string) *helix.Result {
	d.t.Helper()
	if !strings.Contains(strings.Join(strings.Fields(d.agents[agent].Description), " "), words) {
		d.t.Errorf("the description of %s does not say that one may say %q", agent, words)
	}
	return d.result(d.rt.Execute(d.t.Context(), d.agents[agent], helix.Input{SessionID: agent, Message: helix.UserText(words)}))
}

// answer answers the one call that waits and resumes the session.
func (d *demo) answer(agent string, result *helix.Result, answer func(*session.Pending) helix.Submission) *helix.Result {
	d.t.Helper()
	if len(result.Pending) != 1 {
		d.t.Fatalf("%d calls wait: %+v", len(result.Pending), result)
	}
	if _, err := d.rt.Submit(d.t.Context(), agent, answer(&result.Pending[0])); err != nil {
		d.t.Fatal(err)
	}
	return d.result(d.rt.Resume(d.t.Context(), agent, helix.ResumeOptions{}))
}

func (d *demo) expect(result *helix.Result, text string) {
	d.t.Helper()
	if result.Status != helix.Completed || result.Text != text {
		d.t.Errorf("%s: %q, %v; want %q", result.Status, result.Text, result.Error, text)
	}
}

func approve(p *session.Pending) helix.Submission { return helix.Approve(*p, helix.User{}) }

func TestDemoAssistant(t *testing.T) {
	t.Parallel()
	d := newDemo(t)
	if story := d.say("assistant", "Tell me a story."); len(strings.Fields(story.Text)) < 50 {
		t.Errorf("the story is too short to be seen coming: %q", story.Text)
	}
	both := d.say("assistant", "What time is it, and what is 6 * 7?")
	if !strings.HasPrefix(both.Text, "It is ") || !strings.HasSuffix(both.Text, ".\n6 * 7 = 42") {
		t.Errorf("two tools at once: %q", both.Text)
	}
	d.expect(d.say("assistant", "Remember that the compass points north."), "I will remember that.")
	waits := d.say("assistant", "Forget everything.")
	d.expect(d.answer("assistant", waits, approve), "It is all forgotten.")
	waits = d.say("assistant", "Choose between tea and coffee.")
	if len(waits.Pending) != 1 || string(waits.Pending[0].Input) != `{"options":["tea","coffee"],"question":"Which one?"}` {
		t.Fatalf("%+v", waits.Pending)
	}
	d.expect(d.answer("assistant", waits, func(p *session.Pending) helix.Submission {
		return helix.ToolResult(p.CallID, "tea")
	}), "So it is tea.")
}

func TestDemoNestedApproval(t *testing.T) {
	t.Parallel()
	d := newDemo(t)
	waits := d.say("planner", "Ask the buyer to order ten pencils.")
	if len(waits.Pending) != 1 || waits.Pending[0].Tool != scripted.DemoOrder || string(waits.Pending[0].Input) != `{"note":"ten pencils"}` {
		t.Fatalf("%+v", waits.Pending)
	}
	if waits.Pending[0].SessionID == "planner" {
		t.Error("the approval is not one of the sub-agent's")
	}
	d.expect(d.answer("planner", waits, approve), "The buyer says: It is ordered.")

	waits = d.say("planner", "Ask the buyer to order ten pencils.")
	denied := d.answer("planner", waits, func(p *session.Pending) helix.Submission {
		return helix.Deny(*p, helix.User{}, "too many")
	})
	if denied.Status != helix.Completed || !strings.Contains(denied.Text, "too many") {
		t.Errorf("denied: %+v", denied)
	}
}

func TestDemoCompanion(t *testing.T) {
	t.Parallel()
	d := newDemo(t)
	d.expect(d.say("host", "Tell the diary to remember that I planted a tree."), "The diary says: I will remember that.")
	d.expect(d.say("host", "Ask the diary what it remembers."), "The diary says: I remember: I planted a tree.")
}

// The fifth message is answered with a summary of the first ones in their place; people still
// see those.
func TestDemoContext(t *testing.T) {
	t.Parallel()
	d := newDemo(t)
	for _, words := range []string{"Tell me a story.", "Tell me another story.", "Tell me a third story.", "Tell me a fourth story."} {
		if story := d.say("storyteller", words); !strings.HasPrefix(story.Text, "Once there was") {
			t.Errorf("%s %q", words, story.Text)
		}
	}
	d.expect(d.say("storyteller", "What have we talked about?"),
		"Of all that you see, I was sent a summary of the beginning of our conversation, and 2 messages as they were.")
	messages, err := d.db.Sessions().Tenant(session.DefaultTenant).AllMessages(t.Context(), "storyteller")
	if err != nil {
		t.Fatal(err)
	}
	said, markers := 0, 0
	for i := range messages {
		what := messages[i].Compaction()
		switch {
		case what == nil && !messages[i].Hidden():
			said++
		case what == nil:
			t.Errorf("message %d is hidden", i)
		default:
			markers++
			if what.Kind != session.CompactionSummary || what.TokensAfter >= what.TokensBefore || !strings.Contains(messages[i].Content(), "Tell me a third story.") {
				t.Errorf("the marker is %+v: %s", what, messages[i].Content())
			}
		}
	}
	if said != 10 || markers != 1 {
		t.Errorf("%d messages and %d markers", said, markers)
	}
}

func TestDemoStructuredOutput(t *testing.T) {
	t.Parallel()
	d := newDemo(t)
	result := d.say("ticket", "The printer on floor 3 is on fire. Urgent!")
	want := `{"priority":"high","subject":"The printer on floor 3 is on fire","text":"The printer on floor 3 is on fire. Urgent!",` +
		`"topics":["printer","floor","urgent"],"urgent":true}`
	var got any
	if err := json.Unmarshal(result.Output, &got); err != nil {
		t.Fatalf("%+v: %v", result, err)
	}
	if raw, err := json.Marshal(got); err != nil || string(raw) != want {
		t.Errorf("finished with %s, %v", raw, err)
	}
}

func TestDemoSkills(t *testing.T) {
	t.Parallel()
	d := newDemo(t)
	d.expect(d.say("writer", "Write a haiku."), "The skill says how:\n\nRain on the harbour,\na gull folds the wind away,\nthe boats hold their breath.")
	notes := d.say("writer", "Write release notes.")
	if !strings.Contains(notes.Text, "**Breaking**: what has to be changed, and how.") {
		t.Errorf("%q", notes.Text)
	}
	d.expect(d.say("writer", "Write a haiku."), "The skill haiku is loaded already and has not changed. Its instructions are above: follow them.")
	if got := skill.Problems(t.Context(), demoSkills(), skill.Scope{}); len(got) != 0 {
		t.Errorf("%v", got)
	}
}
