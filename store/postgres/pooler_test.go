package postgres_test

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/helixagents/helix/store/postgres"
	"github.com/helixagents/helix/store/storetest"
)

// TestPooler holds the backend to everything behind a real PgBouncer in
// transaction mode, with fewer connections of the server than clients.
func TestPooler(t *testing.T) {
	t.Parallel()
	url := pgbouncer(t)
	storetest.Run(t, func(t testing.TB) storetest.Harness {
		return openConfig(t, postgres.Config{URL: url, Pooler: true})
	})
}

const pgbouncerConfig = `
[databases]
* = host=%s port=%s user=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
auth_type = any
pool_mode = transaction
default_pool_size = 4
max_client_conn = 500
unix_socket_dir =
logfile = %s
`

// pgbouncer starts a pooler before the test database and returns its URL.
func pgbouncer(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		if program = "/usr/sbin/pgbouncer"; exec.Command(program, "--version").Run() != nil {
			t.Skip("SKIPPED: there is no pgbouncer")
		}
	}
	target, err := url.Parse(postgres.DatabaseForTest(t))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "pgbouncer") // not t.TempDir, which another user may not enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	port, config := freePort(t), filepath.Join(dir, "pgbouncer.ini")
	name := target.User.Username()
	text := fmt.Sprintf(pgbouncerConfig, target.Hostname(), target.Port(), name, port, filepath.Join(dir, "log"))
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-q", config)
	cmd.SysProcAttr = unprivileged(t, dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	target.Host = fmt.Sprintf("127.0.0.1:%d", port)
	waitFor(t, target.Host, filepath.Join(dir, "log"))
	return target.String()
}

// unprivileged has a program run as somebody else if this is root's test, for it
// refuses to run as root.
func unprivileged(t *testing.T, dir string) *syscall.SysProcAttr {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(nobody.Uid)
	gid, _ := strconv.Atoi(nobody.Gid)
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port
}

// waitFor waits until a server accepts connections.
func waitFor(t *testing.T, address, log string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
			return
		}
		if time.Now().After(deadline) {
			said, _ := os.ReadFile(log)
			t.Fatalf("%v\n%s", err, said)
		}
		<-time.After(20 * time.Millisecond)
	}
}
