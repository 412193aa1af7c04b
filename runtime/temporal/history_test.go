package temporal_test

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/proto"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testbackend"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/temporal"
	"github.com/helixagents/helix/session"
)

var update = flag.Bool("update", false, "rewrite the histories in testdata")

// site is a runtime of a test's own.
type site struct {
	*temporal.Runtime
	t       *testing.T
	client  client.Client
	queue   string
	address string // of the backend
}

func newSite(t *testing.T, configure func(*temporal.Config), agents ...*helix.Agent) *site {
	t.Helper()
	var db *testbackend.Backend
	for _, kind := range testbackend.Shared() {
		if kind.Name == "postgres" {
			db = kind.Open(t)
		}
	}
	return newSiteOn(t, dial(t), db, session.NewID(), configure, agents...)
}

func newSiteOn(t *testing.T, c client.Client, db *testbackend.Backend, queue string, configure func(*temporal.Config), agents ...*helix.Agent) *site {
	t.Helper()
	cfg := temporal.Config{
		RuntimeOptions: helix.RuntimeOptions{Backend: db, Agents: agents, RetryBackoff: time.Millisecond},
		Client:         c, TaskQueue: queue, WorkerTimeout: 2 * time.Second,
	}
	if configure != nil {
		configure(&cfg)
	}
	rt, err := temporal.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(); err != nil {
			t.Error(err)
		}
	})
	return &site{Runtime: rt, t: t, client: c, queue: queue, address: db.Address}
}

// say executes a turn and waits for its end.
func (s *site) say(agent *helix.Agent, id string) *helix.Result {
	s.t.Helper()
	return s.result(s.execute(agent, id))
}

func (s *site) execute(agent *helix.Agent, id string) helix.Run {
	s.t.Helper()
	run, err := s.Execute(s.t.Context(), agent, helix.Input{SessionID: id, Message: helix.UserText("Hi!")})
	if err != nil {
		s.t.Fatal(err)
	}
	return run
}

