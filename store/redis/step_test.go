package redis_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/redis"
	"github.com/helixagents/helix/store/storetest"
)

// An ordinary step has its own script, which must do what the general one does,
// and refuse what it refuses.
func TestStepIsACommitLikeAnyOther(t *testing.T) {
	t.Parallel()
	ctx, url, clock := context.Background(), single(t), storetest.NewClock()
	client := connect(t, url)
	prefixes := []string{newPrefix(), newPrefix()}
	var runs []*turn
	var commits []func(context.Context, *session.Commit) (*session.Committed, error)
	for i, prefix := range prefixes {
		b := open(t, redis.Config{URL: url, Prefix: prefix, Clock: clock.Now})
		runs = append(runs, newTurn(t, b.Sessions(), "a"))
		commits = append(commits, b.Sessions().Commit)
		if i == 1 {
			commits[1] = b.CommitGenerally
		}
	}
	for i, change := range steps() {
		clock.Advance(time.Second)
		var told []string
		for j, run := range runs {
			out, err := commits[j](ctx, run.request(change))
			again, errAgain := commits[j](ctx, run.request(change))
			answer := fmt.Sprintf("%+v %v %+v %v", out, err, again, errAgain)
			told = append(told, strings.ReplaceAll(answer, fmt.Sprint(run.fence.Epoch), "epoch"))
			if err == nil {
				run.n, run.version = run.n+1, out.Version
			}
		}
		if told[0] != told[1] {
			t.Errorf("step %d returns\n%s\nand generally\n%s", i, told[0], told[1])
		}
		if a, b := contents(t, client, prefixes[0]), contents(t, client, prefixes[1]); a != b {
			t.Fatalf("step %d leaves\n%s\nand generally\n%s", i, a, b)
		}
	}
}

// steps are changes of which some are refused.
func steps() []session.Change {
	reply := func(id string, calls ...string) session.Message {
		m := session.Message{ID: id, Role: session.RoleAssistant, Parts: []session.Part{session.Text("x")}}
		for _, call := range calls {
			m.Parts = append(m.Parts, session.Part{Kind: session.PartToolCall, CallID: call, Tool: "t", Input: json.RawMessage(`{ }`)})
		}
		return m
	}
	write := func(kind session.OpKind, key, value string) session.Op {
		if kind == session.OpAppend {
			return session.Op{Kind: kind, Key: key, Items: []json.RawMessage{json.RawMessage(value)}}
		}
		return session.Op{Kind: kind, Key: key, Value: json.RawMessage(value)}
	}
	result := session.ToolResult(session.Part{CallID: "c2", Tool: "t"}, json.RawMessage(`1`))
	open, settled := session.Call{MessageID: "m1", ID: "c1", Tool: "t"}, session.Call{MessageID: "m1", ID: "c2", Tool: "t"}
	settled.Status, settled.Result, settled.Index = session.CallSettled, &result, 1
	settled.Writes.Ops = []session.Op{write(session.OpReplace, "w", `1`)}
	return []session.Change{
		{},
		{Messages: []session.Message{session.UserText("without an id"), reply("m1", "c1", "c2")}, StepCount: new(1)},
		{Messages: []session.Message{reply("m1")}},
		{Messages: []session.Message{reply("m2"), reply("m2")}},
		{Calls: []session.Call{open, settled}},
		{Calls: []session.Call{open}, Run: &session.RunChange{CompletionReason: session.ReasonReply, Usage: session.Usage{InputTokens: 1 << 40}}},
		{Promote: &session.Promotion{MessageID: "m1", Results: []session.Promoted{{CallID: "c1"}}}},
		{
			Promote:    &session.Promotion{MessageID: "m1", Results: []session.Promoted{{CallID: "c2"}, {CallID: "c1", Message: new(reply("r1"))}}},
			Checkpoint: &session.NewCheckpoint{ID: "cp1", Step: 2, Source: session.FromStep, StreamSequence: 7},
			Run:        &session.RunChange{Usage: session.Usage{InputTokens: 1, ToolCalls: 3}},
		},
		{Checkpoint: &session.NewCheckpoint{ID: "cp1"}},
		{Writes: session.Writes{Ops: []session.Op{write(session.OpReplace, "v", `1`), write(session.OpAppend, "l", `1`)}}},
		{Writes: session.Writes{Ops: []session.Op{write(session.OpAppend, "v", `1`)}}},
		{Writes: session.Writes{Ops: []session.Op{{Kind: session.OpDelete, Key: "v"}, write(session.OpAppend, "l", `{"a": 1}`)}}},
		{Writes: session.Writes{Ops: []session.Op{write(session.OpAppend, "v", `1`)}}, Checkpoint: &session.NewCheckpoint{ID: "cp2"}},
		{
			Messages: []session.Message{reply("m3")}, StepCount: new(3), Checkpoint: &session.NewCheckpoint{ID: "cp3", Step: 3},
			Writes: session.Writes{Ops: []session.Op{write(session.OpReplace, "v", `1`), write(session.OpReplace, "l", `1`)}},
		},
		{Messages: []session.Message{reply("m4")}, Checkpoint: &session.NewCheckpoint{ID: "cp3"}},
		{Messages: []session.Message{reply("m3")}, Checkpoint: &session.NewCheckpoint{ID: "cp4"}},
		{Messages: []session.Message{session.UserText("no id")}, Checkpoint: &session.NewCheckpoint{ID: "cp4"}},
		{Messages: []session.Message{reply("m4")}, Checkpoint: &session.NewCheckpoint{ID: "cp5"}, Run: &session.RunChange{CompletionReason: session.ReasonReply}},
	}
}

