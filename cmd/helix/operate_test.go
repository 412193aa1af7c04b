package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// operator runs commands about the sessions of a place, in this process: starting one
// takes longer than most commands.
type operator struct {
	t     *testing.T
	place []string // the flags that name it
}

// run carries out a command line and gives what it said and its exit code.
func (o *operator) run(args ...string) (out, complaint string, code int) {
	o.t.Helper()
	var said, complained bytes.Buffer
	code = run(append(args, o.place...), nil, &said, &complained)
	return said.String(), complained.String(), code
}

// does expects success, and something in what is said.
func (o *operator) does(want string, args ...string) string {
	o.t.Helper()
	out, complaint, code := o.run(args...)
	if code != 0 || !strings.Contains(out, want) || complaint != "" {
		o.t.Errorf("helix %s: exit code %d, want %q\n%s%s", strings.Join(args, " "), code, want, out, complaint)
	}
	return out
}

// fails expects a failure that is told in one line.
func (o *operator) fails(code int, want string, args ...string) {
	o.t.Helper()
	out, complaint, got := o.run(args...)
	if got != code || !strings.HasPrefix(complaint, "helix: ") || !strings.Contains(complaint, want) || strings.Count(complaint, "\n") != 1 {
		o.t.Errorf("helix %s: exit code %d, want %d with %q\n%s%s", strings.Join(args, " "), got, code, want, out, complaint)
	}
}

