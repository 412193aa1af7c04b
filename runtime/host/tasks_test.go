package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/memory"
)

// handling is an extension that carries out tasks.
type handling struct{}

func (handling) Name() string { return "handling" }

func (handling) Attach(context.Context, *helix.Turn) (*helix.Attachment, error) {
	return &helix.Attachment{}, nil
}

func (handling) TaskKinds() []string { return []string{"work"} }

func (handling) HandleTask(context.Context, *session.Task) error { return nil }

// The kinds of a factory's tasks are found, however many tasks of an agent that nobody has
// were due before them.
func TestLearnBehindMany(t *testing.T) {
	t.Parallel()
	db := memory.New(memory.Config{})
	t.Cleanup(func() { _ = db.Close() })
	h, err := New(Config{Name: "test", RuntimeOptions: helix.RuntimeOptions{Backend: db}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	put := func(agent string, n int) {
		t.Helper()
		for from := 0; from < n; from += session.MaxTasks {
			var tasks []session.Task
			for i := from; i < min(n, from+session.MaxTasks); i++ {
				tasks = append(tasks, session.Task{ID: fmt.Sprint(agent, i), Kind: "work", Agent: agent})
			}
			if err := db.Sessions().PutTasks(t.Context(), tasks); err != nil {
				t.Fatal(err)
			}
		}
	}
	put("vanished", sweepPages*sweepPage+10)
	put("made", 1)
	err = h.RegisterFactory("made", func(context.Context, helix.FactoryRequest) (*helix.Agent, error) {
		return &helix.Agent{Name: "made", Model: scripted.New(), Extensions: []helix.Extension{handling{}}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	known := func() bool {
		return slices.Contains(h.handler.TaskKinds(), session.TaskKind{Agent: "made", Kind: "work"})
	}
	h.tasks.upkeep(t.Context())
	if known() {
		t.Fatal("one search looks at all tasks, so this test proves nothing")
	}
	h.tasks.upkeep(t.Context())
	if !known() {
		t.Error("the second search has not found the factory's task")
	}
	select {
	case <-h.tasks.added:
	default:
		t.Error("the loop does not look for the task that was found")
	}
}

// A search asks the factory of an agent only a few times, and the next one asks for other
// tasks.
func TestLearnFew(t *testing.T) {
	t.Parallel()
	db := memory.New(memory.Config{})
	t.Cleanup(func() { _ = db.Close() })
	h, err := New(Config{Name: "test", RuntimeOptions: helix.RuntimeOptions{Backend: db}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const last = 2*maxLearn + 1
	for i := range last + 20 {
		if err := db.Sessions().Tenant(fmt.Sprintf("t%02d", i)).PutTasks(t.Context(), []session.Task{{ID: "one", Kind: "work", Agent: "made"}}); err != nil {
			t.Fatal(err)
		}
	}
	asked := map[string]int{}
	err = h.RegisterFactory("made", func(_ context.Context, of helix.FactoryRequest) (*helix.Agent, error) {
		if asked[of.User.Tenant]++; len(asked) < last {
			return nil, errors.New("not for this one")
		}
		return &helix.Agent{Name: "made", Model: scripted.New(), Extensions: []helix.Extension{handling{}}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{maxLearn, 2 * maxLearn, last, last} {
		h.tasks.upkeep(t.Context())
		calls := 0
		for _, n := range asked {
			calls += n
		}
		if len(asked) != want || calls != want {
			t.Fatalf("the factory was asked %d times for %d tenants, want %d", calls, len(asked), want)
		}
	}
	if !slices.Contains(h.handler.TaskKinds(), session.TaskKind{Agent: "made", Kind: "work"}) {
		t.Error("the kind was not learned")
	}
}

// unread is a backend whose sessions are not to be loaded.
type unread struct {
	store.Backend
	loads *int
}

func (b unread) Sessions() session.Store { return unreadSessions{b.Backend.Sessions(), b.loads} }

type unreadSessions struct {
	session.Store
	loads *int
}

func (s unreadSessions) Tenant(tenant string) session.Store {
	return unreadSessions{s.Store.Tenant(tenant), s.loads}
}

func (s unreadSessions) Load(ctx context.Context, id string) (*session.State, error) {
	*s.loads++
	return s.Store.Load(ctx, id)
}

// Without a factory, no session is read for tasks of an agent that nobody has.
func TestLearnWithoutFactory(t *testing.T) {
	t.Parallel()
	db := memory.New(memory.Config{})
	t.Cleanup(func() { _ = db.Close() })
	loads := 0
	h, err := New(Config{Name: "test", RuntimeOptions: helix.RuntimeOptions{Backend: unread{db, &loads}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.Sessions().StartRun(t.Context(), &session.StartRun{
		SessionID: "s-1", Create: &session.State{ID: "s-1", Agent: "vanished", Status: session.Active, StreamID: "s-1"}, Owner: "me", TTL: time.Hour,
		Run: session.Run{ID: "run-1", Kind: session.RunExecute, Status: session.RunRunning, Agent: "vanished", Runtime: "gone"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Sessions().PutTasks(t.Context(), []session.Task{{ID: "one", Kind: "work", Agent: "vanished", SessionID: "s-1"}}); err != nil {
		t.Fatal(err)
	}
	h.tasks.upkeep(t.Context())
	if loads != 0 {
		t.Errorf("%d sessions were loaded", loads)
	}
	err = h.RegisterFactory("made", func(context.Context, helix.FactoryRequest) (*helix.Agent, error) { return nil, errors.New("no") })
	if err != nil {
		t.Fatal(err)
	}
	if h.tasks.upkeep(t.Context()); loads == 0 {
		t.Error("with a factory no session is loaded either, so this test proves nothing")
	}
}

// Of all processes only one cleans up after the calls of a tenant each day, also after the
// task was done and removed.
func TestCleanCallsOnce(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	db := memory.New(memory.Config{Clock: func() time.Time { return now }})
	t.Cleanup(func() { _ = db.Close() })
	var hosts []*Host
	for range 3 {
		h, err := New(Config{Name: "test", RuntimeOptions: helix.RuntimeOptions{Backend: db, Tasks: helix.TaskOptions{CleanCalls: 24 * time.Hour}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		h.tasks.sees("acme")
		h.tasks.sees("globex")
		hosts = append(hosts, h)
	}
	for day := range 3 {
		due := map[time.Time]bool{}
		for range 2 * len(hosts) {
			h := hosts[0]
			hosts = append(hosts[1:], h)
			h.tasks.cleanCalls(t.Context(), now)
			for _, tenant := range []string{"acme", "globex"} {
				sessions := db.Sessions().Tenant(tenant)
				page, err := sessions.ListTasks(t.Context(), session.TaskQuery{})
				if err != nil {
					t.Fatal(err)
				}
				for _, task := range page.Items {
					if due[task.DueAt] = true; task.DueAt.Before(now) || task.DueAt.After(now.Add(6*time.Hour)) {
						t.Errorf("the task is due at %s", task.DueAt)
					}
					if err := sessions.DropTask(t.Context(), task.Ref(), time.Time{}); err != nil {
						t.Fatal(err)
					}
				}
				if len(page.Items) > 0 && len(due) > 2 {
					t.Fatalf("on day %d more than one process stored the task of %s", day, tenant)
				}
			}
			now = now.Add(time.Minute)
		}
		if len(due) != 2 { // each at a time of its own
			t.Errorf("on day %d there were tasks at %v, want two", day, due)
		}
		now = time.Date(2026, 3, 2+day, 0, 0, 0, 0, time.UTC)
		hosts = append(hosts[1:], hosts[0])
	}
}

// The result of a task that somebody else holds by now is not counted.
func TestFinishLost(t *testing.T) {
	t.Parallel()
	now := time.Now()
	db := memory.New(memory.Config{Clock: func() time.Time { return now }})
	t.Cleanup(func() { _ = db.Close() })
	var log bytes.Buffer
	h, err := New(Config{Name: "test", RuntimeOptions: helix.RuntimeOptions{Backend: db, Logger: slog.New(slog.NewTextHandler(&log, nil))}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	task := &session.Task{Tenant: session.DefaultTenant, ID: "one", Kind: "work", Agent: "agent"}
	if err := db.Sessions().PutTasks(t.Context(), []session.Task{*task}); err != nil {
		t.Fatal(err)
	}
	first, err := h.tasks.claim(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Hour)
	second, err := h.tasks.claim(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	h.tasks.finish(first, session.TaskResult{Outcome: session.TaskGivenUp, Error: "no"})
	if stats := h.TaskStats(); stats != (helix.TaskStats{}) || !strings.Contains(log.String(), "task.lost") || strings.Contains(log.String(), "task.given_up") {
		t.Errorf("the lost result is counted as %+v, and the log says %s", stats, &log)
	}
	h.tasks.finish(second, session.TaskResult{Outcome: session.TaskGivenUp, Error: "no"})
	if stats := h.TaskStats(); stats != (helix.TaskStats{GivenUp: 1}) || !strings.Contains(log.String(), "task.given_up") {
		t.Errorf("the result is counted as %+v, and the log says %s", stats, &log)
	}
}
