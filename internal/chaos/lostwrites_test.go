package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/backend"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testbackend"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/dbos"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/runtime/temporal"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/storetest"
)

const (
	desks      = 4 // sessions of each trial
	lostOfEach = 2 // writes of one kind to one session whose reply is lost
)

// lostWriteStores are the kinds of stores of TestLostWrites, each with what opens the address of one
// for a test.
var lostWriteStores = map[string]func(t *testing.T) string{
	"sqlite":   func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "helix.db") },
	"postgres": sharedStore("postgres"),
	"redis":    sharedStore("redis"),
}

// sharedStore returns what makes a store of a kind on the server that all tests share.
func sharedStore(name string) func(t *testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		for _, kind := range testbackend.Shared() {
			if kind.Name == name {
				return kind.Address(t)
			}
		}
		t.Fatalf("there is no %s", name)
		return ""
	}
}

// alwaysWritten are the writes that every trial's runs make.
var alwaysWritten = []string{"StartRun", "Commit", "CloseRun", "Claim", "Settle", "Submit", "Append", "UpdateChild", "RenewLeases"}

// TestLostWrites loses the replies to one kind of write: each was done, and who made it cannot know.
// Runs with calls that may not run again, people who answer, a sub-agent and a companion complete; each
// call is carried out once, and each model asked once. One trial runs with each commit; a long run tries every kind of
// write on every store and runtime, and prints a table.
func TestLostWrites(t *testing.T) {
	t.Parallel()
	type trial struct{ store, runtime, write string }
	var trials []trial
	for _, at := range slices.Sorted(maps.Keys(lostWriteStores)) {
		for _, runtime := range []string{local.Name, dbos.Name, temporal.Name} {
			writes := alwaysWritten
			if testshare.Soak() {
				writes = storetest.Writes()
			}
			for _, name := range writes {
				trials = append(trials, trial{at, runtime, name})
			}
		}
	}
	var mu sync.Mutex // guards rows
	rows := map[string][]string{}
	t.Run("trials", func(t *testing.T) {
		for i, x := range trials {
			if !testshare.HasTurn(t, i, len(trials)) {
				continue
			}
			t.Run(x.store+"/"+x.runtime+"/"+x.write, func(t *testing.T) {
				t.Parallel()
				sum, lost := tryLostWrite(t, x.store, x.runtime, x.write)
				if sum != (damage{}) {
					t.Errorf("%+v", sum)
				}
				cell := fmt.Sprintf("%d: %d, %d, %d, %d", lost, sum.cancelled, sum.unknown, sum.askedTwice, sum.notCompleted)
				if lost == 0 {
					cell = "-"
				}
				mu.Lock()
				defer mu.Unlock()
				rows[x.store+" "+x.runtime] = append(rows[x.store+" "+x.runtime], x.write+" "+cell)
			})
		}
	})
	t.Logf("replies that were lost: calls cancelled, told unknown, models asked twice, runs not completed\n%s", tableOf(t, rows))
}

// tableOf prints rows of "name cell" with a column for each key.
func tableOf(t *testing.T, columns map[string][]string) string {
	t.Helper()
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	names := slices.Sorted(maps.Keys(columns))
	fmt.Fprintln(w, "reply of\t"+strings.Join(names, "\t"))
	for _, write := range storetest.Writes() {
		row := make([]string, len(names))
		for i, name := range names {
			for _, cell := range columns[name] {
				if of, text, _ := strings.Cut(cell, " "); of == write {
					row[i] = text
				}
			}
		}
		if strings.Trim(strings.Join(row, ""), "-") == "" {
			row = []string{"these runs make no such write"}
		}
		fmt.Fprintln(w, write+"\t"+strings.Join(row, "\t"))
	}
	if err := w.Flush(); err != nil {
		t.Error(err)
	}
	return out.String()
}

// losing loses the replies to the first writes of one kind to each session, and of those that
// concern no session every other one.
type losing struct {
	write string

	mu   sync.Mutex // guards what follows
	lost map[string]int
	sum  int
}

