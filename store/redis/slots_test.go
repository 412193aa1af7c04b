package redis_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/redis"
	"github.com/helixagents/helix/stream"
)

// keysOf lists all keys of a prefix, on all nodes.
func keysOf(t *testing.T, client goredis.UniversalClient, prefix string) []string {
	t.Helper()
	ctx := context.Background()
	var out []string
	scan := func(ctx context.Context, node *goredis.Client) error {
		iter := node.Scan(ctx, 0, prefix+":*", 1000).Iterator()
		for iter.Next(ctx) {
			out = append(out, iter.Val())
		}
		return iter.Err()
	}
	var err error
	switch c := client.(type) {
	case *goredis.ClusterClient:
		for _, address := range nodesOf(t, c) {
			node := goredis.NewClient(&goredis.Options{Addr: address})
			t.Cleanup(func() { _ = node.Close() })
			if err = scan(ctx, node); err != nil {
				break
			}
		}
	case *goredis.Client:
		err = scan(ctx, c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func nodesOf(t *testing.T, c *goredis.ClusterClient) (addresses []string) {
	t.Helper()
	var mu sync.Mutex
	err := c.ForEachMaster(context.Background(), func(_ context.Context, node *goredis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		addresses = append(addresses, node.Options().Addr)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return addresses
}

// crowded returns a session with something under each of its keys.
func crowded(t *testing.T, b *redis.Backend, tenant, id string) *turn {
	t.Helper()
	ctx := context.Background()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s, m := b.Sessions().Tenant(tenant), b.Streams().Tenant(tenant)
	run := newTurn(t, s, id)
	ask := session.Pending{CallID: "p1", Tool: "ask", Kind: session.PendingClientTool}
	done := ask
	done.CallID, done.State = "p2", session.PendingConsumed
	doc := session.CustomState{}
	doc.Set("k", []byte(`1`))
	run.commit(session.Change{
		Messages: []session.Message{session.UserText("hello"), {ID: "m1", Role: session.RoleAssistant, Parts: []session.Part{session.Text("x")}}},
		State:    &doc, Calls: []session.Call{{MessageID: "m1", ID: "c1", Tool: "t"}}, Pending: []session.Pending{ask, done},
		Own: []session.Ownership{{CallID: "p1", SessionID: id}}, Children: []session.ChildRef{{SessionID: "kid", Agent: "a", Awaited: true}},
		Checkpoint: &session.NewCheckpoint{ID: "cp1"}, Wake: &session.Wake{SessionID: id, ChildID: "kid"},
		Tasks: []session.Task{{ID: "task", Kind: "work", Agent: "a"}},
	})
	run.commit(session.Change{Writes: session.Writes{Ops: []session.Op{{Kind: session.OpReplace, Key: "k", Value: []byte(`2`)}}}})
	check(s.Send(ctx, id, session.InboxEntry{ID: "e1", Kind: "note"}))
	check(second(b.Blobs().Tenant(tenant).Put(ctx, &blob.Put{SessionID: id, Data: []byte("blob")})))
	_, err := m.Reactivate(ctx, id, run.by())
	check(err)
	check(second(m.Append(ctx, id, stream.Batch{Producer: run.by(), First: 1, Chunks: []stream.Chunk{{Kind: stream.TextDelta, Delta: "x"}}})))
	return run
}

func TestOneSlotPerSession(t *testing.T) {
	t.Parallel()
	url, prefix := cluster(t), newPrefix()
	b, client := open(t, redis.Config{URL: url, Prefix: prefix}), connect(t, url)
	// Names that would break a hash tag if they were not escaped.
	for _, tenant := range []string{"plain", "a}b", "{x}", "a/b", "é {", "default"} {
		crowded(t, b, tenant, "x/y:z@1")
	}
	ctx := context.Background()
	slots := map[string]map[int64]bool{}
	letters := map[string]bool{}
	for _, key := range keysOf(t, client, prefix) {
		tag := key[strings.Index(key, "{") : strings.Index(key, "}")+1]
		if strings.HasPrefix(tag, "{+") {
			continue // an index
		}
		if slots[tag] == nil {
			slots[tag] = map[int64]bool{}
		}
		slots[tag][client.ClusterKeySlot(ctx, key).Val()] = true
		letter := key[strings.LastIndex(key, ":")+1:]
		if len(letter) != 1 || strings.IndexByte(redis.SessionLetters, letter[0]) < 0 {
			t.Errorf("the key %s is not declared", key)
		}
		letters[letter] = true
	}
	if len(slots) != 6 {
		t.Errorf("6 sessions have %d tags: %v", len(slots), slots)
	}
	for tag, in := range slots {
		if len(in) != 1 {
			t.Errorf("the keys of %s are in %d slots", tag, len(in))
		}
	}
	// Undone checkpoints and the outbox are empty here.
	if want := len(redis.SessionLetters) - 2; len(letters) != want {
		t.Errorf("the sessions have keys of %d letters, not %d", len(letters), want)
	}
}

func TestDeleteLeavesNothing(t *testing.T) {
	t.Parallel()
	url, prefix := single(t), newPrefix()
	b, client := open(t, redis.Config{URL: url, Prefix: prefix}), connect(t, url)
	crowded(t, b, session.DefaultTenant, "a")
	if _, err := b.Sessions().Delete(context.Background(), "a"); err != nil {
		t.Fatal(err)
	}
	for _, key := range keysOf(t, client, prefix) {
		if !strings.Contains(key, "{+") {
			t.Errorf("%s is left", key)
		}
	}
}
