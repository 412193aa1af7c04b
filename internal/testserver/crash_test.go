package testserver

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/helixagents/helix/internal/eventually"
)

func TestServersEndWithACrashedProcess(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells a process that its parent has died")
	}
	Postgres(t) // fails or skips the test if there is none
	Redis(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	var addrs, dirs [2]string
	if _, err := fmt.Fscan(out, &addrs[0], &dirs[0], &addrs[1], &dirs[1]); err != nil {
		t.Fatal(err)
	}
	for _, addr := range addrs {
		if !listens(addr) {
			t.Errorf("nobody listens on %s", addr)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	eventually.Poll(t, "the servers are gone", func() bool {
		return !slices.ContainsFunc(addrs[:], listens)
	})
	eventually.Poll(t, "their directories are swept", func() bool {
		sweepPlaces(filepath.Dir(dirs[0])) // others may be at it, too
		return !slices.ContainsFunc(dirs[:], exists)
	})
}

func listens(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