func (l *losing) decide(op storetest.Op) storetest.When {
	if op.Name != l.write {
		return storetest.Pass
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.lost[op.ID]; op.ID != "" && n >= lostOfEach || op.ID == "" && op.Nth%2 == 0 {
		return storetest.Pass
	}
	l.lost[op.ID]++
	l.sum++
	return storetest.After
}

// lostWrites is a process that loses replies, and what its agents did.
type lostWrites struct {
	t     *testing.T
	rt    helix.Runtime
	agent *helix.Agent
	log   journal

	mu        sync.Mutex     // guards what follows
	calls     map[string]int // how often each call was carried out, by idempotency key
	asked     map[string]int // how often a model was asked, by effect
	cancelled int
}

// tryLostWrite returns what went wrong, and how many replies were lost.
func tryLostWrite(t *testing.T, store, runtime, write string) (sum damage, lost int) {
	t.Helper()
	address := lostWriteStores[store](t)
	db, err := backend.OpenWithin(eventually.Patience, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	faults, losing := storetest.NewFaults(db), &losing{write: write, lost: map[string]int{}}
	faults.Fail(losing.decide)
	o := &lostWrites{t: t, calls: map[string]int{}, asked: map[string]int{}}
	o.agent = o.newAgent()
	o.rt = o.start(runtime, helix.RuntimeOptions{
		Backend: faults, Agents: []*helix.Agent{o.agent}, Logger: slog.New(&o.log), Heartbeat: 50 * time.Millisecond, Sweep: 200 * time.Millisecond,
		RetryBackoff: time.Millisecond,
	})
	var working sync.WaitGroup
	ids := make([]string, desks)
	completed := make([]bool, desks)
	for i := range desks {
		ids[i] = fmt.Sprint("s-", i)
		working.Go(func() { completed[i] = o.drive(ids[i]) })
	}
	working.Wait()
	faults.Fail(nil)
	for i, id := range ids {
		if !completed[i] {
			sum.notCompleted++
		}
		eventually.Poll(t, "a task follows "+id, func() bool { return o.agent.Extensions[0].(*follower).hasFollowed(id) })
		for _, below := range o.tree(db.Sessions(), id) {
			sum.addSession(t, db, below)
			o.checkResults(db.Sessions(), below)
		}
	}
	sum.takenOver = 0 // a run whose start is not known to be done is
	o.mu.Lock()
	defer o.mu.Unlock()
	sum.cancelled = o.cancelled
	for key, n := range o.asked {
		if n > 1 {
			t.Logf("the model was asked %d times: %s", n, key)
			sum.askedTwice += n - 1
		}
	}
	for key, n := range o.calls {
		if n > 1 {
			t.Errorf("a call was carried out %d times: %s", n, key)
		}
	}
	if want := workOfRun * desks; len(o.calls) != want {
		t.Errorf("%d calls were carried out, want %d", len(o.calls), want)
	}
	losing.mu.Lock()
	defer losing.mu.Unlock()
	if losing.sum == 0 && slices.Contains(alwaysWritten, write) {
		t.Errorf("no reply of %s was lost", write)
	}
	if sum != (damage{}) || t.Failed() {
		t.Logf("%+v; the log ends with:\n%s", sum, o.log.tail(60))
	}
	return sum, losing.sum
}

// workOfRun is how many calls of tools a session's agents carry out.
const workOfRun = 8

// newAgent returns an agent whose replies call tools that may not run again, one of them after an
// approval and one with a question, a sub-agent with an approval, and a companion that works by
// itself. Tasks follow its runs.
func (o *lostWrites) newAgent() *helix.Agent {
	sign, look, quiz, file := o.tool("sign"), o.tool("look"), o.tool("quiz"), o.tool("file")
	sign.Approval, look.Approval, quiz.Asks = helix.RequireApproval, helix.RequireApproval, true
	model := func(steps ...scripted.Step) *scripted.Model { return scripted.New(steps...).ByPosition() }
	calls := func(names ...string) (parts []scripted.Part) {
		for _, name := range names {
			parts = append(parts, scripted.Calling(name, struct{}{}))
		}
		return parts
	}
	helper := &helix.Agent{Name: "helper", Tools: []helix.Tool{look}, Model: model(scripted.Call("look", struct{}{}), scripted.Text("Seen."))}
	buddy := &helix.Agent{Name: "buddy", Tools: []helix.Tool{o.tool("run")}, Model: model(scripted.Call("run", struct{}{}), scripted.Text("Fetched."))}
	other := &helix.Agent{Name: "other", Model: model(scripted.Text("Nothing."))} // a blocking one: so the agent has the tool to wait for results
	agent := &helix.Agent{
		Name: "clerk", Tools: []helix.Tool{sign, o.tool("pay"), quiz, file},
		SubAgents: []helix.SubAgent{{Agent: helper}}, Companions: []helix.Companion{{Agent: buddy, Mode: helix.NonBlocking}, {Agent: other}},
		Extensions: []helix.Extension{&follower{done: map[string]bool{}}},
		Model: model(
			scripted.Reply(append(calls("sign", "pay"), scripted.Calling("subagent__helper", map[string]string{"task": "t"}))...),
			scripted.Reply(append(calls("pay", "quiz"), scripted.Calling(helix.SpawnAgentTool, map[string]string{"agent": "buddy", "name": "bob", "initialMessage": "go"}))...),
			scripted.Reply(append(calls("file", "pay"), scripted.Calling(helix.WaitForResultTool, map[string]string{"name": "bob"}))...),
			scripted.Text("Done."),
		),
	}
	ask := func(_ context.Context, h *helix.HookContext, _ helix.BeforeLLMCallEvent) error {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.asked[h.SessionID+" "+h.Key]++
		return nil
	}
	for _, a := range []*helix.Agent{agent, helper, buddy} {
		a.Hooks.BeforeLLMCall = ask
	}
	return agent
}

// tool returns a tool that takes a moment, and counts what it has carried out.
func (o *lostWrites) tool(name string) helix.Tool {
	return helix.Tool{Name: name, Description: name, Execute: helix.Func(func(ctx context.Context, call *helix.Call, _ struct{}) (int, error) {
		if name == "quiz" && len(call.Answers()) == 0 {
			return 0, helix.Ask(helix.Question{Prompt: "How many?"})
		}
		o.mu.Lock()
		o.calls[call.SessionID+" "+call.Key+" "+call.ID]++
		o.mu.Unlock()
		if name == "file" {
			if _, err := call.PutBlob(ctx, []byte("a file of "+call.SessionID)); err != nil {
				return 0, err
			}
		}
		select {
		case <-time.After(100 * time.Millisecond): // waits: leases are renewed meanwhile
			return 1, nil
		case <-ctx.Done():
			o.mu.Lock()
			defer o.mu.Unlock()
			o.cancelled++
			return 0, ctx.Err()
		}
	})}
}

// follower has a task follow each run, and notes which were carried out.
type follower struct {
	mu   sync.Mutex
	done map[string]bool // by session; guarded by mu
}

func (f *follower) Name() string { return "follower" }

func (f *follower) Attach(context.Context, *helix.Turn) (*helix.Attachment, error) { return nil, nil }

func (f *follower) Finish(context.Context, *helix.Turn, *session.Outcome) ([]session.Task, error) {
	return []session.Task{{Kind: "follow"}}, nil
}

func (f *follower) TaskKinds() []string { return []string{"follow"} }

func (f *follower) HandleTask(_ context.Context, task *session.Task) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done[task.SessionID] = true
	return nil
}

// hasFollowed reports whether a task of a session was carried out.
func (f *follower) hasFollowed(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.done[id]
}

func (o *lostWrites) start(name string, opts helix.RuntimeOptions) (rt helix.Runtime) {
	t := o.t
	t.Helper()
	var err error
	switch name {
	case temporal.Name:
		c, dialErr := dialTemporal(testserver.Temporal(t))
		if dialErr != nil {
			t.Fatal(dialErr)
		}
		t.Cleanup(c.Close) // after the runtime
		rt, err = temporal.New(temporal.Config{RuntimeOptions: opts, Client: c, TaskQueue: fmt.Sprintf("lost-%016x", rand.Uint64())})
	case dbos.Name:
		rt, err = dbos.New(dbos.Config{RuntimeOptions: opts, DatabaseURL: testserver.Postgres(t), Schema: fmt.Sprintf("dbos_%016x", rand.Uint64())})
	default:
		rt, err = local.New(opts)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(); err != nil && !session.IsRetryable(err) {
			t.Error(err)
		}
	})
	return rt
}

