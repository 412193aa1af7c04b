package redis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/redis"
	"github.com/helixagents/helix/stream"
)

// dump returns the complete contents of a server.
func dump(t *testing.T, client *goredis.Client) string {
	t.Helper()
	ctx := context.Background()
	var b strings.Builder
	keys := client.Keys(ctx, "*").Val()
	slices.Sort(keys) // their order changes while the server's table of keys grows
	for _, key := range keys {
		fmt.Fprintf(&b, "%s %x\n", key, client.Dump(ctx, key).Val())
	}
	return b.String()
}

func TestMemoryFull(t *testing.T) {
	t.Parallel()
	address := start(t)
	client := admin(t, address)
	b := open(t, redis.Config{URL: urlOf(address)})
	run := crowded(t, b, session.DefaultTenant, "a")
	ctx := context.Background()
	if err := client.ConfigSet(ctx, "maxmemory", "1mb").Err(); err != nil {
		t.Fatal(err)
	}
	was := dump(t, client)
	for what, change := range map[string]session.Change{
		"step":   {Messages: []session.Message{session.UserText("x")}, StepCount: new(3)},
		"last":   {Messages: []session.Message{session.UserText("x")}, Status: session.Completed, Outcome: &session.Outcome{Status: session.RunCompleted}},
		"rewind": {KeepMessages: new(0)},
	} {
		_, err := b.Sessions().Commit(ctx, run.request(change))
		if !errors.Is(err, session.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), "memory is full") {
			t.Errorf("%s: got %v", what, err)
		}
	}
	_, err := b.Streams().Append(ctx, "a", stream.Batch{Producer: run.by(), First: 2, Chunks: []stream.Chunk{{Kind: stream.TextDelta}}})
	if !errors.Is(err, session.ErrUnavailable) {
		t.Errorf("append: got %v", err)
	}
	if err := b.Ready(ctx); !errors.Is(err, session.ErrUnavailable) || !strings.Contains(err.Error(), "memory is full") {
		t.Errorf("a server whose memory is full: %v", err)
	}
	if _, err := b.Sessions().Load(ctx, "a"); err != nil {
		t.Errorf("existing data cannot be read: %v", err)
	}
	if is := dump(t, client); is != was {
		t.Errorf("something was written:\n%s\nwas:\n%s", is, was)
	}
	if err := client.ConfigSet(ctx, "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if err := b.Ready(ctx); err != nil {
		t.Errorf("a server that has room again: %v", err)
	}
	run.commit(session.Change{Messages: []session.Message{session.UserText("x")}})
}

func TestReplicas(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	primary := start(t, "repl-diskless-sync-delay=0")
	alone := open(t, redis.Config{URL: urlOf(primary), WaitReplicas: 1, WaitTimeout: 50 * time.Millisecond})
	err := session.Create(ctx, alone.Sessions(), &session.State{ID: "a", Agent: "a", Status: session.Active})
	if !errors.Is(err, session.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), "replicas") {
		t.Errorf("a write without a replica: got %v", err)
	}
	follower := startReplica(t, primary)
	replica := admin(t, follower.Addr())
	b := open(t, redis.Config{URL: urlOf(primary), WaitReplicas: 1, WaitTimeout: 10 * time.Second, Prefix: "copied"})
	run := newTurn(t, b.Sessions(), "a")
	for i := range 10 {
		run.commit(session.Change{StepCount: &i})
		got := replica.HGet(ctx, "copied:{default/a}:h", "v").Val()
		if got != fmt.Sprint(run.version) {
			t.Fatalf("the replica has version %s after the commit of %d", got, run.version)
		}
	}

	// A repeated commit writes nothing, but replicas are waited for nevertheless.
	plain := open(t, redis.Config{URL: urlOf(primary), Prefix: "copied"})
	hasty := open(t, redis.Config{URL: urlOf(primary), WaitReplicas: 1, WaitTimeout: 50 * time.Millisecond, Prefix: "copied"})
	follower.Pause()
	commit := run.request(session.Change{StepCount: new(11)})
	if _, err := plain.Sessions().Commit(ctx, commit); err != nil {
		t.Fatal(err)
	}
	if _, err := hasty.Sessions().Commit(ctx, commit); !errors.Is(err, session.ErrUnavailable) {
		t.Errorf("a commit that the replica does not have is answered: %v", err)
	}
	follower.Resume()
	done, err := b.Sessions().Commit(ctx, commit)
	if err != nil || !done.Repeated {
		t.Fatalf("the commit made again: %+v, %v", done, err)
	}
	if got := replica.HGet(ctx, "copied:{default/a}:h", "v").Val(); got != fmt.Sprint(done.Version) {
		t.Errorf("the replica has version %s, not %d", got, done.Version)
	}
}

