package bake

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/helixagents/helix/internal/eventually"
)

// awaitEnd waits until a process is gone.
func awaitEnd(t *testing.T, pid string) {
	t.Helper()
	id, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	eventually.Poll(t, fmt.Sprint("process ", id, " ends"), func() bool {
		process, err := os.FindProcess(id)
		if err != nil {
			return true
		}
		err = process.Signal(syscall.Signal(0)) // asks whether it is there
		_ = process.Release()
		if errors.Is(err, os.ErrProcessDone) {
			return true
		}
		// Where nobody collects orphans, one that has ended stays as a zombie.
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		return err == nil && strings.Contains(string(stat), ") Z ")
	})
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