// again calls do until it does not fail as something that may be tried again, as a client does.
func (o *lostWrites) again(ctx context.Context, do func() error) (err error) {
	for ctx.Err() == nil {
		if err = do(); !session.IsRetryable(err) && !errors.Is(err, session.ErrAlreadyRunning) {
			return err
		}
		time.Sleep(20 * time.Millisecond) // waits: a client tries again after a pause
	}
	return err
}

// drive has a session carry out all of its work. It reports whether it has completed.
func (o *lostWrites) drive(id string) (completed bool) {
	ctx := eventually.Context(o.t)
	err := o.again(ctx, func() error {
		_, err := o.rt.Execute(ctx, o.agent, helix.Input{SessionID: id, RequestID: id, Message: helix.UserText("Work.")})
		return err
	})
	for err == nil {
		var res *helix.Result
		if res, err = o.result(ctx, id); err != nil {
			break
		}
		if !res.Status.Suspended() {
			if res.Status != helix.Completed {
				o.t.Logf("%s: %s: %v", id, res.Status, res.Error)
			}
			return res.Status == helix.Completed
		}
		for _, p := range res.Pending {
			err = errors.Join(err, o.again(ctx, func() error {
				answer := helix.Approve(p, helix.User{})
				if p.Kind == session.PendingQuestion {
					answer = helix.Reply(p, "Three.", helix.User{})
				}
				_, err := o.rt.Submit(ctx, id, answer)
				return err
			}))
		}
		if err == nil {
			err = o.again(ctx, func() error {
				_, err := o.rt.Resume(ctx, id, helix.ResumeOptions{})
				if errors.Is(err, session.ErrAlreadyRunning) || errors.Is(err, session.ErrNotResumable) || errors.Is(err, session.ErrAwaitingInput) {
					return nil // it runs, or waits for the companion
				}
				return err
			})
		}
	}
	o.t.Logf("%s: %v", id, err)
	return false
}

// result waits for the end of the session's current run.
func (o *lostWrites) result(ctx context.Context, id string) (res *helix.Result, err error) {
	err = o.again(ctx, func() error {
		run, err := o.rt.Attach(ctx, id)
		if err == nil {
			res, err = run.Result(ctx)
		}
		return err
	})
	return res, err
}

// checkResults reports the calls of a session that failed.
func (o *lostWrites) checkResults(sessions session.Store, id string) {
	messages, err := sessions.AllMessages(o.t.Context(), id)
	if err != nil {
		o.t.Fatal(err)
	}
	for i := range messages {
		for _, p := range messages[i].Parts {
			if p.Error != nil {
				o.t.Errorf("session %s: the call of %s failed: %v", id, p.Tool, p.Error)
			}
		}
	}
}

// tree returns a session and those of its agents.
func (o *lostWrites) tree(sessions session.Store, id string) []string {
	out := []string{id}
	refs, err := sessions.Children(o.t.Context(), id)
	if err != nil {
		o.t.Fatal(err)
	}
	for i := range refs {
		out = append(out, o.tree(sessions, refs[i].SessionID)...)
	}
	return out
}
