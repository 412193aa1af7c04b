package bake

import (
	"errors"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// awaitEnd waits until a process is gone.
func awaitEnd(t *testing.T, pid string) {
	t.Helper()
	id, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		process, err := os.FindProcess(id)
		if err != nil {
			return
		}
		err = process.Signal(syscall.Signal(0)) // asks whether it is there
		_ = process.Release()
		if errors.Is(err, os.ErrProcessDone) {
			return
		}
		// Where nobody collects orphans, one that has ended stays as a zombie.
		if stat, err := os.ReadFile("/proc/" + pid + "/stat"); err == nil && strings.Contains(string(stat), ") Z ") {
			return
		}
		<-time.After(10 * time.Millisecond) // nothing tells when a process that is not ours ends
	}
	t.Errorf("process %d still runs", id)
}

// basicAuth is a gate for a user with a password.
func basicAuth(user, password string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, req *http.Request) bool {
		if u, p, ok := req.BasicAuth(); ok && u == user && p == password {
			return true
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		w.WriteHeader(http.StatusUnauthorized)
		return false
	}
}
