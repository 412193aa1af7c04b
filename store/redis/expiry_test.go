package redis_test

import (
	"context"
	"errors"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/redis"
	"github.com/helixagents/helix/stream"
)

// lives is a store whose sessions have a time to live, with helpers for tests.
type lives struct {
	*testing.T
	b      *redis.Backend
	s      session.Store
	client *goredis.Client
	prefix string
}

func newLives(t *testing.T, ttl time.Duration) *lives {
	t.Helper()
	client := newClient(t)
	prefix := newPrefix()
	b := open(t, redis.Config{URL: single(t), Prefix: prefix, SessionTTL: ttl}.WithSettling(time.Microsecond))
	return &lives{t, b, b.Sessions(), client, prefix}
}

func (l *lives) check(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// run begins a run of a session, which is created if it does not exist.
func (l *lives) run(id, parent, root, runID string) *ride {
	l.Helper()
	start := &session.StartRun{SessionID: id, Run: session.Run{ID: runID}, Owner: "me", TTL: time.Hour}
	state, err := l.s.Load(context.Background(), id)
	switch {
	case errors.Is(err, session.ErrNotFound):
		start.Create = &session.State{ID: id, Agent: "a", Status: session.Active, UserID: "ann", ParentID: parent, RootID: root, StreamID: id}
	case err != nil:
		l.Fatal(err)
	default:
		start.ExpectVersion, start.ExpectRun = state.Version, state.CurrentRunID
	}
	started, err := l.s.StartRun(context.Background(), start)
	l.check(err)
	return &ride{id, runID, started.Lease.Fence(), started.Version}
}

// ride is a run in progress.
type ride struct {
	id, run string
	fence   session.Fence
	version int64
}

func (l *lives) commit(r *ride, change session.Change) {
	l.Helper()
	l.check(second(l.s.Commit(context.Background(), &session.Commit{
		SessionID: r.id, RunID: r.run, Key: r.run, Version: r.version, Fence: r.fence, Change: change,
	})))
}

// end ends a run and releases its lease.
func (l *lives) end(r *ride, status session.RunStatus) {
	l.Helper()
	change := session.Change{Messages: []session.Message{session.UserText("x")}, Outcome: &session.Outcome{Status: status}}
	if !status.Suspended() {
		change.Status = status.SessionStatus()
	} else {
		change.Pending = []session.Pending{{CallID: "p1", Tool: "ask", Kind: session.PendingClientTool}}
	}
	l.commit(r, change)
	l.check(l.s.CloseRun(context.Background(), r.id, r.fence, true))
}

// expire requires that every key of the sessions has a time to live, or that none
// has.
func (l *lives) expire(when string, want bool, ids ...string) {
	l.Helper()
	for _, id := range ids {
		keys, err := l.client.Keys(context.Background(), l.prefix+":{"+session.DefaultTenant+"/"+id+"}:*").Result()
		l.check(err)
		if len(keys) == 0 {
			l.Errorf("%s: %s has no keys", when, id)
		}
		for _, key := range keys {
			left, err := l.client.PTTL(context.Background(), key).Result()
			l.check(err)
			if (left > 0) != want {
				l.Errorf("%s: %s has %s left", when, key, left)
			}
		}
	}
}

// TestSessionTTL requires that a conversation has a time to live exactly while
// none of its sessions runs or waits.
func TestSessionTTL(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLives(t, time.Hour)
	r := l.run("a", "", "", "run-1")
	by := stream.Producer{Session: "a", Epoch: r.fence.Epoch, RunID: "run-1"}
	l.check(second(l.b.Streams().Reactivate(ctx, "a", by)))
	l.check(second(l.b.Streams().Append(ctx, "a", stream.Batch{Producer: by, First: 1, Chunks: []stream.Chunk{{Kind: stream.TextDelta, Delta: "x"}}})))
	child := l.run("child", "a", "a", "run-1")
	l.expire("while it runs", false, "a", "child")
	l.end(child, session.RunCompleted)
	l.expire("while its caller runs", false, "a", "child")
	l.end(r, session.RunSuspendedClientTool)
	l.expire("while it waits", false, "a", "child")
	l.check(second(l.s.SetStatus(ctx, "a", session.StatusChange{Expect: []session.Status{session.Active}, To: session.Paused})))
	l.expire("while it is paused and will wait", false, "a", "child")
	l.check(second(l.s.SetStatus(ctx, "a", session.StatusChange{Expect: []session.Status{session.Paused}, To: session.Active})))
	l.check(second(l.s.Submit(ctx, "a", session.Submission{CallID: "p1", Response: session.Response{Kind: session.PendingClientTool, Result: []byte("1")}})))
	l.expire("while it waits to be resumed", false, "a", "child")
	r = l.run("a", "", "", "run-2")
	l.check(l.b.Streams().End(ctx, "a", by, stream.End{Status: stream.EndCompleted}))
	l.end(r, session.RunCompleted)
	l.expire("once it is done", true, "a", "child")

	l.check(l.s.Send(ctx, "a", session.InboxEntry{ID: "e1", Kind: "note"}))
	l.expire("once something was sent to it", true, "a", "child")
	l.check(second(session.Merge(ctx, l.s, "a", session.Writes{Ops: []session.Op{{Kind: session.OpReplace, Key: "k", Value: []byte("1")}}})))
	l.expire("once it was written to", true, "a", "child")
	r = l.run("a", "", "", "run-3")
	l.expireBut("once it runs again", "a", "child")
	l.end(r, session.RunInterrupted)
	l.expire("once it was interrupted", true, "a", "child")

	companion := l.run("companion", "a", "", "run-1") // which works on its own
	l.expireBut("while a companion runs", "a", "child", "companion")
	l.end(companion, session.RunSuspendedClientTool)
	l.expireBut("while a companion waits", "a", "child", "companion")
	companion = l.run("companion", "a", "", "run-2")
	l.end(companion, session.RunFailed)
	l.expire("once the companion has failed", true, "a", "child", "companion")

	l.check(second(l.s.SetStatus(ctx, "a", session.StatusChange{Expect: []session.Status{session.Interrupted}, To: session.Failed})))
	l.check(session.Create(ctx, l.s, &session.State{ID: "new", Agent: "a", Status: session.Active}))
	l.expire("one that has not run", true, "a", "new")

	r = l.run("owes", "", "", "run-1")
	l.commit(r, session.Change{Status: session.Completed, Outcome: &session.Outcome{Status: session.RunCompleted}})
	l.expire("while its stream is not closed", false, "owes")
	l.check(l.s.SettleClose(ctx, "owes", "run-1"))
	l.expire("once the close is settled", true, "owes")
}

// expireBut requires that no key has a time to live except the chunks of a stream
// that has ended, which have their own.
func (l *lives) expireBut(when string, ids ...string) {
	l.Helper()
	for _, id := range ids {
		_ = l.client.Persist(context.Background(), l.prefix+":{"+session.DefaultTenant+"/"+id+"}:X")
	}
	l.expire(when, false, ids...)
}

func TestSessionTTLOff(t *testing.T) {
	t.Parallel()
	l := newLives(t, 0)
	l.end(l.run("a", "", "", "run-1"), session.RunCompleted)
	l.expire("by default", false, "a")
	if _, err := redis.OpenConfig(redis.Config{URL: single(t), SessionTTL: -time.Second}); !errors.Is(err, session.ErrInvalid) {
		t.Errorf("a negative time to live is %v", err)
	}
}

// TestSessionsGo requires that an expired conversation has disappeared from
// everywhere.
func TestSessionsGo(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLives(t, 20*time.Millisecond)
	l.end(l.run("waits", "", "", "run-1"), session.RunSuspendedClientTool)
	l.end(l.run("a", "", "", "run-1"), session.RunCompleted)
	eventually.Poll(t, "the session expires", func() bool {
		there, err := l.s.Exists(ctx, "a")
		l.check(err)
		return !there
	})
	page, err := l.s.List(ctx, session.Query{})
	if err != nil || len(page.Items) != 1 || page.Items[0].ID != "waits" {
		t.Errorf("%+v is listed, %v", page.Items, err)
	}
	l.end(l.run("a", "", "", "run-1"), session.RunSuspendedClientTool) // another with the same id
	l.expire("another of its id", false, "a", "waits")
}