// A server that cannot save refuses writes.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	ctx, address := context.Background(), start(t, "save=3600 1000000")
	client := admin(t, address)
	b := open(t, redis.Config{URL: urlOf(address)})
	run := crowded(t, b, session.DefaultTenant, "a")
	dir := client.ConfigGet(ctx, "dir").Val()["dir"]
	block := filepath.Join(dir, "dump.rdb")
	if err := os.Mkdir(block, 0o700); err != nil { // which no file can replace
		t.Skip("the server's directory is not accessible: ", err)
	}
	t.Cleanup(func() { _ = os.Remove(block) }) // otherwise the server would not stop
	if err := client.BgSave(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	eventually.Poll(t, "the snapshot fails", func() bool {
		return strings.Contains(client.Info(ctx, "persistence").Val(), "rdb_last_bgsave_status:err")
	})
	was := dump(t, client)
	change := session.Change{Messages: []session.Message{session.UserText("x")}}
	for what, do := range map[string]func() error{
		"commit":   func() error { return second(b.Sessions().Commit(ctx, run.request(change))) },
		"together": func() error { _, _, err := b.Commit(ctx, run.with(change, 2, "x")); return err },
	} {
		if err := do(); !errors.Is(err, session.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), "cannot write to its disk") {
			t.Errorf("%s: got %v", what, err)
		}
	}
	if err := b.Ready(ctx); !errors.Is(err, session.ErrUnavailable) || !strings.Contains(err.Error(), "cannot write to its disk") {
		t.Errorf("a server that cannot save: %v", err)
	}
	if is := dump(t, client); is != was {
		t.Errorf("something was written:\n%s\nwas:\n%s", is, was)
	}
	if _, err := b.Sessions().Load(ctx, "a"); err != nil {
		t.Errorf("existing data cannot be read: %v", err)
	}
	if err := client.ConfigSet(ctx, "stop-writes-on-bgsave-error", "no").Err(); err != nil {
		t.Fatal(err)
	}
	run.commit(change)
}

// TestReady requires that a server that has become a replica, one that lacks
// replicas and one that has stopped are not ready, and that one that has lost its
// scripts is ready.
func TestReady(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := testserver.StartRedis(t)
	client := admin(t, server.Addr())
	b := open(t, redis.Config{URL: urlOf(server.Addr())})
	b.AlwaysWrite()
	ready := func(what, complaint string) {
		t.Helper()
		err := b.Ready(ctx)
		switch {
		case complaint == "" && err != nil:
			t.Errorf("%s: %v", what, err)
		case complaint != "" && (!errors.Is(err, session.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), complaint)):
			t.Errorf("%s: got %v, want it to say %q", what, err, complaint)
		}
	}
	set := func(name, value string) {
		t.Helper()
		if err := client.ConfigSet(ctx, name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	ready("a server that works", "")
	if err := client.ScriptFlush(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	ready("a server that has forgotten its scripts", "")
	set("min-replicas-to-write", "1")
	ready("a server that lacks replicas", "without enough replicas")
	set("min-replicas-to-write", "0")
	ready("a server that needs no replicas", "")
	host, port, err := net.SplitHostPort(freeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := client.ReplicaOf(ctx, host, port).Err(); err != nil {
		t.Fatal(err)
	}
	ready("a server that has become a replica", "read-only replica")
	if err := client.ReplicaOf(ctx, "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	ready("a server that is a primary again", "")
	server.Kill()
	ready("a server that is gone", "cannot be reached")
}

func TestScriptsForgotten(t *testing.T) {
	t.Parallel()
	address := start(t)
	b := open(t, redis.Config{URL: urlOf(address)})
	forget := func() {
		t.Helper()
		if err := admin(t, address).ScriptFlush(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	forget()
	run := newTurn(t, b.Sessions(), "a")
	forget()
	run.commit(session.Change{StepCount: new(1)})
	forget()
	run.commit(session.Change{Status: session.Completed, Outcome: &session.Outcome{Status: session.RunCompleted}})
	page, err := b.Sessions().List(context.Background(), session.Query{Statuses: []session.Status{session.Completed}})
	if err != nil || len(page.Items) != 1 {
		t.Errorf("the session is not listed: %v, %v", page.Items, err)
	}
	due, err := b.Sessions().PendingCloses(context.Background(), session.SweepRequest{})
	if err != nil || len(due) != 1 {
		t.Errorf("the close is not listed: %v, %v", due, err)
	}
}

func TestStreamExpires(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := open(t, redis.Config{URL: single(t), Prefix: newPrefix(), StreamTTL: 20 * time.Millisecond})
	m, by := b.Streams(), stream.Producer{Session: "a", Epoch: 1}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	appendTo := func(first int64) int64 {
		t.Helper()
		out, err := m.Append(ctx, "a", stream.Batch{Producer: by, First: first, Chunks: []stream.Chunk{{Kind: stream.TextDelta, Delta: "x"}}})
		check(err)
		last, err := out.Wait(ctx)
		check(err)
		return last
	}
	check(second(m.Reactivate(ctx, "a", by)))
	appendTo(1)
	appendTo(2)
	check(m.End(ctx, "a", by, stream.End{Status: stream.EndCompleted}))
	eventually.Poll(t, "the chunks expire", func() bool {
		info, err := m.Info(ctx, "a")
		check(err)
		if info.Floor == 2 && info.Bytes != 0 {
			t.Errorf("a stream whose chunks have expired has %d bytes", info.Bytes)
		}
		return info.Floor == 2
	})
	for item, err := range m.Read(ctx, "a", 0, false) {
		check(err)
		if item.Frame != stream.FrameTruncated || item.Floor != 2 {
			t.Errorf("a late reader got %+v", item)
		}
	}
	by.Epoch = 2
	info, err := m.Reactivate(ctx, "a", by)
	check(err)
	if info.Last != 2 || info.Floor != 2 || info.Bytes != 0 {
		t.Errorf("the stream continues as %+v", info)
	}
	if last := appendTo(1); last != 3 {
		t.Errorf("the next chunk has number %d", last)
	}
	items, err := m.Chunks(ctx, "a", 2, 10)
	if err != nil || len(items) != 1 {
		t.Errorf("the chunks after are %v, %v", items, err)
	}
}