// contents returns the contents of the keys of a prefix, without what differs
// between processes and sessions.
func contents(t *testing.T, client goredis.UniversalClient, prefix string) string {
	t.Helper()
	ctx := context.Background()
	var b strings.Builder
	for letter := range strings.SplitSeq(redis.SessionLetters, "") {
		key := prefix + ":{default/a}:" + letter
		switch kind := client.Type(ctx, key).Val(); kind {
		case "hash":
			fields := client.HGetAll(ctx, key).Val()
			delete(fields, "born")
			delete(fields, "tok")
			if epoch := fields["epoch"]; epoch != "" {
				delete(fields, "first")
				fields["epoch"], fields["pack"] = "epoch", strings.Replace(fields["pack"], epoch, "epoch", 1)
			}
			fmt.Fprintf(&b, "%s: %q\n", letter, fields)
		case "list":
			fmt.Fprintf(&b, "%s: %q\n", letter, client.LRange(ctx, key, 0, -1).Val())
		case "stream":
			fmt.Fprintf(&b, "%s: %v\n", letter, client.XRange(ctx, key, "-", "+").Val())
		}
	}
	return b.String()
}

func TestSentTwice(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := open(t, redis.Config{URL: single(t), Prefix: newPrefix()})
	s := b.Sessions()
	if err := session.Create(ctx, s, &session.State{ID: "a", Agent: "a", Status: session.Active}); err != nil {
		t.Fatal(err)
	}
	first, second, err := b.ChangeTwice(ctx, "a", &session.Change{Messages: []session.Message{session.UserText("once")}})
	if err != nil {
		t.Fatal(err)
	}
	if first.Version != 2 || second.Version != 2 || second.MessageCount != 1 {
		t.Errorf("it returned %+v, then %+v", first, second)
	}
	if n, err := session.MessageCount(ctx, s, "a"); err != nil || n != 1 {
		t.Errorf("the transcript has %d messages, %v", n, err)
	}
}

// The commit that ends a run returns the stop request that it has consumed, even
// when it is repeated; the next run does not see it.
func TestConsumedStopIsReturnedAgain(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := open(t, redis.Config{URL: single(t), Prefix: newPrefix()})
	s := b.Sessions()
	run := newTurn(t, s, "a")
	if _, err := s.RequestStop(ctx, "a", session.Stop{RunID: "run-1", Kind: session.StopInterrupt, Reason: "why"}); err != nil {
		t.Fatal(err)
	}
	commit := run.request(session.Change{Outcome: &session.Outcome{Status: session.RunSuspendedPartial}})
	var told []string
	for range 2 {
		out, err := s.Commit(ctx, commit)
		if err != nil || out.Stop == nil {
			t.Fatalf("Commit: %+v, %v", out, err)
		}
		told = append(told, fmt.Sprintf("%+v", *out.Stop))
	}
	if told[0] != told[1] || !strings.Contains(told[0], "why") {
		t.Errorf("it returned %s, then %s", told[0], told[1])
	}
	if stop, err := s.StopRequest(ctx, "a", "run-1"); err != nil || stop != nil {
		t.Errorf("the ended run still has a stop request: %+v, %v", stop, err)
	}
	started, err := s.StartRun(ctx, &session.StartRun{
		SessionID: "a", ExpectVersion: run.version + 1, ExpectRun: "run-1", Owner: "me", TTL: time.Hour,
		Run: session.Run{ID: "run-2", Kind: session.RunResume, Runtime: "test"},
	})
	if err != nil {
		t.Fatal(err)
	}
	end := session.Commit{
		SessionID: "a", RunID: "run-2", Key: "end", Version: started.Version, Fence: started.Lease.Fence(),
		Change: session.Change{Outcome: &session.Outcome{Status: session.RunCompleted}},
	}
	for range 2 {
		if out, err := s.Commit(ctx, &end); err != nil || out.Stop != nil {
			t.Errorf("the next run's commit: %+v, %v", out, err)
		}
	}
}
