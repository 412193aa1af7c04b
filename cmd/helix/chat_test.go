package main

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/config"
	"github.com/helixagents/helix/extension/skills"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/skill"
	"github.com/helixagents/helix/store/memory"
)

func TestConversationThroughAPipe(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	p := start(t, "chat", "--store", data, "--pace", "0", "--session", "chat")
	p.enter("what is 6*7", "", "remember that tea is hot", "what is 1/0 and 2+2", "/quit", "what is 3*3")
	const want = `Let me see. 
→ calculate {"expression":"6*7"}
← 42
6*7 = 42
Let me see. 
→ remember {"note":"tea is hot"}
← noted
I will remember that.
Let me see. 
→ calculate {"expression":"1/0"}
→ calculate {"expression":"2+2"}
`
	got := p.finish()
	if !strings.HasPrefix(got, want) {
		t.Errorf("it said\n%s\nwant it to begin with\n%s", got, want)
	}
	for _, line := range []string{
		"← calculate: error: division by zero\n", "← calculate: 4\n", "calculate did not work: division by zero\n2+2 = 4\n",
	} {
		if !strings.Contains(got, line) {
			t.Errorf("it did not say %q:\n%s", line, got)
		}
	}
	if strings.Contains(got, "3*3") || strings.Contains(got, "\x1b") || strings.Contains(got, "> ") {
		t.Errorf("it continued after /quit, or printed what a pipe does not want:\n%q", got)
	}
	if notes := p.err.String(); !strings.Contains(notes, "No API key needed") || !strings.Contains(notes, `New session "chat"`) {
		t.Errorf("notes:\n%s", notes)
	}

	// Another script that names the session continues it, with the state, and is not told
	// again what was said.
	p = start(t, "chat", "--store", data, "--pace", "0", "--session", "chat")
	if _, err := p.stdin.Write([]byte("what do you remember?")); err != nil { // a last line without its end
		t.Fatal(err)
	}
	got = p.finish()
	if want := "Let me see. \n→ recall {}\n← [\"tea is hot\"]\nI remember: tea is hot\n"; got != want {
		t.Errorf("the second start said\n%s, want\n%s", got, want)
	}

	// One that names none begins anew, and is told the session's name beside.
	p = start(t, "chat", "--store", data, "--pace", "0")
	p.enter("what do you remember?", "what is 2+2")
	if got = p.finish(); !strings.HasPrefix(got, "Let me see. \n→ recall {}\n← []\nI remember nothing yet.\n") {
		t.Errorf("a new session said\n%s", got)
	}
	if notes := p.err.String(); strings.Count(notes, `Session "`) != 1 {
		t.Errorf("notes:\n%s", notes)
	}
}

func TestCommands(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	p := start(t, "chat", "--data", data, "--pace", "0", "--session", "chat")
	p.enter("/help", "/history", "/retry", "/sessions", "what is 1+1", "/retry", "/new", "what is 2+2", "/new", "what is 3+3",
		"/sessions", "/open chat-2", "/open chat-9", "/open", "/quit now", "/bogus", "/history", "what is 4+4", "/history")
	out := p.finishWith(exitFailure) // commands failed, which a script wants to know
	notes := p.err.String()
	for _, want := range []string{
		"/retry         run a failed turn again", "  chat    turn 1  done  ", "* chat-3  turn 1  done  ",
		"> what is 2+2\nLet me see. \n→ calculate {\"expression\":\"2+2\"}\n← 4\n2+2 = 4\n> what is 4+4\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("it did not say %q:\n%s", want, out)
		}
	}
	for _, want := range []string{
		"The session has no messages yet.", "error: there is no turn to retry yet", "There are no sessions yet.",
		"error: nothing to retry: the last turn is complete", `New session "chat-3".`, `Session "chat-2", turn 1:`,
		`error: there is no session "chat-9"; /sessions lists them`, "error: /open requires the id of a session",
		"error: /quit takes no argument", "error: unknown command /bogus; /help lists the commands",
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("it did not note %q:\n%s", want, notes)
		}
	}
	p = start(t, "chat", "--data", data, "--session", "trip/1", "--pace", "0")
	p.enter("hello")
	if !strings.Contains(p.finish(), "Hello! I am a scripted demo") || !strings.Contains(p.err.String(), `New session "trip/1".`) {
		t.Errorf("a named session:\n%s%s", p.out, p.err)
	}
}

