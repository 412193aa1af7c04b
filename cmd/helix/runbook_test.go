package main

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var runbookCommand = regexp.MustCompile("(?m)`((?:helix |POST /)[^`]*)`|^    (?:\\$ )?(helix .*)$")

// runbook runs the commands of docs/runbook.md.
type runbook struct {
	*operator
	page string
	done []string
}

// does runs a command that the page has, with its capitals replaced, and expects
// something in what it says.
func (r *runbook) does(command, want string, replace ...string) string {
	r.t.Helper()
	r.done = append(r.done, command)
	return r.operator.does(want, strings.Fields(strings.NewReplacer(replace...).Replace(strings.TrimPrefix(command, "helix ")))...)
}

// says checks that the page has a text, which the test then looks for.
func (r *runbook) says(text string) string {
	r.t.Helper()
	if !strings.Contains(r.page, text) {
		r.t.Errorf("the page does not say %q", text)
	}
	return text
}

// failing adds an agent on a model that fails, and one whose sessions expire at once.
func failing(t *testing.T, dir string, model *moody) {
	t.Helper()
	path := filepath.Join(dir, defaultConfig)
	text := readFile(t, dir)
	put(t, path, strings.Replace(text, "agents:\n", `agents:
  clerk: {description: Answers., instructions: Answer., model: 'openai-chat/m@`+model.URL+`/v1'}
  brief: {description: Expires., instructions: Forget., tools: [forget], state: {notes: []}, sessionExpiry: 1ms}
`, 1))
}

// Every command of the runbook is run, and what the page says of it holds.
func TestRunbook(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join("..", "..", "docs", "runbook.md"))
	if err != nil {
		t.Fatal(err)
	}
	model := newMoody(t)
	dir := writeDemo(t, "20ms", quick)
	failing(t, dir, model)
	d := serveDemo(t, dir)
	r := &runbook{operator: &operator{t, []string{"--server", d.addr}}, page: string(raw)}
	begin(t, d.Client, "clerk", "broken", "Hello?")
	begin(t, d.Client, "assistant", "asks", "Forget everything.")
	begin(t, d.Client, "assistant", "tale", askStory)

	reader := read(t, d.Client, "tale")
	reader.words(3)
	r.does("helix sessions show ID", r.says("running"), "ID", "tale")
	r.does("helix interrupt ID", "asked run ", "ID", "tale")
	r.does("helix sessions tail ID", "(interrupted)", "ID", "tale")
	r.does("helix sessions show ID", r.says("stopped (interrupted)"), "ID", "tale")
	r.does("helix resume ID", "lighthouse", "ID", "tale")

	_, _, _ = r.run("sessions", "tail", "broken") // until it has failed
	r.does("helix sessions ls --activity failed", "\nbroken ")
	failed := r.does("helix sessions show ID", "(provider_auth)", "ID", "broken")
	if !strings.Contains(failed, "activity  failed\n") || !strings.Contains(failed, "\nfailed    The model's provider refused") {
		t.Errorf("a failed session is shown as\n%s", failed)
	}
	model.answers.Store(true)
	r.does("helix retry ID", "Here I am again.", "ID", "broken")

	_, _, _ = r.run("sessions", "tail", "asks") // until it waits
	r.does("helix waiting", "Session asks is waiting for approval of forget")
	r.does("helix sessions show ID", r.says("waits for"), "ID", "asks")
	r.does("helix submit ID CALL --approve --resume", "It is all forgotten.", "ID", "asks", "CALL", r.call("asks").CallID)

	r.checkpoints()
	r.does("helix sessions compact ID", "tale stays as it is: ", "ID", "tale")
	r.does("helix sessions clear ID", "tale is cleared for the model", "ID", "tale")
	r.pause(d)
	r.does("helix agents ls", "\nassistant ")
	begin(t, d.Client, "assistant", "endless", askStory)
	r.does("helix interrupt ID --abort", "asked run ", "ID", "endless")
	_, _, _ = r.run("sessions", "tail", "endless")
	r.does("helix sessions show ID", "activity  failed", "ID", "endless")

	r.onStore(d, dir)
	r.complete()
}

