package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/helixagents/helix/session"
)

// A person talks to an agent of a file, and edits what is typed; the next chat knows
// what was typed before, and continues the session.
func TestTerminalWithAFile(t *testing.T) {
	t.Parallel()
	dir := writeDemo(t, "1ms", "")
	args := []string{"chat", "--config", defaultConfig, "--agent", "assistant", "--store", "data"}
	p := startOn(t, dir, 80, args...)
	p.sees("You are talking to assistant. Streams, calls tools at the same time")
	p.sees(`New session "chat".`)
	p.asked(">")
	p.press("hat is 6 * 8!")
	p.asked("> hat is 6 * 8!")
	p.press(arrowLeft, rubOut, "y", arrowLeft, arrowRight, rubOut, "x")
	p.asked("> hat is 6 * x!")
	p.press(rubOut, "7", ctrlA, "W", ctrlE, rubOut, "?", homeKey, endKey)
	p.asked("> What is 6 * 7?")
	p.press(enterKey)
	p.sees("6 * 7 = 42")
	p.asked(">")
	p.press("one two  three", ctrlW)
	p.asked("> one two")
	p.press(arrowLeft, arrowLeft, arrowLeft, ctrlK)
	p.asked("> one tw")
	p.press(ctrlU, "kept ")
	p.press(arrowUp)
	p.asked("> What is 6 * 7?")
	p.press(arrowDown)
	p.asked("> kept")
	p.press(ctrlC)
	p.sees("> kept ^C")
	p.asked(">")
	p.press(arrowUp, enterKey)
	p.awaits("the answer twice", func(screen []string) bool { return strings.Count(strings.Join(screen, "\n"), "6 * 7 = 42") == 2 })
	p.asked(">")
	p.press(ctrlD)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	info, err := os.Stat(filepath.Join(dir, "data", historyName))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the history: %v, %v", info, err)
	}

	p = startOn(t, dir, 80, args...)
	p.sees(`Session "chat", turn 2:`)
	p.sees("> What is 6 * 7?") // the last exchange
	p.asked(">")
	p.press(arrowUp)
	p.asked("> What is 6 * 7?")
	p.press(ctrlU, "/quit", enterKey)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A person talks to an agent of a server, and approves a call.
func TestTerminalWithAServer(t *testing.T) {
	t.Parallel()
	dir := writeDemo(t, "1ms", "server:\n  tokens:\n    - {token: token-of-alice-123, user: alice}\n")
	d := serve(t, dir, "--config", defaultConfig, "--store", "data")
	p := startOn(t, dir, 80, "chat", "--server", d.addr, "--agent", "assistant", "--token", "token-of-alice-123")
	p.asked(">")
	p.press("Remember that tea is hot.", enterKey)
	p.sees("I will remember that.")
	p.asked(">")
	p.press("Forget everything.", enterKey)
	p.sees("Approve forget {}? y, or n and why")
	p.asked("?")
	p.press("n", rubOut, "y", enterKey)
	p.sees("It is all forgotten.")
	p.asked(">")
	p.press(arrowUp) // an answer is not in the history
	p.asked("> Forget everything.")
	p.press(ctrlC, ctrlC)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	list, err := d.as("token-of-alice-123").Sessions(t.Context(), session.Query{})
	if err != nil || len(list.Items) != 1 || list.Items[0].Turn != 2 && list.Items[0].Turn != 3 || list.Items[0].UserID != "alice" {
		t.Errorf("the sessions are %+v, %v", list, err)
	}
	id := list.Items[0].ID
	o := &operator{t, []string{"--server", d.addr}}
	o.fails(exitFailure, "the server does not accept the token", "chat", "--agent", "assistant")
	o.place = append(o.place, "--token", "token-of-alice-123")
	o.fails(exitUsage, "choose an agent with --agent: assistant, baker, planner", "chat")
	o.fails(exitUsage, `there is no agent "nobody"; the agents are assistant, `, "chat", "--agent", "nobody")
	o.fails(exitUsage, "--model is only for the demo agent and cannot be combined with --server", "chat", "--model", "demo")

	// A pipe is told nothing of what was said before, in the session that it names.
	pipe := startIn(t, dir, nil, "chat", "--server", d.addr, "--token", "token-of-alice-123", "--session", id)
	pipe.enter("What is 2 + 2?")
	if out := pipe.finish(); !strings.HasSuffix(out, "2 + 2 = 4\n") || strings.Contains(out, "forgotten") {
		t.Errorf("the pipe said\n%s%s", out, pipe.err)
	}
}