func (s *site) result(run helix.Run) *helix.Result {
	s.t.Helper()
	ctx := eventually.Context(s.t)
	result, err := run.Result(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	return result
}

// run is a run's record.
func (s *site) run(id, runID string) *session.Run {
	s.t.Helper()
	run, err := testbackend.Open(s.t, s.address).Sessions().Run(s.t.Context(), id, runID)
	if err != nil {
		s.t.Fatal(err)
	}
	return run
}

// history is that of a workflow, once it has ended; that of all its parts, if it
// continued as another.
func (s *site) history(id string) [][]*historypb.HistoryEvent {
	s.t.Helper()
	ctx := eventually.Context(s.t)
	run, err := s.first(ctx, id)
	if err != nil {
		s.t.Fatal(err)
	}
	var parts [][]*historypb.HistoryEvent
	for run != "" {
		var events []*historypb.HistoryEvent
		for pages := s.client.GetWorkflowHistory(ctx, id, run, true, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); pages.HasNext(); {
			event, err := pages.Next()
			if err != nil {
				s.t.Fatal(err)
			}
			events = append(events, event)
		}
		run = events[len(events)-1].GetWorkflowExecutionContinuedAsNewEventAttributes().GetNewExecutionRunId()
		parts = append(parts, events)
	}
	return parts
}

// first is the first of the parts of a workflow.
func (s *site) first(ctx context.Context, id string) (string, error) {
	described, err := s.client.DescribeWorkflowExecution(ctx, id, "")
	if err != nil {
		return "", err
	}
	return described.GetWorkflowExecutionInfo().GetFirstRunId(), nil
}

// in names a value in the input of a tool.
type in struct {
	N int `json:"n"`
}

// counter returns an agent that makes the given number of calls in one turn.
func counter(calls int) *helix.Agent {
	var steps []scripted.Step
	for i := range calls {
		steps = append(steps, scripted.Call("count", in{i}))
	}
	return &helix.Agent{
		Name: "counter", Model: scripted.New(append(steps, scripted.Text("Done."))...).ByPosition(), MaxSteps: helix.Unlimited,
		Tools: []helix.Tool{{Name: "count", Execute: helix.Func(func(_ context.Context, _ *helix.Call, in in) (int, error) { return in.N, nil })}},
	}
}

func TestContentStaysInTheStore(t *testing.T) {
	t.Parallel()
	const calls, large = 3, 5 << 20
	agent := counter(calls)
	agent.Tools[0].Execute = helix.Func(func(context.Context, *helix.Call, in) (string, error) { return strings.Repeat("x", large), nil })
	s := newSite(t, func(cfg *temporal.Config) { cfg.MaxResult = 2 * large }, agent)
	if result := s.say(agent, "s-1"); result.Status != helix.Completed {
		t.Fatalf("the run is %s: %v", result.Status, result.Error)
	}
	size, events := 0, 0
	for _, part := range s.history(s.queue + "__counter__s-1") {
		size += proto.Size(&historypb.History{Events: part})
		events += len(part)
	}
	t.Logf("%d results of %d MiB each: the history has %d events of %d bytes together", calls, large>>20, events, size)
	if size > 100_000 {
		t.Errorf("the history has %d bytes: content is in it", size)
	}
}

func TestLongTurnsContinueAsNewWorkflows(t *testing.T) {
	t.Parallel()
	const calls = 30
	agent := counter(calls)
	s := newSite(t, func(cfg *temporal.Config) { cfg.MaxHistory = 150 }, agent)
	if result := s.say(agent, "s-1"); result.Status != helix.Completed || result.Steps != calls+1 {
		t.Fatalf("the run is %s after %d steps: %v", result.Status, result.Steps, result.Error)
	}
	parts := s.history(s.queue + "__counter__s-1")
	if len(parts) < 3 {
		t.Errorf("the turn took %d workflows", len(parts))
	}
	for i, part := range parts {
		if len(part) > 250 {
			t.Errorf("workflow %d has %d events", i+1, len(part))
		}
	}
}

// histories are turns whose workflows must continue as they began, whatever is changed
// here.
var histories = map[string]func(t *testing.T) (s *site, id string){
	"tools": func(t *testing.T) (*site, string) {
		agent := &helix.Agent{
			Name: "clerk", Model: scripted.New(
				scripted.Reply(scripted.Calling("count", in{1}), scripted.Calling("count", in{2}), scripted.Calling("count", in{3})),
				scripted.Text("Done.")).ByPosition(),
			Tools: counter(0).Tools,
		}
		s := newSite(t, nil, agent)
		s.say(agent, "s-1")
		return s, s.queue + "__clerk__s-1"
	},
	"agents": func(t *testing.T) (*site, string) {
		helper, friend := counter(1), counter(1)
		helper.Name, friend.Name = "helper", "friend"
		agent := &helix.Agent{
			Name: "boss", Model: scripted.New(
				scripted.Reply(scripted.Calling("subagent__helper", map[string]string{"task": "Help."}),
					scripted.Calling(helix.SpawnAgentTool, map[string]string{"agent": "friend", "name": "pal", "initialMessage": "Hi."})),
				scripted.Text("Done.")).ByPosition(),
			SubAgents:  []helix.SubAgent{{Agent: helper}},
			Companions: []helix.Companion{{Agent: friend}},
		}
		s := newSite(t, nil, agent)
		s.say(agent, "s-1")
		return s, s.queue + "__boss__s-1"
	},
	"suspended": func(t *testing.T) (*site, string) {
		agent := counter(1)
		agent.Tools[0].Approval = helix.RequireApproval
		s := newSite(t, nil, agent)
		s.say(agent, "s-1")
		return s, s.queue + "__counter__s-1"
	},
	"new": func(t *testing.T) (*site, string) {
		agent := counter(8)
		s := newSite(t, func(cfg *temporal.Config) { cfg.MaxHistory = 50 }, agent)
		s.say(agent, "s-1")
		return s, s.queue + "__counter__s-1"
	},
	"taken over": func(t *testing.T) (*site, string) {
		agent := counter(2)
		entered := make(chan struct{}, 10)
		agent.Tools[0].Idempotent = true
		agent.Tools[0].Execute = helix.Func(func(ctx context.Context, _ *helix.Call, in in) (int, error) {
			entered <- struct{}{}
			if in.N == 0 && len(entered) < 2 {
				<-ctx.Done()
			}
			return in.N, ctx.Err()
		})
		s := newSite(t, nil, agent)
		run := s.execute(agent, "s-1")
		<-entered
		entered <- struct{}{}
		entered <- struct{}{}
		other := newSiteOn(t, s.client, testbackend.Open(t, s.address), s.queue, nil, agent)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		other.result(run)
		return other, s.queue + "__counter__s-1"
	},
}

func TestFrozenHistories(t *testing.T) {
	t.Parallel()
	for name, play := range histories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join("testdata", strings.ReplaceAll(name, " ", "_"))
			if *update {
				s, id := play(t)
				for i, part := range s.history(id) {
					write(t, filepath.Join(dir, string(rune('1'+i))+".json"), part)
				}
			}
			files, err := filepath.Glob(filepath.Join(dir, "*.json"))
			if err != nil || len(files) == 0 {
				t.Fatalf("no history of %q (%v); make it with -update", name, err)
			}
			for _, file := range files {
				if err := temporal.Replay(file); err != nil {
					t.Errorf("%s: %v", file, err)
				}
			}
		})
	}
}

func write(t *testing.T, file string, events []*historypb.HistoryEvent) {
	t.Helper()
	text, err := temporalproto.CustomJSONMarshalOptions{Indent: " "}.Marshal(&historypb.History{Events: events})
	if err != nil {
		t.Fatal(err)
	}
	if name, err := os.Hostname(); err == nil {
		text = bytes.ReplaceAll(text, []byte(name), []byte("host"))
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(text, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
}
