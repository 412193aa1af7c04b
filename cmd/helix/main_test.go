package main

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/internal/version"
)

// beProgram makes the test binary the program itself, so that tests drive a real
// process, with the race detector if they have it.
const beProgram = "HELIX_TEST_BE_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(beProgram) != "" {
		main()
	}
	_ = flag.Set("test.parallel", "4") // most of them wait for processes and leases
	os.Exit(testserver.Main(m).Run())
}

// program is a running helix.
type program struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *output
	err   *output
	done  chan struct{} // closed when it has ended
}

// output collects what a program writes and can be waited on.
type output struct {
	mu      sync.Mutex
	buf     bytes.Buffer
	changed chan struct{}
}

func newOutput() *output { return &output{changed: make(chan struct{})} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.changed)
	o.changed = make(chan struct{})
	return o.buf.Write(p)
}

func (o *output) read() (string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String(), o.changed
}

func (o *output) String() string {
	text, _ := o.read()
	return text
}

// start starts the program in an empty directory and an environment without a
// home.
func start(t *testing.T, args ...string) *program {
	t.Helper()
	return startIn(t, t.TempDir(), nil, args...)
}

func startIn(t *testing.T, dir string, env []string, args ...string) *program {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startOther(t, self, dir, env, args...)
}

// startOther is startIn for a program in a file of its own.
func startOther(t *testing.T, file, dir string, env []string, args ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.Command(file, args...), out: newOutput(), err: newOutput(), done: make(chan struct{})}
	p.cmd.Dir = dir
	// The race detector would wait a second at every exit.
	p.cmd.Env = append([]string{beProgram + "=1", "GORACE=atexit_sleep_ms=0"}, env...)
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.err
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // how it ended is in ProcessState
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
	})
	return p
}

// enter types lines.
func (p *program) enter(lines ...string) {
	p.t.Helper()
	if _, err := io.WriteString(p.stdin, strings.Join(lines, "\n")+"\n"); err != nil {
		p.t.Fatalf("type %q: %v", lines, err)
	}
}

// await waits until the program has written a text.
func (p *program) await(out *output, want string) {
	p.t.Helper()
	timeout := time.After(eventually.Patience)
	for {
		text, changed := out.read()
		if strings.Contains(text, want) {
			return
		}
		select {
		case <-changed:
		case <-p.done:
			if !strings.Contains(out.String(), want) {
				p.t.Fatalf("it ended without saying %q:\n%s%s", want, p.out, p.err)
			}
		case <-timeout:
			p.t.Fatalf("it did not say %q:\n%s%s", want, p.out, p.err)
		}
	}
}

func (p *program) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// wait waits for the end of the program and gives its exit code.
func (p *program) wait() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(eventually.Patience):
		p.t.Fatalf("it did not end:\n%s%s", p.out, p.err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// finish closes the input and expects a clean end.
func (p *program) finish() string {
	p.t.Helper()
	return p.finishWith(0)
}

// finishWith is finish for a program that is to leave with a certain exit code.
func (p *program) finishWith(want int) string {
	p.t.Helper()
	if err := p.stdin.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		p.t.Fatal(err)
	}
	if code := p.wait(); code != want {
		p.t.Fatalf("exit code %d, want %d:\n%s%s", code, want, p.out, p.err)
	}
	return p.out.String()
}

func TestMistakesGetOneLine(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("this is not a database, whatever else it may be\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args string
		want string
		code int
	}{
		{"chat --bogus", "unknown flag: --bogus", exitUsage},
		{"bogus", `unknown command "bogus"`, exitUsage},
		{"help bogus", `unknown command "bogus"`, exitUsage},
		{"help sessions bogus", `unknown command "bogus" (see helix sessions --help)`, exitUsage},
		{"help chat extra", `unknown argument "extra"`, exitUsage},
		{"sesions ls", `unknown command "sesions": did you mean sessions?`, exitUsage},
		{"migrate stauts", `unknown command "stauts": did you mean status?`, exitUsage},
		{"migrate status --store /no/such/place", "there is no directory /no/such", exitFailure},
		{"migrate status --store " + file + "/deeper", "is not a directory", exitFailure},
		{"sessions ls --store " + file, "is not a SQLite database", exitFailure},
		{"migrate status --store /no/such\x1b[31m/place", "there is no directory /no/such[31m", exitFailure},
		{"chat one more", `unknown argument "more": helix chat takes the name of an agent`, exitUsage},
		{"chat shop --agent other", "two agents are named, shop and other: choose one", exitUsage},
		{"chat shop", "the demo of helix chat has only one agent, so none can be chosen", exitUsage},
		{"chat --pace never", `--pace "never" is not a duration such as 30s`, exitUsage},
		{"chat --session a/../b", `session id "a/../b" must not contain ".."`, exitFailure},
		{"chat --data " + file + "/deeper", "not a directory", exitFailure},
		{"chat --data " + file, "not a SQLite database", exitFailure},
	} {
		out, text, code := (&operator{t: t}).run(strings.Fields(test.args)...)
		if code != test.code || !strings.Contains(text, test.want) || strings.Count(text, "\n") != 1 || out != "" {
			t.Errorf("helix %s: exit code %d, want %d with %q in one line\n%s%s", test.args, code, test.code, test.want, out, text)
		}
	}
}

// The program's help fits on a screen of 80 by 30, and has every command once.
func TestOverview(t *testing.T) {
	t.Parallel()
	text := start(t, "help").finish()
	lines := strings.Split(text, "\n")
	if len(lines) > 30 {
		t.Errorf("the help has %d lines", len(lines))
	}
	for _, line := range lines {
		if len(line) > 100 {
			t.Errorf("%q is too long", line)
		}
	}
	for _, cmd := range rootCommand(nil).Commands() {
		if cmd.Runnable() && cmd.Name() != "help" && strings.Count(text, "\n  "+cmd.Name()+" ") != 1 {
			t.Errorf("%s is not in it once:\n%s", cmd.Name(), text)
		}
	}
}

// Help names arguments in capitals, and where data is kept by one name.
func TestPlaceholders(t *testing.T) {
	t.Parallel()
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		usage := cmd.UsageString() + cmd.Long + cmd.Example
		if strings.Contains(usage, "--"+dataFlag) {
			t.Errorf("%s: the help has --%s", cmd.CommandPath(), dataFlag)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if name, _ := pflag.UnquoteUsage(f); f.Value.Type() == "string" && name != "string" && name != strings.ToUpper(name) {
				t.Errorf("%s: --%s %s", cmd.CommandPath(), f.Name, name)
			}
		})
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(rootCommand(nil))
}

func TestHelpAndVersion(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":               "Operate sessions:",
		"--help":         "Operate sessions:",
		"--version":      "helix " + version.Helix() + "\n",
		"chat --help":    "echo 'what is 6*7' | helix chat",
		"chat --version": "helix " + version.Helix() + "\n",
		"serve -v":       "helix " + version.Helix() + "\n",
		"worker x -v":    "helix " + version.Helix() + "\n",
	} {
		out, complaint, code := (&operator{t: t}).run(strings.Fields(args)...)
		if code != 0 || !strings.Contains(out, want) || complaint != "" {
			t.Errorf("helix %s: exit code %d\n%s%s", args, code, out, complaint)
		}
	}
}
