package enginetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/session"
)

// ledger is an extension that is different each time it is asked: it adds a message with
// another text to each turn, and tasks to each step and each run.
type ledger struct {
	mu     sync.Mutex
	asked  map[string]int      // method, session, run and step → how often it was called
	inputs map[string][]string // session and run → what it was told that the run began with
}

func (l *ledger) ask(method string, turn *helix.Turn) int {
	l.see(turn)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked[fmt.Sprint(method, " ", turn.SessionID, " ", turn.RunID, " ", turn.Step)]++
	n := 0
	for _, times := range l.asked {
		n += times
	}
	return n
}

// see notes what the extension is told of a turn.
func (l *ledger) see(turn *helix.Turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	run, input := turn.SessionID+" "+turn.RunID, strings.Join(Lines(turn.Input), "\n")
	if !slices.Contains(l.inputs[run], input) {
		l.inputs[run] = append(l.inputs[run], input)
	}
}

// Name implements [helix.Extension].
func (l *ledger) Name() string { return "ledger" }

// Attach implements [helix.Extension].
func (l *ledger) Attach(_ context.Context, turn *helix.Turn) (*helix.Attachment, error) {
	l.see(turn)
	return &helix.Attachment{Instructions: "Keep the books."}, nil
}

// Prepare implements [helix.Preparer].
func (l *ledger) Prepare(_ context.Context, turn *helix.Turn) ([]session.Message, error) {
	return []session.Message{session.UserText(fmt.Sprintf("The books say so. (take %d)", l.ask("Prepare", turn)))}, nil
}

// AfterStep implements [helix.Stepper].
func (l *ledger) AfterStep(_ context.Context, turn *helix.Turn, _ *helix.Step) ([]session.Task, error) {
	l.see(turn)
	return []session.Task{{Kind: "step"}}, nil
}

// Finish implements [helix.Finisher].
func (l *ledger) Finish(_ context.Context, turn *helix.Turn, outcome *session.Outcome) ([]session.Task, error) {
	l.ask("Finish", turn)
	return []session.Task{{Kind: "run"}, {Kind: "run", ID: string(outcome.Status)}}, nil
}

// Preserve implements [helix.Preserver].
func (l *ledger) Preserve(_ context.Context, turn *helix.Turn, dropped []session.Message, _ int) (string, []session.Task, error) {
	l.see(turn)
	if len(dropped) == 0 {
		return "", nil, errors.New("nothing is dropped")
	}
	return "The books are kept.", []session.Task{{Kind: "drop"}}, nil
}

// askedOnce requires that the extension was asked once about everything.
func (w *world) askedOnce() {
	w.t.Helper()
	if w.ledger == nil {
		return
	}
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	for what, n := range w.ledger.asked {
		if n > 1 {
			w.t.Errorf("%s was called %d times", what, n)
		}
	}
}

// checkInputs requires that the extension was told the same of what each run began with,
// in every process, and that this is right.
func (w *world) checkInputs() {
	w.t.Helper()
	if w.ledger == nil {
		return
	}
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	for run, inputs := range w.ledger.inputs {
		if len(inputs) > 1 {
			w.t.Errorf("the extension was told that %s began with each of %q", run, inputs)
		}
	}
	if got, want := w.ledger.inputs[sessionID+" "+runID], []string{`user: text "Please work."`}; !slices.Equal(got, want) {
		w.t.Errorf("the extension was told that the first run began with %q, want %q", got, want)
	}
}

// checkPrepared requires that each run of a session has the extension's message where the
// model first replies, unless the run only took answers in, and once more behind each
// summary.
func (w *world) checkPrepared(messages []session.Message) {
	w.t.Helper()
	var got, want []string
	seen := map[string]bool{} // runs that have a reply
	summarised := false
	for i := range messages {
		m := &messages[i]
		switch first := m.RunID + "/prepare/ledger/"; {
		case strings.HasPrefix(m.ID, first):
			got = append(got, m.ID)
		case m.Compaction() != nil:
			summarised = m.Compaction().Kind == session.CompactionSummary
		case m.Role == session.RoleTool && !seen[m.RunID]:
			seen[m.RunID] = true // it began with answers
		case m.Role == session.RoleAssistant:
			if w.ledger != nil && !seen[m.RunID] {
				want = append(want, first+"0")
			} else if w.ledger != nil && summarised {
				want = append(want, fmt.Sprint(first, "s", m.Step, "/0"))
			}
			seen[m.RunID], summarised = true, false
		}
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("the extension has added the messages %v, want %v", got, want)
	}
}

// checkTasks requires that the commits of the family carried the tasks of each run, once,
// and that each reply's step has its own.
func (w *world) checkTasks(ctx context.Context) {
	w.t.Helper()
	if w.ledger == nil {
		return
	}
	tasks := map[string]session.Task{}
	runs, steps, drops := 0, 0, 0
	for _, task := range w.book.Tasks() {
		tasks[task.ID] = task
		if task.Tenant != w.tenant || task.SessionID == "" || task.RunID == "" || task.Agent == "" {
			w.t.Errorf("task %s is %+v", task.ID, task)
		}
		switch task.Kind {
		case "run":
			runs++
		case "drop":
			drops++
		default:
			steps++
		}
	}
	for _, id := range w.family(ctx) {
		if standsIn(id) {
			continue
		}
		page, err := w.sessions().Runs(ctx, id, session.PageRequest{Limit: session.MaxPageSize})
		if err != nil {
			w.t.Fatal(err)
		}
		for i := range page.Items {
			run := &page.Items[i]
			for _, task := range []string{run.ID + "/ledger/run", run.ID + "/ledger/" + string(run.Status)} {
				if tasks[task].SessionID != id {
					w.t.Errorf("run %s of %s ended %s without the task %s", run.ID, id, run.Status, task)
				}
				runs--
			}
		}
		messages, err := w.sessions().AllMessages(ctx, id)
		if err != nil {
			w.t.Fatal(err)
		}
		steps -= replies(messages)
		for i := range messages {
			if messages[i].Compaction() != nil {
				drops--
			}
			if messages[i].Compaction() != nil && !strings.HasSuffix(messages[i].Content(), "The books are kept.") {
				w.t.Errorf("the extension preserved nothing in %q", messages[i].Content())
			}
		}
	}
	if runs != 0 || steps != 0 || drops != 0 {
		w.t.Errorf("there are %d tasks too many of runs, %d of steps and %d of summaries: %v", runs, steps, drops, tasks)
	}
}