func TestWhereDataIsKept(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		env  string
		args []string
		file string
	}{
		"XDG_DATA_HOME": {env: "XDG_DATA_HOME=xdg", file: "xdg/helix/helix.db"},
		"HOME":          {env: "HOME=home", file: "home/.local/share/helix/helix.db"},
		"no home":       {file: "helix-data/helix.db"},
		"a directory":   {args: []string{"--data", "a/b"}, file: "a/b/helix.db"},
		"a file":        {args: []string{"--data", "c/my.db"}, file: "c/my.db"},
	} {
		dir := t.TempDir()
		p := startIn(t, dir, []string{test.env}, append([]string{"chat", "--pace", "0"}, test.args...)...)
		p.enter("hello")
		p.finish()
		if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(test.file))); err != nil {
			t.Errorf("%s: %v\n%s", name, err, p.err)
		}
	}
}

func TestInterruptStopsTheTurn(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	p := start(t, "chat", "--data", data, "--pace", "50ms")
	p.enter("hello")
	p.await(p.out, "I am a")
	p.signal(os.Interrupt)
	p.await(p.out, "(interrupted)\n")
	p.enter("what is 6*7")
	p.await(p.out, "6*7 = 42\n")
	p.enter("hello again")
	p.await(p.out, "6*7 = 42\nHello! I am a")
	p.signal(os.Interrupt)
	p.enter("/retry")
	p.await(p.out, "(interrupted)\nHello! I am")
	if out := p.finish(); strings.Count(out, "(interrupted)") != 2 || !strings.HasSuffix(out, "\"What do you remember?\".\n") {
		t.Errorf("it said\n%s", out)
	}
}

func TestInterruptAtThePromptLeaves(t *testing.T) {
	t.Parallel()
	p := start(t, "chat", "--pace", "0", "--session", "chat")
	p.enter("what is 6*7", "/sessions")
	p.await(p.out, "* chat") // the turn is over for good
	p.signal(os.Interrupt)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d:\n%s%s", code, p.out, p.err)
	}
}

func TestSecondInterruptLeavesAtOnce(t *testing.T) {
	t.Parallel()
	p := start(t, "chat", "--pace", "100ms")
	p.enter("hello")
	p.await(p.out, "Hello!")
	p.signal(os.Interrupt)
	p.signal(os.Interrupt)
	// The second one comes while the turn is being stopped, or at the prompt. The
	// system may also make one signal of the two, so it is sent until it works.
	for again := time.Tick(100 * time.Millisecond); ; { // waits: between two signals
		select {
		case <-p.done:
		case <-again:
			_ = p.cmd.Process.Signal(os.Interrupt)
			continue
		}
		break
	}
	if code := p.wait(); code != 0 && code != exitForced {
		t.Errorf("exit code %d:\n%s%s", code, p.out, p.err)
	}
}

func TestKilledTurnIsTakenOver(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	p := start(t, "chat", "--data", data, "--pace", "100ms", "--session", "chat")
	p.enter("remember that tea is hot", "hello")
	p.await(p.out, "I am a")
	p.signal(os.Kill)
	p.wait()

	p = start(t, "chat", "--data", data, "--pace", "10ms", "--session", "chat")
	p.enter("what do you remember?")
	out := p.finish()
	if !strings.HasPrefix(out, "> hello\nHello! I am a") {
		t.Errorf("it did not show the turn it found:\n%s", out)
	}
	if !strings.Contains(out, "\"What do you remember?\".\nLet me see. \n→ recall {}\n← [\"tea is hot\"]\n") {
		t.Errorf("it did not finish that turn and continue:\n%s", out)
	}
	if notes := p.err.String(); !strings.Contains(notes, "The last turn is unfinished.") || !strings.Contains(notes, "(recovered; the turn continues from its last commit)") {
		t.Errorf("notes:\n%s", notes)
	}
	p = start(t, "chat", "--data", data, "--session", "chat")
	p.enter("/history")
	if out := p.finish(); strings.Count(out, "> hello\n") != 1 || strings.Count(out, "Hello! I am") != 1 {
		t.Errorf("the turn is not in the history once:\n%s", out)
	}
}

