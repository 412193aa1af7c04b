package redis_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/redis"
	"github.com/helixagents/helix/store/storetest"
)

func TestSingle(t *testing.T) {
	t.Parallel()
	storetest.Run(t, openAt(single(t)))
}

// TestCluster runs the cases whose data is in more than one slot, and a share of those
// whose session is all that they use.
func TestCluster(t *testing.T) {
	t.Parallel()
	storetest.RunShare(t, 4, openAt(cluster(t)), "lifecycle", "children", "tenants", "listing", "waiting", "tasks", "blobs", "opening", "ready")
}

func BenchmarkBackend(b *testing.B) { storetest.Benchmarks(b, openAt(single(b))) }

// single and cluster return the servers that the tests share; each test has its
// own prefix.
func single(t testing.TB) string { return testserver.Redis(t) }

// newClient makes a client of the single server.
func newClient(t testing.TB) *goredis.Client {
	t.Helper()
	options, err := goredis.ParseURL(single(t))
	if err != nil {
		t.Fatal(err)
	}
	client := goredis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func cluster(t testing.TB) string { // one node is enough, it knows the others
	node, _, _ := strings.Cut(testserver.RedisCluster(t), "?")
	return node
}

func newPrefix() string {
	var random [6]byte
	_, _ = rand.Read(random[:])
	return "test-" + hex.EncodeToString(random[:])
}

func openAt(url string) storetest.Open {
	return func(t testing.TB) storetest.Harness {
		clock, prefix := storetest.NewClock(), newPrefix()
		connect := func(t testing.TB) store.Backend {
			return open(t, redis.Config{URL: url, Prefix: prefix, Clock: clock.Now})
		}
		return storetest.Harness{
			Backend:    connect(t),
			Reopen:     connect,
			Persistent: true,
			Advance:    clock.Advance,
			Corrupt:    func(t testing.TB, what, tenant, id string) { damage(t, url, prefix, what, tenant, id) },
			Outdate:    func(t testing.TB) { outdate(t, url, prefix) },
		}
	}
}

func open(t testing.TB, config redis.Config) *redis.Backend {
	t.Helper()
	config.ConnectTimeout = cmp.Or(config.ConnectTimeout, eventually.Patience) // the server answers sooner or later
	b, err := redis.OpenConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// outdate records a format that only later programs can use.
func outdate(t testing.TB, url, prefix string) {
	t.Helper()
	if err := connect(t, url).Set(context.Background(), prefix+":{+format}:readable", 99, 0).Err(); err != nil {
		t.Fatal(err)
	}
}

// damage makes the row that was written last undecodable.
func damage(t testing.TB, url, prefix, what, tenant, id string) {
	t.Helper()
	client := connect(t, url)
	ctx := context.Background()
	key := func(letter string) string { return prefix + ":{" + tenant + "/" + id + "}:" + letter }
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("damage %s: %v", what, err)
		}
	}
	hash := func(letter, field string) { check(client.HSet(ctx, key(letter), field, "{").Err()) }
	switch what {
	case storetest.RowSession:
		hash("d", "doc")
	case storetest.RowMessage:
		check(client.LSet(ctx, key("m"), -1, "{").Err())
	case storetest.RowRun:
		hash("r", "d"+client.HGet(ctx, key("h"), "turn").Val())
	case storetest.RowCheckpoint:
		check(client.LSet(ctx, key("p"), -1, "{").Err())
	case storetest.RowCall:
		hash("t", latest(t, client, key("t"))+"\x00d")
	case storetest.RowPending:
		hash("w", latest(t, client, key("w"))+"\x00d")
	case storetest.RowChild:
		hash("f", latest(t, client, key("f"))+"\x00d")
	case storetest.RowBlob:
		for field := range client.HGetAll(ctx, key("B")).Val() {
			if digits, found := strings.CutPrefix(field, "sha256:"); found {
				check(client.HSet(ctx, prefix+":{+blob/"+tenant+"/"+digits+"}:P", "1", "{").Err())
			}
		}
	case storetest.RowChunk:
		// Entries of a stream never change, so it is written again.
		entries, err := client.XRange(ctx, key("X"), "-", "+").Result()
		check(err)
		check(client.Del(ctx, key("X")).Err())
		for i, e := range entries {
			body := e.Values["c"]
			if i == len(entries)-1 {
				body = "{"
			}
			check(client.XAdd(ctx, &goredis.XAddArgs{Stream: key("X"), ID: e.ID, Values: []any{
				"p", e.Values["p"], "e", e.Values["e"], "n", e.Values["n"], "t", e.Values["t"], "c", body,
			}}).Err())
		}
	default:
		t.Fatalf("rows of the kind %s are unknown", what)
	}
}

// latest returns the row of a hash with the highest number.
func latest(t testing.TB, client goredis.UniversalClient, key string) string {
	t.Helper()
	fields, err := client.HGetAll(context.Background(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	var row, number string
	for field, value := range fields {
		if n := len(field) - 2; n > 0 && field[n:] == "\x00n" && (row == "" || len(value) > len(number) || value > number) {
			row, number = field[:n], value
		}
	}
	if row == "" {
		t.Fatalf("%s has no rows", key)
	}
	return row
}

// connect returns a client of the server beside the backend's.
func connect(t testing.TB, url string) goredis.UniversalClient {
	t.Helper()
	options, err := goredis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	var client goredis.UniversalClient = goredis.NewClient(options)
	if info := client.Info(context.Background(), "cluster").Val(); len(info) > 0 && contains(info, "cluster_enabled:1") {
		_ = client.Close()
		client = goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{options.Addr}})
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func contains(s, part string) bool {
	for i := range len(s) - len(part) + 1 {
		if s[i:i+len(part)] == part {
			return true
		}
	}
	return false
}