// Ctrl-C once stops the run, which can be resumed; twice it leaves.
func TestTerminalInterrupts(t *testing.T) {
	t.Parallel()
	dir := writeDemo(t, "30ms", "")
	p := startOn(t, dir, 80, "chat", "--config", defaultConfig, "--agent", "assistant", "--store", "data")
	p.asked(">")
	p.press(askStory, enterKey)
	p.sees("lighthouse")
	p.press(ctrlC)
	p.sees("(interrupted)\nThe turn was stopped. /resume continues it.")
	p.asked(">")
	p.press("/resume", enterKey)
	p.awaits("the story again", func(screen []string) bool {
		_, after, _ := strings.Cut(strings.Join(screen, "\n"), "> /resume\n")
		return strings.Contains(after, "lighthouse")
	})
	p.press(ctrlC)
	p.asked(">")
	p.press(ctrlC) // one that comes while the turn is being stopped leaves at once
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A failure is shown with what it means and how to try again.
func TestTerminalShowsAFailure(t *testing.T) {
	t.Parallel()
	model := newMoody(t)
	dir := model.file(t)
	p := startOn(t, dir, 200, "chat", "--config", defaultConfig, "--store", "data")
	p.asked(">")
	p.press("Hello?", enterKey)
	p.sees("error: The model's provider refused the API key that this server uses.\n")
	p.sees("the key has been revoked")
	p.sees("/retry tries again.")
	p.asked(">")
	p.press(ctrlD)
	p.wait()
	model.answers.Store(true)
	p = startOn(t, dir, 200, "chat", "--config", defaultConfig, "--store", "data")
	p.sees("error: The model's provider refused the API key that this server uses.\n")
	p.asked(">")
	p.press("/retry", enterKey)
	p.sees("Here I am again.")
	p.asked(">")
	p.press(ctrlD)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Wide characters, lines that are longer than the terminal, and pasted lines stay what
// they are, on one row until they are sent.
func TestTerminalNarrow(t *testing.T) {
	t.Parallel()
	model := newMoody(t)
	model.answers.Store(true)
	dir := model.file(t)
	p := startOn(t, dir, 20, "chat", "--config", defaultConfig, "--store", "data", "--session", "s")
	p.asked(">")
	p.press("日本語と中文")
	p.asked("> 日本語と中文")
	p.press(arrowLeft, arrowLeft, rubOut, "e\u0301")
	p.asked("> 日本語e\u0301中文")
	p.press(endKey, " and much more than fits")
	p.asked("> h more than fits") // 17 columns, of which the cursor takes one
	p.press(ctrlA)
	p.asked("> 日本語e\u0301中文 and m")
	p.press(ctrlK, "\x1b[200~first\rsecond\n\x1b[201~", " third")
	p.asked("> rst⏎second third")
	p.press(enterKey)
	p.sees("> first\nsecond third\nHere I am again.")
	p.asked(">")
	p.press(ctrlD)
	p.wait()
	var shown struct{ Messages []session.Message }
	o := &operator{t, []string{"--store", filepath.Join(dir, "data")}}
	o.answers(&shown, "sessions", "show", "s")
	if len(shown.Messages) != 2 || shown.Messages[0].Parts[0].Text != "first\nsecond third" {
		t.Errorf("the messages are %+v", shown.Messages)
	}
}

// The history is bounded, and survives lines that it cannot read.
func TestHistory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := openHistory(dir)
	for i := range 2*maxHistory + 10 {
		line, err := json.Marshal(i)
		if err != nil {
			t.Fatal(err)
		}
		h.add("line " + string(line))
	}
	h.add("two\nlines")
	h.add("two\nlines")
	h.add(strings.Repeat("x", maxEntry+1))
	file, err := os.OpenFile(h.path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString("no JSON\n"); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first makes the file shorter
		again := openHistory(dir)
		if again.len() != maxHistory || again.line(maxHistory-1) != "two\nlines" || again.line(maxHistory-2) != "line 2009" {
			t.Errorf("%d lines, the last %q", again.len(), again.line(again.len()-1))
		}
	}
	raw, err := os.ReadFile(h.path)
	if err != nil || strings.Count(string(raw), "\n") != maxHistory {
		t.Errorf("the file has %d lines, %v", strings.Count(string(raw), "\n"), err)
	}
	if info, err := os.Stat(h.path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestRunAtATerminal forgets the prompt, and gives up typing one.
func TestRunAtATerminal(t *testing.T) {
	t.Parallel()
	dir := writeDemo(t, "1ms", "")
	p := startOn(t, dir, 80, "run", "assistant")
	p.sees("give the agent a prompt")
	if code := p.wait(); code != exitUsage {
		t.Errorf("exit code %d", code)
	}
	p = startOn(t, dir, 80, "run", "--store", "data", "assistant", "-")
	p.sees("using helix.yaml")
	p.press("What is 6", ctrlC)
	if code := p.wait(); code != exitTerminated {
		t.Errorf("exit code %d", code)
	}
	p = startOn(t, dir, 80, "chat", "--store", "data", "assistant")
	p.asked(">")
	p.press("Forget everything.", enterKey)
	p.asked("?")
	p.press("Yes, but keep the notes.", enterKey)
	p.sees("Please enter only y to approve the call as it is.")
	p.asked("?")
	p.press("No, not today.", enterKey)
	p.sees("forget did not work")
	p.asked(">")
	p.press(ctrlD)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
