package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/helixagents/helix/internal/backend"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testbackend"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/store"
)

// childEnv tells a copy of the test binary which part it plays.
const childEnv = "HELIX_CHAOS_CHILD"

// parts are what a child process may do. Each gets the directory that all
// processes of a test share.
var parts = map[string]func(ctx context.Context, dir string) error{
	"worker":   worker,
	"fleet":    fleet,
	"notes":    notes,
	"asker":    asker,
	"answerer": answerer,
	"beginner": beginner,
	"patient":  patient,
	"racer":    racer,
	"desk":     desk,
}

func TestMain(m *testing.M) {
	if part, ok := parts[os.Getenv(childEnv)]; ok {
		os.Exit(play(part))
	}
	_ = flag.Set("test.parallel", "3") // most of them wait for processes and servers
	os.Exit(testserver.Main(m).Run())
}

// play is a child's main function.
func play(part func(context.Context, string) error) int {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute) // waits: it ends a child that its test has forgotten
	defer cancel()
	if err := part(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// child is a process of the test's own.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
	in    *json.Encoder
}

func startChild(t *testing.T, part, dir string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0], dir)
	cmd.Env = append(os.Environ(), childEnv+"="+part)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: cmd, lines: bufio.NewScanner(out), in: json.NewEncoder(in)}
	t.Cleanup(c.kill)
	return c
}

// line is the next line the child printed, or "" when it has ended.
func (c *child) line() string {
	if c.lines.Scan() {
		return c.lines.Text()
	}
	return ""
}

// kill sends SIGKILL and waits until the process is gone.
func (c *child) kill() {
	if c.cmd.ProcessState == nil {
		_ = c.cmd.Process.Kill() // it may have ended by itself
		_ = c.cmd.Wait()
	}
}

// onStores runs a test for two of the stores that processes can share, two others with the
// next commit, and in a long run for every one. The test's directory says where the data is.
func onStores(t *testing.T, test func(t *testing.T, dir string)) {
	t.Helper()
	t.Parallel()
	for i, kind := range testbackend.Shared() {
		if !takesPart(t, i) {
			continue
		}
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "store"), []byte(kind.Address(t)), 0o600); err != nil {
				t.Fatal(err)
			}
			test(t, dir)
		})
	}
}

// takesPart reports whether a test runs with the i-th of several stores or servers: with
// every other one, and not all tests with the same ones.
func takesPart(t *testing.T, i int) bool {
	t.Helper()
	return testshare.HasTurn(t, i, 2)
}

// open opens the store that the processes of a test share.
func open(dir string) (store.Backend, error) {
	return openWith(dir, func(address string) (store.Backend, error) { return opener(address)() })
}

// openPlain opens the store for a process that keeps its leases as any other does.
func openPlain(dir string) (store.Backend, error) {
	return openWith(dir, func(address string) (store.Backend, error) {
		return backend.OpenWithin(eventually.Patience, address, nil)
	})
}

func openWith(dir string, opener func(address string) (store.Backend, error)) (store.Backend, error) {
	address, err := os.ReadFile(filepath.Join(dir, "store"))
	if err != nil {
		return nil, err
	}
	return opener(string(address))
}

// openFor opens the store for the test itself.
func openFor(t *testing.T, dir string) store.Backend {
	t.Helper()
	db, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}