func TestTerminatedTurnContinues(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	p := start(t, "chat", "--data", data, "--pace", "100ms", "--session", "chat")
	p.enter("hello")
	p.await(p.out, "I am a")
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != exitTerminated {
		t.Errorf("exit code %d:\n%s%s", code, p.out, p.err)
	}
	p = start(t, "chat", "--data", data, "--pace", "20ms", "--verbose", "--session", "chat")
	if out := p.finish(); !strings.HasSuffix(out, "\"What do you remember?\".\n") {
		t.Errorf("the next start did not finish the turn:\n%s", out)
	}
	if !strings.Contains(p.err.String(), `msg=run.taken_over`) {
		t.Errorf("the log does not say so:\n%s", p.err)
	}
}

// What a call asks is asked in the terminal; a question that was left open is asked
// again by the next start, and answered there.
func TestQuestions(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	p := start(t, "chat", "--data", data, "--pace", "0", "--session", "chat")
	p.enter("remember that tea is hot", "forget everything", "perhaps", "n I like it",
		"choose between tea, milk and coffee", "9", "milk", "forget everything")
	out := p.finishWith(exitFailure) // a script is told that the last turn did not end
	notes := p.err.String()
	for _, want := range []string{
		"← error: the call was not approved by the user: I like it\n", "← milk\nSo it is milk.\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("it did not say %q:\n%s", want, out)
		}
	}
	for _, want := range []string{
		"Approve forget {}? y, or n and why", "Please enter y or n", "Which one? 1 tea, 2 milk, 3 coffee",
		"Please enter one of the options", "The session is waiting for your answer. /answer asks again",
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("it did not note %q:\n%s", want, notes)
		}
	}

	p = start(t, "chat", "--data", data, "--pace", "0", "--session", "chat")
	p.enter("/later", "hello", "/answer", "y", "what do you remember", "/answer")
	out, notes = p.finishWith(exitFailure), p.err.String()
	if !strings.HasPrefix(out, "← forgotten\nIt is all forgotten.\nLet me see. \n→ recall {}\n← []\nI remember nothing yet.\n") {
		t.Errorf("the next start said\n%s", out)
	}
	if strings.Count(notes, "Approve forget {}?") != 2 || !strings.Contains(notes, "error: the session is waiting for an answer; /answer gives one") ||
		!strings.Contains(notes, "error: the session is not waiting for an answer") {
		t.Errorf("it noted\n%s", notes)
	}

	p = start(t, "chat", "--data", data, "--pace", "0", "--session", "chat")
	p.enter("choose a or b", "/later", "/abandon what is 2+2", "/abandon")
	if out := p.finishWith(exitFailure); !strings.HasSuffix(out, "2+2 = 4\n") {
		t.Errorf("it did not continue without an answer:\n%s%s", out, p.err)
	}
}

func TestTwoProcessesOnOneSession(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	first := start(t, "chat", "--data", data, "--pace", "100ms", "--session", "chat")
	second := start(t, "chat", "--data", data, "--session", "chat", "--pace", "0")
	second.await(second.err, "New session")
	first.enter("hello")
	first.await(first.out, "Hello!")
	second.enter("what is 6*7")
	out := second.finish()
	if !strings.HasPrefix(out, "> hello\nHello! I am") || !strings.HasSuffix(out, "\"What do you remember?\".\nLet me see. \n→ calculate {\"expression\":\"6*7\"}\n← 42\n6*7 = 42\n") {
		t.Errorf("the second said\n%s%s", out, second.err)
	}
	first.finish()
}

// talk has a conversation with an agent whose model plays a script, in this
// process.
func talk(t *testing.T, model llm.Model, s *screen, lines ...string) error {
	t.Helper()
	return talkTo(t, demoAgent(model), s, lines...)
}

