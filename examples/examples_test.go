// Package examples_test builds and runs every example and compares its output with
// testdata. Run it with -update to accept the current output.
package examples_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testserver"
)

var update = flag.Bool("update", false, "write the examples' output to testdata")

func TestExamplesPrintWhatTheyClaim(t *testing.T) {
	t.Parallel()
	names := examples(t)
	bin := programs(t)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := run(t, filepath.Join(bin, name))
			golden := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(golden, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("it printed\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// TestBackendsOnServers checks that the backends example prints the same on servers as on files.
func TestBackendsOnServers(t *testing.T) {
	t.Setenv("POSTGRES_URL", testserver.Postgres(t))
	t.Setenv("REDIS_URL", testserver.Redis(t))
	got := run(t, filepath.Join(programs(t), "backends"))
	want, err := os.ReadFile(filepath.Join("testdata", "backends.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("it printed\n%s\nwant\n%s", got, want)
	}
}

func TestMain(m *testing.M) {
	code := testserver.Main(m).Run()
	if err := os.RemoveAll(built.dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// TestReadmeShowsTheQuickstart checks that the README has the main function of the
// quickstart, which is ten lines long.
func TestReadmeShowsTheQuickstart(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(filepath.Join("..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join("quickstart", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(source), "func main() {\n")
	code, _, _ = strings.Cut(code, "\n}\n")
	if !strings.Contains(string(readme), "```go\nfunc main() {\n"+code+"\n}\n```") {
		t.Error("README.md does not contain the main function of examples/quickstart verbatim")
	}
	if n := strings.Count(code, "\n") + 1; n > 10 {
		t.Errorf("it has %d lines", n)
	}
}

// serving are the examples that serve until they are stopped; see serving_test.go.
var serving = []string{"embed", "quickstart"}

// examples returns the directories that contain an example which ends by itself.
func examples(t *testing.T) []string {
	t.Helper()
	mains, err := filepath.Glob(filepath.Join("*", "main.go"))
	if err != nil || len(mains) == 0 {
		t.Fatalf("no examples found: %v", err)
	}
	names := make([]string, len(mains))
	for i, main := range mains {
		names[i] = filepath.Dir(main)
	}
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(serving, name) })
}

// built has the programs of all examples in a directory. Without cgo they share what the linter has compiled.
var built struct {
	sync.Once

	dir string
	err error
}

// programs returns the directory of the programs.
func programs(t *testing.T) string {
	t.Helper()
	built.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "helix-examples-"); built.err != nil {
			return
		}
		cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", built.dir+string(filepath.Separator), "./...")
		cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.dir
}

// run runs a program in an empty directory and returns its standard output.
func run(t *testing.T, program string) []byte {
	t.Helper()
	ctx := eventually.Context(t)
	cmd := exec.CommandContext(ctx, program)
	cmd.Dir = t.TempDir()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, stdout.Bytes(), stderr.Bytes())
	}
	if stderr.Len() > 0 {
		t.Errorf("it wrote to stderr: %s", stderr.Bytes())
	}
	return stdout.Bytes()
}
