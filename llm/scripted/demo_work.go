package scripted

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strings"

	"github.com/helixagents/helix/session"
)

var asksWork = regexp.MustCompile(`(?i)\bbake\b`)

// tasks are the steps of the demo's longest work.
var tasks = []string{
	"mix flour, water and salt", "knead the dough", "let it rise", "shape the loaf", "bake it", "let it cool",
}

// workTime returns how long a task takes: as long as 170 words, which makes half a minute
// for all tasks at the usual pace.
func (d demo) workTime() float64 {
	return math.Round((170*d.config.Delay).Seconds()*100) / 100
}

// work returns the next step of the requested work, or its end. Each task is a separate
// step, so that a killed process does not lose finished ones.
func (d demo) work(messages []session.Message) Step {
	done, interrupted, failed := progress(messages)
	if failed != nil || interrupted >= patience {
		if failed == nil {
			failed = &session.Error{Message: "it was interrupted too often"}
		}
		return Text(DemoWork + " did not work: " + failed.Message)
	}
	if len(done) < len(tasks) {
		task, again := tasks[len(done)], ""
		if interrupted > 0 {
			again = ", once more"
		}
		return Reply(
			Say(fmt.Sprintf("Step %d of %d%s: %s. ", len(done)+1, len(tasks), again, task)),
			Calling(DemoWork, map[string]any{"task": task, "seconds": d.workTime()}))
	}
	return Text("The bread is done:\n" + strings.Join(done, "\n"))
}

// patience is how often the same task may be interrupted.
const patience = 5

// progress returns which tasks were finished since the user's last message, and when, how
// often the one after them was interrupted, by a stop or the end of its process, and how it
// failed.
func progress(messages []session.Message) (done []string, interrupted int, failed *session.Error) {
	for i := len(messages) - 1; i >= 0; i-- {
		m := &messages[i]
		if m.Role == session.RoleUser && !m.Hidden() {
			break
		}
		for j := range m.Parts {
			result := &m.Parts[j]
			if result.Kind != session.PartToolResult || result.Tool != DemoWork {
				continue
			}
			if result.Error != nil {
				if len(done) == 0 {
					switch result.Error.Code {
					case session.CodeToolOutcome, session.CodeToolNotRun, session.CodeRunStopped:
						interrupted++
					default:
						failed = cmp.Or(failed, result.Error)
					}
				}
				continue
			}
			var took struct{ Task, From, Until string }
			_ = json.Unmarshal(result.ResultJSON(), &took) // a result of another form is shown without its times
			done = append([]string{"- " + took.Task + ", from " + took.From + " until " + took.Until}, done...)
		}
	}
	return done, interrupted, failed
}