func talkTo(t *testing.T, agent *helix.Agent, s *screen, lines ...string) error {
	t.Helper()
	place := &place{
		settings: config.Runtime{Kind: local.Name, LeaseTTL: config.Duration(leaseTTL), Sweep: config.Duration(sweepEvery)},
		db:       memory.New(memory.Config{}), agents: []*helix.Agent{agent}, log: slog.New(slog.DiscardHandler),
	}
	client, end, err := (&target{}).serve(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := end(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	c := &chat{client: client, agent: agent.Name, screen: s, owned: true, lines: newPiped(strings.NewReader(strings.Join(lines, "\n")), s)}
	if err := c.open(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	return c.loop(t.Context())
}

func TestFailedTurnIsRetried(t *testing.T) {
	t.Parallel()
	model := scripted.New(
		scripted.Fail(session.CodeProvider, false, "no such model"),
		scripted.Reply(scripted.Think("Hm. "), scripted.Say("Here \x1b[31mI am.")),
	)
	var out, side bytes.Buffer
	err := talk(t, model, &screen{out: &out, side: &side}, "hello", "/retry")
	if !errors.Is(err, errTurnFailed) {
		t.Errorf("a script is told %v", err)
	}
	if out.String() != "Hm. Here [31mI am.\n" || !strings.Contains(side.String(), "error: The model could not answer.\nno such model\n/retry tries again.\n") {
		t.Errorf("it said\n%q\nand noted\n%s", out.String(), side.String())
	}
}

// A compaction is noted while it is made and when it ends, and divides the history.
func TestChatNotesCompactions(t *testing.T) {
	t.Parallel()
	agent := demoAgent(scripted.Demo(scripted.DemoConfig{}))
	agent.Context = &helix.ContextPolicy{TriggerMessages: 5, KeepMessages: 1}
	var out, side bytes.Buffer
	if err := talkTo(t, agent, &screen{out: &out, side: &side}, askStory, askStory, askStory, "/history"); err != nil {
		t.Fatal(err)
	}
	const begins, ends = "The conversation is being summarised for the model, which may take a minute.\n", "The conversation was summarised for the model, "
	if notes := side.String(); strings.Count(notes, begins+ends) != 1 {
		t.Errorf("it noted\n%s", notes)
	}
	_, history, _ := strings.Cut(out.String(), "> "+askStory)
	if strings.Count(history, "> "+askStory) != 2 || strings.Count(history, "\n── summarised for the model, ") != 1 {
		t.Errorf("the history is\n%s", history)
	}
	if story, _, _ := strings.Cut(out.String(), "> "); strings.Contains(story, "summarised") || strings.Count(story, "Once there was") != 3 {
		t.Errorf("a script reads\n%s", story)
	}

	// A summary that cannot be made changes nothing.
	agent.Context.Model = scripted.New(scripted.Fail(session.CodeProvider, false, "no such \x1bmodel"))
	side.Reset()
	if err := talkTo(t, agent, &screen{out: &out, side: &side}, askStory, askStory, askStory); err != nil {
		t.Fatal(err)
	}
	if notes := side.String(); strings.Count(notes, begins+"The conversation stays as it is: no such model.\n") != 1 {
		t.Errorf("it noted\n%q", notes)
	}
}

// A chat lists the agent's skills, sends messages that choose one, and shows which ones are
// loaded, but not their instructions, which are for the model.
func TestChatShowsSkills(t *testing.T) {
	t.Parallel()
	model := scripted.New(
		scripted.Call(skill.LoadTool, map[string]string{"name": "pdf"}), scripted.Text("One."), scripted.Text("Two."),
		scripted.Call(skill.LoadTool, map[string]string{"name": "csv"}), scripted.Text("Three."), scripted.Text("Four."),
	)
	agent := demoAgent(model)
	agent.Extensions = []helix.Extension{skills.New(skills.Config{Provider: skill.Static(
		skill.Skill{Metadata: skill.Metadata{Name: "pdf", Description: "Reads PDFs. And more."}, Body: "Secret pdf."},
		skill.Skill{Metadata: skill.Metadata{Name: "csv", Description: "Counts."}, Body: "Secret csv."},
	)})}
	var out, side bytes.Buffer
	err := talkTo(t, agent, &screen{out: &out, side: &side}, "/skills", "hello", "/skill csv count it", "/skill none count it", "/skill", "/skill csv")
	if !errors.Is(err, errTurnFailed) {
		t.Errorf("a script is told %v", err)
	}
	want := "csv  Counts.\npdf  Reads PDFs.\n" +
		"→ load_skill {\"name\":\"pdf\"}\n← loaded skill pdf\nOne.\n" +
		"loaded skill csv\nTwo.\n" +
		"→ load_skill {\"name\":\"csv\"}\n← The skill csv is loaded already and has not changed. Its instructions are above: follow them.\nThree.\n"
	if got := out.String(); got != want {
		t.Errorf("it said\n%s\nwant\n%s", got, want)
	}
	if n := strings.Count(side.String(), "error: /skill requires the name of a skill and a message; /skills lists them\n"); n != 2 {
		t.Errorf("it noted\n%s", side.String())
	}
	for i, words := range map[int]string{2: "Secret csv.", 3: `"none", which does not exist`} {
		request := model.Requests()[i]
		if text := request.Messages[len(request.Messages)-1].Content(); !strings.Contains(text, words) {
			t.Errorf("request %d ends with\n%s", i+1, text)
		}
	}
	out.Reset()
	agent.Extensions, agent.Model = nil, scripted.New()
	if err := talkTo(t, agent, &screen{out: &out, side: &side}, "/skills"); err != nil || out.String() != "The agent has no skills.\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 7: "7", 999: "999", 1000: "1,000", 80_000: "80,000", 1_234_567: "1,234,567", -1234: "-1,234", -123: "-123"} {
		if got := thousands(n); got != want {
			t.Errorf("%d is %s", n, got)
		}
	}
}

func TestErrorsDoNotControlTheTerminal(t *testing.T) {
	t.Parallel()
	for _, interactive := range []bool{false, true} {
		var out bytes.Buffer
		s := &screen{out: &out, side: &out, interactive: interactive}
		s.error(errors.New("no \x1b]0;title\x07such \u202eplace"))
		if out.String() != "error: no ]0;titlesuch place\n" {
			t.Errorf("interactive %v: it said %q", interactive, out.String())
		}
	}
}

func TestModelRetryIsTold(t *testing.T) {
	t.Parallel()
	model := scripted.New(
		scripted.Reply(scripted.Say("Well, "), scripted.Failing(llm.Error(session.CodeProvider, true, "overloaded"))),
		scripted.Text("Hello."),
	)
	var out bytes.Buffer
	if err := talk(t, model, &screen{out: &out, side: &out, interactive: true}, "hello"); err != nil {
		t.Error(err)
	}
	if !strings.HasSuffix(out.String(), "> Well, \nThe model call failed: overloaded. Retrying.\nHello.\n\n> \n") {
		t.Errorf("it said\n%q", out.String())
	}
}

func TestColor(t *testing.T) {
	t.Parallel()
	model := scripted.New(scripted.Call("calculate", `{"expression":"1+"}`), scripted.Text("Sorry."))
	var out bytes.Buffer
	if err := talk(t, model, &screen{out: &out, side: &out, interactive: true, color: true}, "hello", "/quit"); err != nil {
		t.Error(err)
	}
	for _, want := range []string{
		"\n\x1b[1m> \x1b[0m\x1b[36m→ calculate {\"expression\":\"1+\"}\x1b[0m\n",
		"\x1b[31m← error: the expression is incomplete\x1b[0m\nSorry.\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%q", want, out.String())
		}
	}
}

func TestOneLine(t *testing.T) {
	t.Parallel()
	if got := oneLine("a\n  b\tc"); got != "a b c" {
		t.Errorf("got %q", got)
	}
	if got := oneLine(strings.Repeat("ä", maxShown+1)); got != strings.Repeat("ä", maxShown)+"…" {
		t.Errorf("got %q", got)
	}
}
