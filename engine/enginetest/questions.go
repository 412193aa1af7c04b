package enginetest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/storetest"
)

// questions says of the tools that ask how many questions each call asks.
var questions = map[string]int{"measure": 1, "quiz": 2, "peek": 1, "clear": 1, "ship": 1}

// asker makes the body of a tool that asks. It checks that each attempt has the answers
// and the memo of the attempts before, and leaves a trace also where it asks: that must
// be dropped.
func (w *world) asker(name string) helix.Callable {
	return helix.Func(func(_ context.Context, call *helix.Call, in subject) (string, error) {
		w.mu.Lock()
		w.starts[name+" "+call.IdempotencyKey()]++
		w.mu.Unlock()
		helix.Append(call, "notes", name+" "+in.What)
		answers := call.Answers()
		var memo int
		has, err := call.Memo(&memo)
		if err != nil {
			return "", err
		}
		if has != (len(answers) > 0) || memo != len(answers) {
			w.t.Errorf("%s has %d answers and the memo %d, %t", name, len(answers), memo, has)
		}
		said := []string{name, "done:", in.What}
		for i := range answers {
			var one string
			if err := answers[i].Decode(&one); err != nil {
				return "", err
			}
			said = append(said, one)
		}
		if n := len(answers) + 1; n <= questions[name] {
			return "", helix.Ask(helix.Question{Prompt: fmt.Sprintf("Question %d?", n), Memo: n})
		}
		return strings.Join(said, " "), nil
	})
}

// waitName is the name under which people know what waits: the tool, or the tool and
// the number of its question.
func waitName(p *session.Pending) string {
	if p.Kind == session.PendingQuestion {
		return p.Tool + p.CallID[len(p.For):]
	}
	return p.Tool
}

// inquiries are turns in which tools ask: one question, two in a row, beside calls that
// wait for other things, two agents down, in a reply of read-only calls, and in phase 2.
func inquiries() []act {
	course := func(name string, order []string, steps ...scripted.Step) act {
		a := act{name: name}
		for _, when := range []moment{atOnce, inParts, live} {
			a.courses = append(a.courses, scenario{name: name, steps: steps, people: schedule{order, when}})
		}
		return a
	}
	reversed := func(a act, order ...string) act {
		for _, when := range []moment{atOnce, inParts, live} {
			s := a.courses[0]
			s.people = schedule{order, when}
			a.courses = append(a.courses, s)
		}
		return a
	}
	below := func(a act) act {
		for i := range a.courses {
			a.courses[i].helper = []scripted.Step{
				scripted.Reply(scripted.Calling("pay", subject{"e"}), scripted.Calling("subagent__scribe", map[string]string{"task": "Ask."})),
				scripted.Text("It is asked."),
			}
		}
		return a
	}
	done := scripted.Text("That is all.")
	return []act{
		course("question", []string{"measure.q1"}, scripted.Reply(scripted.Say("I ask."), scripted.Calling("measure", subject{"a"})), done),
		course("two questions", []string{"quiz.q1", "quiz.q2"},
			scripted.Reply(scripted.Calling("pay", subject{"a"}), scripted.Calling("quiz", subject{"b"})), done),
		reversed(course("questions beside approvals and client tools", []string{"measure.q1", "choose", "clear", "clear.q1", "sign"},
			scripted.Reply(scripted.Calling("pay", subject{"a"}), scripted.Calling("measure", subject{"b"}), scripted.Calling("choose", subject{"c"}),
				scripted.Calling("clear", subject{"d"}), scripted.Calling("sign", subject{"e"}), scripted.Calling("look", subject{"f"})), done),
			"clear", "sign", "choose", "clear.q1", "measure.q1"),
		below(course("questions below", []string{"quiz.q1", "quiz.q2", "measure.q1"},
			scripted.Reply(scripted.Calling("pay", subject{"a"}), scripted.Calling("subagent__helper", map[string]string{"task": "Ask."}),
				scripted.Calling("measure", subject{"b"})), done)),
		course("question in a read-only reply", []string{"peek.q1"},
			scripted.Reply(scripted.Calling("look", subject{"a"}), scripted.Calling("peek", subject{"b"}), scripted.Calling("look", subject{"c"})), done),
		course("questions in phase 2", []string{"measure.q1", "ship.q1"},
			scripted.Reply(scripted.Calling("look", subject{"a"}), scripted.Calling("measure", subject{"b"}), scripted.Calling("book", subject{"c"}),
				scripted.Calling("ship", subject{"d"}), scripted.Calling("book", subject{"e"})), done),
		course("question in phase 2 alone", []string{"ship.q1"},
			scripted.Reply(scripted.Calling("look", subject{"a"}), scripted.Calling("pay", subject{"b"}), scripted.Calling("ship", subject{"c"}),
				scripted.Calling("book", subject{"d"})), done),
	}
}

func scribeSteps() []scripted.Step {
	return []scripted.Step{scripted.Reply(scripted.Calling("look", subject{"h"}), scripted.Calling("quiz", subject{"i"})), scripted.Text("Asked.")}
}

// runWrites are the writes to a session of whole runs, with those of people.
var runWrites = append([]string{"Ask", "Submit"}, sessionWrites...)

// waitingCosts counts the writes of runs that wait, with a suspension and without.
func waitingCosts(t *testing.T, open Open) {
	backend := open(t)
	for _, c := range []struct {
		tool               string
		order              []string
		suspending, lively int
	}{
		{"choose", []string{"choose"}, 9, 6},
		{"sign", []string{"sign"}, 11, 8},
		{"measure", []string{"measure.q1"}, 12, 9},
		{"quiz", []string{"quiz.q1", "quiz.q2"}, 18, 12},
	} {
		for when, want := range map[moment]int{atOnce: c.suspending, live: c.lively} {
			t.Run(c.tool+" "+string(when), func(t *testing.T) {
				w := newWorld(t, backend, scenario{
					steps:  []scripted.Step{scripted.Call(c.tool, subject{"a"}), scripted.Text("done")},
					people: schedule{c.order, when},
				})
				faults := storetest.NewFaults(backend)
				p := w.process(faults)
				if err := w.play(testContext(t), p, p, nil); err != nil {
					t.Fatal(err)
				}
				if got := faults.Count(runWrites...); got != want {
					t.Errorf("the run made %d writes, want %d: %v", got, want, faults.Log())
				}
				w.inspect(testContext(t))
			})
		}
	}
}
