package redis_test

import (
	"net"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/helixagents/helix/internal/testserver"
)

// start runs a server for the test alone, and returns its address.
func start(t testing.TB, settings ...string) string {
	t.Helper()
	return testserver.StartRedis(t, settings...).Addr()
}

// startReplica runs a server that follows another.
func startReplica(t testing.TB, primary string) *testserver.Server {
	t.Helper()
	host, port, err := net.SplitHostPort(primary)
	if err != nil {
		t.Fatal(err)
	}
	return testserver.StartRedis(t, "replicaof="+host+" "+port)
}

// freeAddress returns an address where nobody listens.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// admin returns a client of a server that start has run.
func admin(t testing.TB, address string) *goredis.Client {
	t.Helper()
	client := goredis.NewClient(&goredis.Options{Addr: address})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func urlOf(address string) string { return "redis://" + address + "/0" }