// checkpoints copies a session, and takes it back.
func (r *runbook) checkpoints() {
	r.t.Helper()
	rows := strings.Split(strings.TrimSpace(r.does("helix sessions checkpoints ID", "CHECKPOINT ", "ID", "tale")), "\n")
	oldest := strings.Fields(rows[len(rows)-1])[0]
	r.does("helix sessions branch ID --checkpoint CHECKPOINT", " is a copy of tale", "ID", "tale", "CHECKPOINT", oldest)
	r.does("helix resume ID --checkpoint CHECKPOINT", "lighthouse", "ID", "tale", "CHECKPOINT", oldest)
}

// pause holds a session that had completed, and lets it go.
func (r *runbook) pause(d *daemon) {
	r.t.Helper()
	const command = "POST /sessions/ID/pause"
	r.done = append(r.done, command)
	_, path, _ := strings.Cut(strings.ReplaceAll(command, "ID", "tale"), " ")
	for { // a run holds its session for a moment after its stream has ended
		request, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, d.url()+path, strings.NewReader("{}"))
		if err != nil {
			r.t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		status, _, text := do(r.t, request)
		if status == http.StatusOK {
			break
		}
		if status != http.StatusConflict {
			r.t.Fatalf("%d %s", status, text)
		}
	}
	r.does("helix sessions show ID", r.says("stopped (paused)"), "ID", "tale")
	r.does("helix resume ID", "", "ID", "tale")
	r.does("helix sessions show ID", "activity  done", "ID", "tale")
}

// onStore does what takes a server that is gone.
func (r *runbook) onStore(d *daemon, dir string) {
	r.t.Helper()
	begin(r.t, d.Client, "brief", "brief", "Forget everything.")
	for {
		if out := r.operator.does("", "sessions", "ls", "--activity", "failed"); strings.Contains(out, "\nbrief ") {
			break
		}
	}
	begin(r.t, d.Client, "assistant", "orphan", askStory)
	reader := read(r.t, d.Client, "orphan")
	reader.words(3)
	d.kill()
	r.place = []string{"--store", filepath.Join(dir, "data"), "--config", filepath.Join(dir, defaultConfig)}
	for expired := r.says("has expired"); ; {
		if out := r.does("helix sessions show ID", "activity  running", "ID", "orphan"); strings.Contains(out, expired) {
			break
		}
	}
	place := r.place
	r.place = []string{"--config", filepath.Join(dir, defaultConfig)}
	r.does("helix check", "is valid")
	r.place = place[:2]
	r.does("helix migrate status", "0001_init  ")
	r.does("helix migrate up", "is up to date")
	r.place = place

	leaveTasks(r.t, dir, "orphan")
	r.does("helix tasks ls --given-up", "run-1/index  orphan")
	r.does("helix tasks retry TASK --session ID", "will be tried again", "TASK", "run-1/index", "ID", "orphan")
	r.does("helix tasks ls", "run-2/index  orphan")
	r.does("helix tasks drop TASK --session ID", "is dropped", "TASK", "run-1/index", "ID", "orphan")

	// The session expired on the server. It is retried here, where nobody sweeps, and so
	// it is the command that finds that its time is up again.
	r.operator.does("The session is waiting for approval of forget", "retry", "brief")
	r.does("helix cleanup", r.says("detected 1, marked 1, already terminal 0, running 0, errors 0"))
	r.does("helix sessions show ID", "("+r.says("session_expired")+")", "ID", "brief")
}

// complete compares what the page has with what was run.
func (r *runbook) complete() {
	r.t.Helper()
	var commands []string
	for _, found := range runbookCommand.FindAllStringSubmatch(r.page, -1) {
		commands = append(commands, found[1]+found[2])
	}
	if len(commands) < 15 {
		r.t.Fatalf("the page has only %q", commands)
	}
	for _, command := range commands {
		if !slices.Contains(r.done, command) {
			r.t.Errorf("the page has %q, which was not run", command)
		}
	}
	for _, command := range r.done {
		if !slices.Contains(commands, command) {
			r.t.Errorf("%q was run, which the page does not have", command)
		}
	}
}
