package testserver

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
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
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	for i, addr := range addrs {
		awaitDown(t, addr)
		sweepPlaces(filepath.Dir(dirs[i]))
		if _, err := os.Stat(dirs[i]); err == nil {
			t.Errorf("%s is still there", dirs[i])
		}
	}
}

func awaitDown(t *testing.T, addr string) {
	t.Helper()
	deadline := time.After(stopTimeout)
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	for {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		conn.Close()
		select {
		case <-poll.C:
		case <-deadline:
			t.Fatalf("the server on %s outlived its process", addr)
		}
	}
}