// answers expects success and JSON, which is read into a value.
func (o *operator) answers(into any, args ...string) {
	o.t.Helper()
	out := o.does("", append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		o.t.Errorf("helix %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// call is the one call that a session waits for.
func (o *operator) call(id string) *session.Pending {
	o.t.Helper()
	var shown struct{ Status wire.Status }
	o.answers(&shown, "sessions", "show", id)
	if len(shown.Status.Pending) != 1 {
		o.t.Fatalf("%s waits for %+v", id, shown.Status.Pending)
	}
	return &shown.Status.Pending[0]
}

// The commands do the same whether the sessions are behind a server or in a store.
func TestOperate(t *testing.T) {
	t.Parallel()
	for name, place := range map[string]func(d *daemon, dir string) []string{
		"server": func(d *daemon, _ string) []string { return []string{"--server", d.url()} },
		"store": func(d *daemon, dir string) []string {
			d.stop()
			return []string{"--store", filepath.Join(dir, "data"), "--config", filepath.Join(dir, defaultConfig)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := writeDemo(t, "1ms", "")
			d := serveDemo(t, dir)
			for id, words := range map[string]string{
				"tea": "Choose between tea and coffee.", "gone": "Forget everything.", "kept": "Forget everything.",
				"lost": "Choose between tea and coffee.", "late": "Forget everything.",
			} {
				(&talkOver{t, d.Client, id}).say("assistant", words)
			}
			(&talkOver{t, d.Client, "plan"}).say("planner", "Ask the buyer to order ten pencils.")
			(&talkOver{t, d.Client, "sum"}).say("assistant", "What is 6 * 7?")
			(&talkOver{t, d.Client, "trip/1"}).say("host", "Tell the diary to remember that I planted a tree.")
			for range 3 {
				(&talkOver{t, d.Client, "tales"}).say("storyteller", askStory)
			}
			leaveTasks(t, dir, "sum")
			o := &operator{t, place(d, dir)}
			testTasks(o)
			testLooking(o)
			testCompacting(o)
			testAnswering(o)
			testChanging(o)
			testMistakes(o)
		})
	}
}

func testLooking(o *operator) {
	o.t.Helper()
	list := o.does("SESSION ", "sessions", "ls")
	for want, id := range map[string]string{"waiting": "plan ", "done": "sum "} {
		_, row, _ := strings.Cut(list, "\n"+id)
		row, _, _ = strings.Cut(row, "\n")
		if !strings.Contains(row, " "+want+" ") {
			o.t.Errorf("%s is not %s in the list\n%s", id, want, list)
		}
		if want == "waiting" && !strings.HasSuffix(row, "  approval of order") {
			o.t.Errorf("the list does not say what %s waits for\n%s", id, list)
		}
	}
	if waiting := o.does("tea ", "sessions", "ls", "--activity", "waiting"); strings.Contains(waiting, "sum ") || !strings.Contains(waiting, "  an answer to choose\n") {
		o.t.Errorf("those that wait are\n%s", waiting)
	}
	o.does("No sessions found.", "sessions", "ls", "--activity", "failed")
	testInbox(o)
	for _, id := range []string{"tea ", "plan ", "trip/1 ", "trip/1-agent-diary."} {
		if !strings.Contains(list, "\n"+id) {
			o.t.Errorf("%s is not in the list\n%s", id, list)
		}
	}
	if roots := o.does("trip/1 ", "sessions", "ls", "--roots"); strings.Contains(roots, "diary") {
		o.t.Errorf("the roots are\n%s", roots)
	}
	o.does("No sessions found.", "sessions", "ls", "--agent", "nobody")
	var page wire.Sessions
	o.answers(&page, "sessions", "ls", "--limit", "2", "--status", "active", "--roots")
	if len(page.Items) != 2 || !page.HasMore || page.Next == "" {
		o.t.Errorf("a page is %+v", page)
	}
	var more wire.Sessions
	o.answers(&more, "sessions", "ls", "--status", "active", "--roots", "--after", page.Next)
	if len(more.Items) != 4 || more.HasMore {
		o.t.Errorf("the page after it is %+v", more)
	}
	shown := o.does("waits for  an answer of call ", "sessions", "show", "tea")
	if !strings.Contains(shown, "> Choose between tea and coffee.\n") || !strings.Contains(shown, `choose {"options":["tea","coffee"],"question":"Which one?"}`) {
		o.t.Errorf("it shows\n%s", shown)
	}
	o.does("6 * 7 = 42\n", "sessions", "tail", "sum")
	frames := o.does(`"frame":"end"`, "sessions", "tail", "sum", "--json")
	for line := range strings.Lines(frames) {
		if !json.Valid([]byte(line)) {
			o.t.Errorf("a line is no JSON: %s", line)
		}
	}
	if rest := o.does(`"frame":"end"`, "sessions", "tail", "sum", "--json", "--from", "3"); !strings.HasPrefix(rest, `{"frame":"chunk","sequence":4,`) {
		o.t.Errorf("after sequence 3 comes\n%.200s", rest)
	}
}

// testInbox looks at the calls that wait, over all sessions.
func testInbox(o *operator) {
	o.t.Helper()
	inbox := o.does("Session tea is waiting for an answer to choose: ", "waiting")
	place := strings.Join(o.place, " ")
	for id, answer := range map[string]string{"tea": "--result JSON", "gone": "--approve", "kept": "--deny", "plan": "--approve"} {
		want := "\n  helix submit " + id + " " + o.call(id).CallID + " " + answer + " --resume " + place + "\n"
		if !strings.Contains(inbox, want) {
			o.t.Errorf("the inbox does not say %q\n%s", want, inbox)
		}
	}
	if !strings.Contains(inbox, "Session plan is waiting for approval of order: {\n") || !strings.Contains(inbox, "  asked by buyer since 20") {
		o.t.Errorf("the inbox does not say who asks for what\n%s", inbox)
	}
	var page wire.Waiting
	o.answers(&page, "waiting", "--limit", "2")
	if len(page.Items) != 2 || !page.HasMore || page.Next == "" {
		o.t.Errorf("a page is %+v", page)
	}
	o.does("No call is waiting for a person.", "waiting", "--user", "nobody")
}

func testAnswering(o *operator) {
	o.t.Helper()
	o.does("So it is tea.\n", "submit", "tea", o.call("tea").CallID, "--result", `"tea"`, "--resume")
	o.does("It is all forgotten.\n", "submit", "gone", o.call("gone").CallID, "--approve", "--resume")
	o.does("The buyer says: It is ordered.\n", "submit", "plan", o.call("plan").CallID, "--approve", "--resume")
	kept := o.call("kept").CallID
	var done wire.Submitted
	o.answers(&done, "submit", "kept", kept, "--deny", "--reason", "mine")
	if done.Outcome != session.SubmitAccepted || done.RunID != "" {
		o.t.Errorf("the answer: %+v", done)
	}
	o.fails(exitFailure, "the call "+kept+" does not wait any more: it has its answer already", "submit", "kept", kept, "--approve")
	o.does("not approved by the user: mine\n", "resume", "kept")
	o.does("choose did not work: nobody is here\n", "submit", "lost", o.call("lost").CallID, "--error", "nobody is here", "--resume")

	late := o.call("late").CallID
	o.fails(exitFailure, "has no call call_none that waits", "submit", "late", "call_none", "--result", "1")
	o.fails(exitFailure, "approval", "submit", "late", late, "--result", "1")
	o.does("accepted\n", "submit", "late", late, "--approve")
	o.does("← forgotten\nIt is all forgotten.\n", "resume", "late")
	o.fails(exitFailure, "has its answer already", "submit", "late", late, "--error", "too late")
}

func testChanging(o *operator) {
	o.t.Helper()
	o.does("copy is a copy of sum\n", "sessions", "branch", "sum", "--id", "copy")
	testCheckpoints(o)
	o.does("\nplanner ", "agents", "ls")
	var agents wire.Agents
	o.answers(&agents, "agents", "ls")
	if len(agents.Items) != 7 || agents.Items[0].Name != "assistant" || len(agents.Items[0].Tools) != 6 {
		o.t.Errorf("the agents are %+v", agents)
	}
	o.does("2 + 2 = 4\n", "sessions", "branch", "sum", "--id", "copy2", "--message", "What is 2 + 2?")
	var branched wire.Branched
	o.answers(&branched, "sessions", "branch", "sum", "--messages", "1")
	if branched.SessionID == "" || branched.RunID != "" {
		o.t.Errorf("the copy is %+v", branched)
	}
	var shown struct{ Messages []session.Message }
	o.answers(&shown, "sessions", "show", branched.SessionID)
	if len(shown.Messages) != 1 {
		o.t.Errorf("a copy of one message has %d", len(shown.Messages))
	}
	o.does("6 * 7 = 42\n", "resume", "copy", "--message", "What is 6 * 7?")
	o.fails(exitFailure, "to stop", "interrupt", "copy")
	o.does("detected 0, marked 0, already terminal 0, running 0, errors 0\n", "cleanup")
	var cleaned session.Cleanup
	o.answers(&cleaned, "cleanup")
	o.does("deleted trip/1, trip/1-agent-diary.", "sessions", "rm", "trip/1")
	o.fails(exitFailure, "there is no session trip/1", "sessions", "rm", "trip/1")
}

// testCompacting shortens what a model is sent.
func testCompacting(o *operator) {
	o.t.Helper()
	out := o.does("tales is summarised for the model, ", "sessions", "compact", "tales")
	if !strings.HasSuffix(out, " tokens; the last 2 messages are sent as they were\n") || strings.Count(out, "\n") != 1 {
		o.t.Errorf("it says %q", out)
	}
	o.does("tales stays as it is: nothing was said since the last compaction\n", "sessions", "compact", "tales")
	shown := o.does("\n── summarised for the model, ", "sessions", "show", "tales")
	if strings.Count(shown, "> "+askStory+"\n") != 3 {
		o.t.Errorf("it shows\n%s", shown)
	}
	var done wire.Compacted
	o.answers(&done, "sessions", "clear", "tales")
	if done.SessionID != "tales" || !done.Done || done.Kind != session.CompactionClear || done.MarkerID == "" || done.Kept != 0 {
		o.t.Errorf("cleared: %+v", done)
	}
	o.answers(&done, "sessions", "compact", "tales", "--force")
	o.does("tales stays as it is: ", "sessions", "clear", "tales")
	for _, command := range []string{"compact", "clear"} {
		o.fails(exitFailure, "wait for answers", "sessions", command, "tea")
		o.fails(exitFailure, "there is no session nobody", "sessions", command, "nobody")
		o.fails(exitUsage, "name one session (see helix sessions "+command+" --help)", "sessions", command)
	}
}

// testCheckpoints copies a session from a point that a command has printed.
func testCheckpoints(o *operator) {
	o.t.Helper()
	lines := strings.Split(strings.TrimSpace(o.does("CHECKPOINT ", "sessions", "checkpoints", "sum")), "\n")
	var page wire.CheckpointPage
	o.answers(&page, "sessions", "checkpoints", "sum")
	if len(page.Items) < 2 || len(lines) != len(page.Items)+1 {
		o.t.Fatalf("%d checkpoints are shown as\n%s", len(page.Items), strings.Join(lines, "\n"))
	}
	oldest := strings.Fields(lines[len(lines)-1])[0]
	o.does("early is a copy of sum\n", "sessions", "branch", "sum", "--id", "early", "--checkpoint", oldest)
	var early, whole struct{ Messages []session.Message }
	o.answers(&early, "sessions", "show", "early")
	o.answers(&whole, "sessions", "show", "sum")
	if len(early.Messages) >= len(whole.Messages) {
		o.t.Errorf("the copy has %d messages, the session %d", len(early.Messages), len(whole.Messages))
	}
	o.answers(&page, "sessions", "checkpoints", "sum", "--limit", "1")
	if len(page.Items) != 1 || !page.HasMore {
		o.t.Errorf("a page is %+v", page)
	}
}

func testMistakes(o *operator) {
	o.t.Helper()
	for want, args := range map[string]string{
		"there is no session nobody":            "sessions show nobody",
		"sessionId \"a/../b\" must not contain": "sessions show a/../b",
		"no session nobody":                     "sessions tail nobody",
		"has no call x that waits":              "submit sum x --approve",
		"checkpoint":                            "resume sum --checkpoint none",
	} {
		o.fails(exitFailure, want, strings.Fields(args)...)
	}
	for want, args := range map[string]string{
		"name one session (see helix sessions show --help)":                                    "sessions show",
		"name one session (see helix resume --help)":                                           "resume a b",
		"name the session and the call (see helix submit --help)":                              "submit a",
		"use one of --approve, --deny, --result, --answer, --confirm, --decline and --error":   "submit a b",
		"use one of --approve, --deny, --result, --answer, --confirm, --decline and --error (": "submit a b --approve --deny",
		`--result "tea" is not JSON`:                                                           "submit a b --result tea",
		`--status "dead" is not one of`:                                                        "sessions ls --status dead",
		`unknown command "delete"`:                                                             "sessions delete x",
		`unknown command "shwo": did you mean show?`:                                           "sessions shwo x",
		`--activity "idle" is invalid: use new, running, waiting, `:                            "sessions ls --activity idle",
		"--limit -1 is out of range":                                                           "sessions ls --limit -1",
		"--limit 0 is out of range":                                                            "waiting --limit 0",
		`unknown argument "x" (see helix cleanup --help)`:                                      "cleanup x",
		"unknown flag: --forever (see helix interrupt --help)":                                 "interrupt x --forever",
	} {
		o.fails(exitUsage, want, strings.Fields(args)...)
	}
}

// A run is stopped and resumed by the command, on the server that runs it.
func TestOperateARun(t *testing.T) {
	t.Parallel()
	dir := writeDemo(t, "50ms", "")
	d := serveDemo(t, dir)
	o := &operator{t, []string{"--server", d.url()}}
	run := begin(t, d.Client, "assistant", "tale", askStory).RunID
	reader := read(t, d.Client, "tale")
	reader.words(3)
	tail := startIn(t, dir, nil, "sessions", "tail", "tale", "--server", d.url())
	tail.await(tail.out, "lighthouse")
	shown := o.does("running", "sessions", "show", "tale")
	if !strings.Contains(shown, "lease") {
		t.Errorf("a running session is shown as\n%s", shown)
	}
	o.fails(exitFailure, "has no such run to stop", "interrupt", "tale", "--run", "run_other")
	o.does("asked run "+run+" to stop\n", "interrupt", "tale", "--run", run, "--reason", "enough")
	reader.toEnd(d.Client, session.Interrupted)
	if code := tail.wait(); code != 0 || !strings.Contains(tail.out.String(), "(interrupted)") {
		t.Errorf("exit code %d of\n%s%s", code, tail.out, tail.err)
	}

	resumed := startIn(t, dir, nil, "resume", "tale", "--server", d.url())
	resumed.await(resumed.out, "lighthouse")
	o.does("", "interrupt", "tale", "--abort")
	if code := resumed.wait(); code != exitFailure || !strings.Contains(resumed.err.String(), "helix: the run failed: ") {
		t.Errorf("exit code %d of\n%s%s", code, resumed.out, resumed.err)
	}

	// A reader that is sent a signal leaves, and the run stays.
	begin(t, d.Client, "assistant", "other", askStory)
	tail = startIn(t, dir, nil, "sessions", "tail", "other", "--server", d.url())
	tail.await(tail.out, "Once")
	tail.signal(os.Interrupt)
	if code := tail.wait(); code != exitTerminated {
		t.Errorf("exit code %d of\n%s%s", code, tail.out, tail.err)
	}
	if status, err := d.Status(t.Context(), "other"); err != nil || status.RunStatus != session.RunRunning {
		t.Errorf("%+v, %v", status, err)
	}
}

// A failure is told with its sentence and its cause, and the turn is run again.
func TestRetry(t *testing.T) {
	t.Parallel()
	for name, place := range map[string]func(d *daemon, dir string) []string{
		"server": func(d *daemon, _ string) []string { return []string{"--server", d.addr} },
		"store": func(d *daemon, dir string) []string {
			d.stop()
			return []string{"--store", filepath.Join(dir, "data"), "--config", filepath.Join(dir, defaultConfig)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model := newMoody(t)
			dir := model.file(t)
			d := serveDemo(t, dir)
			begin(t, d.Client, "clerk", "s", "Hello?")
			(&operator{t, []string{"--server", d.addr}}).fails(exitFailure,
				"the run failed: The model's provider refused the API key that this server uses.", "sessions", "tail", "s")
			o := &operator{t, place(d, dir)}
			o.does("  failed  ", "sessions", "ls", "--activity", "failed")
			shown := o.does("failed    The model's provider refused the API key that this server uses. (provider_auth)\n", "sessions", "show", "s")
			if name == "store" && !strings.Contains(shown, "cause     ") || !strings.Contains(shown, "activity  failed\n") {
				t.Errorf("it shows\n%s", shown)
			}
			o.fails(exitFailure, "the run failed: ", "retry", "s")
			model.answers.Store(true)
			o.does("Here I am again.\n", "retry", "s")
			var after struct{ Messages []session.Message }
			o.answers(&after, "sessions", "show", "s")
			if len(after.Messages) != 2 {
				t.Errorf("the messages are %+v", after.Messages)
			}
			o.fails(exitFailure, "retr", "retry", "s")
			o.fails(exitFailure, "there is no session nobody", "retry", "nobody")
		})
	}
}

// On a store, the process of the command runs the turn; what it is killed in, a
// server finishes.
func TestOperateOnAStoreIsTakenOver(t *testing.T) {
	t.Parallel()
	dir := writeDemo(t, "50ms", quick)
	d := serveDemo(t, dir)
	begin(t, d.Client, "assistant", "tale", askStory)
	reader := read(t, d.Client, "tale")
	reader.words(3)
	(&operator{t, []string{"--server", d.url()}}).does("", "interrupt", "tale")
	reader.toEnd(d.Client, session.Interrupted)
	d.stop()
	resume := startIn(t, dir, nil, "resume", "tale", "--data", "data", "--config", defaultConfig)
	resume.await(resume.out, "lighthouse")
	resume.signal(os.Kill)
	resume.wait()
	setPace(t, dir, "50ms", "1ms")
	d = serveDemo(t, dir)
	read(t, d.Client, "tale").toEnd(d.Client, session.Completed)
	tellsStory(t, d.Client, "tale")
}

func TestOperateTargets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, test := range []struct {
		place string
		want  string
		code  int
	}{
		{"--server http://127.0.0.1:1", "connection refused", exitFailure},
		{"--server nowhere", `--server "nowhere" is neither a URL nor host:port`, exitUsage},
		{"--server 127.0.0.1:1", "connection refused", exitFailure},
		{"--server http://127.0.0.1:1 --data x", "--server and --store cannot be combined", exitUsage},
		{"--data " + filepath.Join(dir, "none"), "none", exitFailure},
		{"--config none.yaml", "none.yaml", exitFailure},
	} {
		(&operator{t, strings.Fields(test.place)}).fails(test.code, test.want, "sessions", "ls")
	}
	if _, err := os.Stat(filepath.Join(dir, "none")); err == nil {
		t.Error("looking made a store")
	}
}

// Users see their own sessions, operators those of their tenant, through the commands
// too.
func TestOperateAsUsers(t *testing.T) {
	t.Parallel()
	tokens := map[string]string{"alice": "", "bob": "", "boss": "operator: true", "carol": "tenant: other"}
	list := ""
	for user, more := range tokens {
		list += fmt.Sprintf("    - {token: token-of-%s-123, user: %s, %s}\n", user, user, more)
	}
	dir := writeDemo(t, "1ms", "server:\n  tokens:\n"+list)
	d := serve(t, dir, "--config", defaultConfig, "--data", "data")
	as := func(user string) *operator {
		return &operator{t, []string{"--server", d.url(), "--token", "token-of-" + user + "-123"}}
	}
	for user := range tokens {
		(&talkOver{t, d.as("token-of-" + user + "-123"), user + "s"}).say("assistant", "Forget everything.")
	}
	for user, want := range map[string]string{"alice": "alices", "bob": "bobs", "boss": "alices bobs bosss", "carol": "carols"} {
		var page wire.Sessions
		as(user).answers(&page, "sessions", "ls")
		seen := map[string]bool{}
		for i := range page.Items {
			seen[page.Items[i].ID] = true
		}
		for other := range tokens {
			if id := other + "s"; seen[id] != strings.Contains(" "+want+" ", " "+id+" ") {
				t.Errorf("%s sees %s: %t", user, id, seen[id])
			}
		}
	}
	// A process of its own finds both in the environment.
	alone := startIn(t, dir, []string{"HELIX_SERVER=" + d.url(), "HELIX_TOKEN=token-of-bob-123"}, "sessions", "ls")
	if out := alone.finish(); !strings.Contains(out, "\nbobs ") || strings.Contains(out, "alices") {
		t.Errorf("bob is shown\n%s", out)
	}
	call := as("bob").call("bobs").CallID
	for _, user := range []string{"alice", "carol"} {
		for _, args := range []string{
			"sessions show bobs", "sessions tail bobs", "sessions branch bobs", "sessions rm bobs", "interrupt bobs", "resume bobs",
			"submit bobs " + call + " --approve", "submit bobs " + call + " --error no",
		} {
			as(user).fails(exitFailure, "there is no session bobs", strings.Fields(args)...)
		}
	}
	as("alice").fails(exitFailure, "operator", "cleanup")
	as("alice").fails(exitFailure, "operator", "tasks", "ls")
	as("alice").fails(exitFailure, "operator", "tasks", "drop", "x")
	as("boss").does("There are no tasks.", "tasks", "ls")
	as("boss").does("detected 0", "cleanup")
	as("nobody").fails(exitFailure, "the server does not accept the token, or wants one: set it with --token or HELIX_TOKEN", "sessions", "ls")
	as("boss").does("It is all forgotten.", "submit", "bobs", call, "--approve", "--resume")
	if strings.Contains(d.err.String(), "token-of-") {
		t.Errorf("a token is in the log:\n%s", d.err)
	}
}

// The task that an agent below is given is not shown as the user's words.
func TestFollowShowsOwnInput(t *testing.T) {
	t.Parallel()
	received := func(agent, text string) stream.Item {
		m := session.Message{Role: session.RoleUser, Parts: []session.Part{session.Text(text)}}
		return stream.Item{Chunk: &stream.Chunk{Kind: stream.InputReceived, AgentID: agent, Messages: []session.Message{m}}}
	}
	var out bytes.Buffer
	err := follow(t.Context(), &out, "s-1", false, func(yield func(stream.Item, error) bool) {
		_ = yield(received("s-1", "Hi!"), nil) && yield(received("s-1-remote-1", "Pay."), nil)
	})
	if got := out.String(); err != nil || !strings.Contains(got, "> Hi!") || strings.Contains(got, "Pay.") {
		t.Errorf("%q, %v", got, err)
	}
}
