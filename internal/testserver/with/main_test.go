package main

import (
	"bufio"
	"net"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/helixagents/helix/internal/testserver"
)

// childEnv makes a copy of the test binary be the command.
const childEnv = "HELIX_WITH_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		main()
	}
	os.Exit(testserver.Main(m).Run())
}

// serverVariables name the servers that run beside the command.
var serverVariables = []string{"HELIX_TEST_POSTGRES", "HELIX_TEST_REDIS", "HELIX_TEST_REDIS_CLUSTER", "HELIX_TEST_TEMPORAL"}

// with returns the command, run by this test binary. It has to start servers, even if this test was given some.
func with(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if !slices.Contains(serverVariables, name) {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, childEnv+"=1")
	cmd.Stderr = os.Stderr
	return cmd
}

func TestServersRunBesideTheCommand(t *testing.T) {
	t.Parallel()
	if os.Getenv("HELIX_TEST_SKIP_SERVERS") == "1" {
		t.Skip("HELIX_TEST_SKIP_SERVERS=1")
	}
	testserver.StartTemporal(t) // so that it is built: with would not wait for that
	cmd := with(t, "sh", "-c", `
		echo "$HELIX_TEST_POSTGRES"; echo "$HELIX_TEST_REDIS"; echo "$HELIX_TEST_REDIS_CLUSTER"; echo "//$HELIX_TEST_TEMPORAL"
		read -r line; exit 7`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var addrs []string
	lines := bufio.NewScanner(out)
	for range serverVariables {
		lines.Scan()
		u, err := url.Parse(lines.Text())
		if err != nil || u.Host == "" {
			t.Fatalf("%q is no URL: %v", lines.Text(), err)
		}
		addrs = append(append(addrs, u.Host), u.Query()["addr"]...)
	}
	if len(addrs) != 6 {
		t.Errorf("got servers at %v, want 6", addrs)
	}
	for _, addr := range addrs {
		if !listens(addr) {
			t.Errorf("nobody listens on %s", addr)
		}
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the exit code says it
	if code := cmd.ProcessState.ExitCode(); code != 7 {
		t.Errorf("exit code %d, want the command's 7", code)
	}
	for _, addr := range addrs {
		if listens(addr) {
			t.Errorf("the server on %s is still there", addr)
		}
	}
}

func TestSignalsGoToTheCommand(t *testing.T) {
	t.Parallel()
	cmd := with(t, "sh", "-c", `trap 'exit 9' TERM; echo up; while :; do sleep 0.01; done`)
	// These are not what is tested: nobody needs to answer there.
	for _, name := range serverVariables {
		cmd.Env = append(cmd.Env, name+"=elsewhere")
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the exit code says it
	if code := cmd.ProcessState.ExitCode(); code != 9 {
		t.Errorf("exit code %d, want the 9 of the command's trap", code)
	}
}

func listens(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}
