package redis_test

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// start runs a server of the test's own, which it may spoil, and returns its
// address.
func start(t testing.TB, settings ...string) string {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("redis-server is not installed: ", err)
	}
	address := freeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	args := append([]string{"--bind", "127.0.0.1", "--port", port, "--dir", t.TempDir(), "--save", "", "--appendonly", "yes"}, settings...)
	cmd := exec.Command(program, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	waitFor(t, address)
	return address
}

func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// waitFor waits until a server answers, whatever it says.
func waitFor(t testing.TB, address string) {
	t.Helper()
	client := goredis.NewClient(&goredis.Options{Addr: address, MaxRetries: -1})
	defer func() { _ = client.Close() }()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 2000 {
		err := client.Ping(context.Background()).Err()
		if err == nil || strings.HasPrefix(err.Error(), "NOAUTH") {
			return
		}
		<-tick.C
	}
	t.Fatalf("no server answers at %s", address)
}

// admin is a client of a server of the test's own.
func admin(t testing.TB, address string) *goredis.Client {
	t.Helper()
	client := goredis.NewClient(&goredis.Options{Addr: address})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func urlOf(address string) string { return fmt.Sprintf("redis://%s/0", address) }
