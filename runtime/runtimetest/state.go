package runtimetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/access"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
)

func stateScenarios() []Scenario {
	return []Scenario{
		{"defaults", "a new session begins with the state type's defaults", stateDefaults},
		{"initial", "the input's state is merged over the defaults", stateInitial},
		{"untyped", "an agent without a state type takes any state", stateUntyped},
		{"update", "a tool reads and changes the state, and sees its own changes", stateUpdate},
		{"next step", "the next step sees what the one before has changed", stateNextStep},
		{"seed", "the calls of one reply all see the state before any of them", stateSeed},
		{"appends compose", "values that parallel calls append are kept in the calls' order, whichever finishes first", stateAppends},
		{"replaces conflict", "of parallel replaces the last call's stands, and a warning is logged", stateReplaces},
		{"failing call", "state changes of a failing call are dropped", stateFailing},
		{"undeclared", "state that an agent does not declare is kept, and a warning is logged; so is one of a tool without a description", stateUndeclared},
		{"delete", "a key of a map that a tool deletes is removed", stateDelete},
		{"patches", "state changes are streamed as JSON patches that fold into the state", statePatches},
		{"hook patches", "state changes by hooks are streamed like those by tools", stateHookPatches},
		{"nested patches", "a change deep within a value is streamed as a patch of that place", stateNested},
		{"late goroutine", "a goroutine that outlives its call changes nothing", stateLate},
		{"append to no list", "appending to something that is not a list fails the call, by name", stateNoList},
		{"append to no name", "appending to a key that has no name, or one that no store keeps, fails the call, and the run continues", stateNoName},
		{"append within an update", "a tool may append while it updates", stateAppendWithin},
		{"nil list", "a list that the input's state leaves nil can be updated and appended to", stateNilList},
		{"checkpoints", "each step's checkpoint holds the state after it", stateCheckpoints},
		{"long list", "a list grows by many appends without losing one", stateLong},
		{"reserved", "keys of the framework are kept, copied and rewound, and applications neither see nor write them", stateReserved},
		{"reserved input", "initial state and messages of a caller cannot contain what is reserved for the framework", stateReservedInput},
		{"numbers", "large numbers and odd keys survive", stateNumbers},
	}
}

func stateDefaults(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("ok")))
	agent.State = helix.StateOf(notes{Notes: []int{1, 2}, Last: 2})
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.sameJSON(s.state("s-1"), `{"notes":[1,2],"last":2}`, "state")
}

func stateInitial(s *Stage) {
	agent := newAgent(scripted.New(scripted.Text("ok"), scripted.Text("ok")))
	agent.State = helix.StateOf(notes{Notes: []int{1, 2}, Last: 2})
	x := s.Start(agent)
	s.ended(s.Result(s.Execute(x, agent, helix.Input{
		SessionID: "s-1", Message: helix.UserText("Hi!"), State: map[string]any{"last": 9},
	})), helix.Completed)
	s.sameJSON(s.state("s-1"), `{"notes":[1,2],"last":9}`, "state")
	s.ended(s.Result(s.Execute(x, agent, helix.Input{
		SessionID: "s-2", Message: helix.UserText("Hi!"), State: notes{Notes: []int{7}},
	})), helix.Completed)
	s.sameJSON(s.state("s-2"), `{"notes":[7],"last":0}`, "state")
}

func stateUntyped(s *Stage) {
	put := newTool("put", func(_ context.Context, call *helix.Call, n int) (int, error) {
		helix.Update(call, func(m *map[string]any) { (*m)["n"] = n })
		return n, nil
	})
	agent := newAgent(scripted.New(scripted.Call("put", num{5}), scripted.Text("ok")), put)
	x := s.Start(agent)
	s.ended(s.Result(s.Execute(x, agent, helix.Input{
		SessionID: "s-1", Message: helix.UserText("Hi!"), State: map[string]any{"color": "blue"},
	})), helix.Completed)
	s.sameJSON(s.state("s-1"), `{"color":"blue","n":5}`, "state")
}

func stateUpdate(s *Stage) {
	agent := newAgent(scripted.New(scripted.Call("note", num{7}), scripted.Text("ok")), noteTool())
	agent.State = helix.StateOf(notes{Notes: []int{1}})
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.sameJSON(s.state("s-1"), `{"notes":[1,7],"last":7}`, "state")
	s.transcript("s-1", "user: Hi!", `assistant: note({"n":7})`, "tool note: 2", "assistant: ok")
}

func stateNextStep(s *Stage) {
	agent := newAgent(scripted.New(scripted.Call("note", num{1}), scripted.Call("note", num{2}), scripted.Text("ok")), noteTool())
	agent.State = helix.StateOf(notes{})
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: note({"n":1})`, "tool note: 1", `assistant: note({"n":2})`, "tool note: 2", "assistant: ok")
}

// chainedNotes adds a number to the notes after the calls with higher ones have,
// and returns how many it saw before.
func chainedNotes(last int, change func(call *helix.Call, n int)) helix.Tool {
	inner := chain(last)
	return newTool("note", func(ctx context.Context, call *helix.Call, n int) (int, error) {
		if _, err := inner.Execute.Call(ctx, call, fmt.Appendf(nil, `{"n":%d}`, n)); err != nil {
			return 0, err
		}
		seen := len(helix.State[notes](call).Notes)
		change(call, n)
		return seen, nil
	})
}

func threeNotes() *scripted.Model {
	return scripted.New(
		scripted.Reply(scripted.Calling("note", num{1}), scripted.Calling("note", num{2}), scripted.Calling("note", num{3})), scripted.Text("ok"))
}

func stateSeed(s *Stage) {
	agent := newAgent(threeNotes(), chainedNotes(3, func(call *helix.Call, n int) { helix.Append(call, "notes", n) }))
	agent.State = helix.StateOf(notes{Notes: []int{0}})
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.transcript("s-1", "user: Hi!", `assistant: note({"n":1}), note({"n":2}), note({"n":3})`,
		"tool note: 1", "tool note: 1", "tool note: 1", "assistant: ok")
}

func stateAppends(s *Stage) {
	agent := newAgent(threeNotes(), chainedNotes(3, func(call *helix.Call, n int) {
		if n == 2 {
			helix.Append(call, "notes", n, -n)
			return
		}
		helix.Update(call, func(v *notes) { v.Notes = append(v.Notes, n) })
	}))
	agent.State = helix.StateOf(notes{Notes: []int{0}})
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.sameJSON(s.state("s-1"), `{"notes":[0,1,2,-2,3],"last":0}`, "state")
}

func stateReplaces(s *Stage) {
	agent := newAgent(threeNotes(), chainedNotes(3, func(call *helix.Call, n int) {
		helix.Update(call, func(v *notes) { v.Last = n })
	}))
	agent.State = helix.StateOf(notes{})
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.sameJSON(s.state("s-1"), `{"notes":[],"last":3}`, "state")
	s.logged("level=WARN", "last", "overwrote", "session=s-1")
}

func stateFailing(s *Stage) {
	broken := newTool("broken", func(_ context.Context, call *helix.Call, n int) (int, error) {
		helix.Append(call, "notes", n)
		return 0, errors.New("no")
	})
	agent := newAgent(scripted.New(
		scripted.Reply(scripted.Calling("note", num{1}), scripted.Calling("broken", num{2})), scripted.Text("ok")), noteTool(), broken)
	agent.State = helix.StateOf(notes{})
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.sameJSON(s.state("s-1"), `{"notes":[1],"last":1}`, "state")
}

func stateUndeclared(s *Stage) {
	mute := noteTool()
	mute.Description = ""
	agent := newAgent(scripted.New(scripted.Call("note", num{1}), scripted.Text("ok")), mute)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.sameJSON(s.state("s-1"), `{"notes":[1],"last":1}`, "state")
	s.logged("WARN", "state.undeclared", "agent=agent")
	s.logged("WARN", "tool.description_missing", "tool=note")
}

func stateDelete(s *Stage) {
	forget := newTool("forget", func(_ context.Context, call *helix.Call, _ int) (int, error) {
		helix.Update(call, func(m *map[string]any) { delete(*m, "b") })
		return 0, nil
	})
	agent := newAgent(scripted.New(scripted.Call("forget", num{}), scripted.Text("ok")), forget)
	agent.State = helix.StateOf(map[string]any{"a": 1, "b": 2})
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.sameJSON(s.state("s-1"), `{"a":1}`, "state")
	s.sameJSON(s.foldState(`{"a":1,"b":2}`, s.chunks("s-1")), `{"a":1}`, "the folded patches")
}

func statePatches(s *Stage) {
	agent := newAgent(scripted.New(
		scripted.Reply(scripted.Calling("note", num{1}), scripted.Calling("note", num{2})), scripted.Call("note", num{3}), scripted.Text("ok"),
		scripted.Call("note", num{4}), scripted.Text("ok")), noteTool())
	agent.State = helix.StateOf(notes{})
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.ended(s.Say(x, agent, "s-1", "More!"), helix.Completed)
	chunks := s.chunks("s-1")
	s.same(len(ofKind(chunks, stream.StatePatch)), 3, "patch chunks")
	s.sameJSON(s.foldState(`{"notes":[],"last":0}`, chunks), s.state("s-1"), "the folded patches")
	s.sameJSON(s.state("s-1"), `{"notes":[1,2,3,4],"last":4}`, "state")
}

func stateHookPatches(s *Stage) {
	count := func(key string) func(*helix.HookContext) {
		return func(h *helix.HookContext) { helix.Append(h, key, h.Step) }
	}
	start, before, after, message := count("start"), count("before"), count("after"), count("message")
	agent := newAgent(scripted.New(scripted.Call("double", num{1}), scripted.Text("ok"), scripted.Text("again")), double())
	agent.Hooks = helix.Hooks{
		OnAgentStart:  func(_ context.Context, h *helix.HookContext, _ helix.AgentStartEvent) error { start(h); return nil },
		BeforeLLMCall: func(_ context.Context, h *helix.HookContext, _ helix.BeforeLLMCallEvent) error { before(h); return nil },
		AfterTool:     func(_ context.Context, h *helix.HookContext, _ helix.AfterToolEvent) error { after(h); return nil },
		OnMessage:     func(_ context.Context, h *helix.HookContext, _ helix.MessageEvent) error { message(h); return nil },
	}
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.ended(s.Say(x, agent, "s-1", "More!"), helix.Completed)
	s.sameJSON(s.state("s-1"), `{"start":[1,1],"before":[1,2,1],"after":[1],"message":[1,1,2,1]}`, "state")
	s.sameJSON(s.foldState(`{}`, s.chunks("s-1")), s.state("s-1"), "the folded patches")
}

func stateNested(s *Stage) {
	type inner struct {
		A map[string]int `json:"a"`
		B string         `json:"b"`
	}
	type outer struct {
		In inner `json:"in"`
	}
	set := newTool("set", func(_ context.Context, call *helix.Call, n int) (int, error) {
		helix.Update(call, func(o *outer) { o.In.A["x/y~z"] = n })
		return n, nil
	})
	agent := newAgent(scripted.New(scripted.Call("set", num{5}), scripted.Text("ok")), set)
	agent.State = helix.StateOf(outer{inner{map[string]int{"k": 1}, "b"}})
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	patches := ofKind(s.chunks("s-1"), stream.StatePatch)
	s.same(len(patches), 1, "patch chunks")
	s.same(fmt.Sprintf("%s %s %s", patches[0].Patches[0].Op, patches[0].Patches[0].Path, patches[0].Patches[0].Value),
		"add /in/a/x~1y~0z 5", "the patch")
	s.sameJSON(s.foldState(`{"in":{"a":{"k":1},"b":"b"}}`, s.chunks("s-1")), s.state("s-1"), "the folded patches")
}

func stateLate(s *Stage) {
	g, finished := s.newGate(), make(chan struct{})
	leave := newTool("leave", func(_ context.Context, call *helix.Call, n int) (int, error) {
		go func() {
			defer close(finished)
			<-g.open
			helix.Append(call, "notes", 99)
			helix.Update(call, func(v *notes) { v.Last = 99 })
			call.Emit("late", n)
			call.RecordUsage("late", 1, nil)
		}()
		helix.Append(call, "notes", n)
		return n, nil
	})
	agent := newAgent(scripted.New(scripted.Call("leave", num{1}), scripted.Text("ok"), scripted.Text("ok")), leave)
	agent.State = helix.StateOf(notes{})
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	g.release()
	s.receive("the goroutine ends", finished)
	s.ended(s.Say(x, agent, "s-1", "More!"), helix.Completed)
	s.sameJSON(s.state("s-1"), `{"notes":[1],"last":0}`, "state")
}

func stateNoList(s *Stage) {
	add := newTool("add", func(_ context.Context, call *helix.Call, n int) (int, error) {
		helix.Append(call, "last", n)
		return n, nil
	})
	agent := newAgent(scripted.New(scripted.Call("add", num{1}), scripted.Call("note", num{2}), scripted.Text("ok")), add, noteTool())
	agent.State = helix.StateOf(notes{})
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.refused(s.messages("s-1")[2].Parts[0].Error, helix.ErrInvalid, `"last"`, "not a list")
	s.sameJSON(s.state("s-1"), `{"notes":[2],"last":2}`, "state")
}

func stateCheckpoints(s *Stage) {
	agent := newAgent(scripted.New(scripted.Call("note", num{1}), scripted.Call("note", num{2}), scripted.Text("ok")), noteTool())
	agent.State = helix.StateOf(notes{})
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	want := []string{`{"notes":[],"last":0}`, `{"notes":[1],"last":1}`, `{"notes":[1,2],"last":2}`, `{"notes":[1,2],"last":2}`}
	checkpoints := s.checkpoints("s-1")
	s.same(len(checkpoints), len(want), "checkpoints")
	for i, cp := range checkpoints {
		full, err := s.store().Checkpoint(s.ctx(), "s-1", cp.ID)
		s.ok(err, "checkpoint %s", cp.ID)
		raw, err := full.State.MarshalJSON()
		s.ok(err, "state of checkpoint %s", cp.ID)
		s.sameJSON(string(raw), want[i], "state at checkpoint %d", i)
		s.same(cp.Step, i, "step of checkpoint %d", i)
		s.same(cp.MessageCount, []int{1, 3, 5, 6}[i], "messages at checkpoint %d", i)
	}
	latest, err := s.store().LatestCheckpoint(s.ctx(), "s-1")
	s.ok(err, "latest checkpoint")
	s.same(latest.ID, checkpoints[3].ID, "the latest checkpoint")
}

func stateLong(s *Stage) {
	const steps = 60
	script := make([]scripted.Step, 0, steps+1)
	for i := range steps {
		script = append(script, scripted.Call("add", num{i}))
	}
	add := newTool("add", func(_ context.Context, call *helix.Call, n int) (int, error) {
		helix.Append(call, "notes", n)
		return n, nil
	})
	agent := newAgent(scripted.New(append(script, scripted.Text("ok"))...), add)
	agent.State, agent.MaxSteps = helix.StateOf(notes{}), helix.Unlimited
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	want := make([]string, steps)
	for i := range want {
		want[i] = fmt.Sprint(i)
	}
	s.sameJSON(s.state("s-1"), `{"notes":[`+strings.Join(want, ",")+`],"last":0}`, "state")
	s.sameJSON(s.foldState(`{"notes":[],"last":0}`, s.chunks("s-1")), s.state("s-1"), "the folded patches")
}

func stateNumbers(s *Stage) {
	put := helix.Tool{Name: "put", Execute: helix.Func(func(_ context.Context, call *helix.Call, in struct {
		Key   string `json:"key"`
		Value int64  `json:"value"`
	},
	) (int64, error) {
		helix.Append(call, in.Key, in.Value)
		return in.Value, nil
	})}
	agent := newAgent(scripted.New(
		scripted.Reply(
			scripted.Calling("put", `{"key":"a/b~c \"d\" é","value":9007199254740993}`),
			scripted.Calling("put", `{"key":"0","value":-1}`)),
		scripted.Text("ok")), put)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	custom := s.load("s-1").Custom
	s.same(string(custom.Get(`a/b~c "d" é`)), "[9007199254740993]", "the large number")
	s.same(string(custom.Get("0")), "[-1]", "the odd key")
	folded, err := session.ParseCustomState([]byte(s.foldState(`{}`, s.chunks("s-1"))))
	s.ok(err, "folded patches")
	s.same(string(folded.Get(`a/b~c "d" é`)), "[9007199254740993]", "the large number, folded")
}

func stateNoName(s *Stage) {
	tool := newTool("odd", func(_ context.Context, call *helix.Call, n int) (int, error) {
		helix.Append(call, []string{"", "a\x00b"}[n], n)
		return n, nil
	})
	agent := newAgent(scripted.New(scripted.Reply(scripted.Calling("odd", num{0}), scripted.Calling("odd", num{1})), scripted.Text("ok"), scripted.Text("Yes.")), tool)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	messages := s.messages("s-1")
	s.refused(messages[2].Parts[0].Error, helix.ErrInvalid, "state key", "empty")
	s.refused(messages[3].Parts[0].Error, helix.ErrInvalid, "state key", "zero byte")
	s.same(s.runs("s-1")[0].Attempts, 0, "takeovers")
	s.usable(x, agent)
}

func stateAppendWithin(s *Stage) {
	tool := newTool("note", func(_ context.Context, call *helix.Call, n int) (int, error) {
		helix.Update(call, func(v *notes) {
			helix.Append(call, "notes", n)
			v.Last = len(helix.State[notes](call).Notes)
		})
		return n, nil
	})
	agent := newAgent(scripted.New(scripted.Call("note", num{7}), scripted.Text("ok")), tool)
	agent.State = helix.StateOf(notes{Notes: []int{1}})
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.sameJSON(s.state("s-1"), `{"notes":[1,7],"last":2}`, "state")
}

func stateNilList(s *Stage) {
	add := newTool("add", func(_ context.Context, call *helix.Call, n int) (int, error) {
		helix.Append(call, "notes", n)
		return n, nil
	})
	for i, first := range []string{"note", "add"} {
		id := fmt.Sprintf("s-%d", i+1)
		agent := newAgent(scripted.New(scripted.Call(first, num{1}), scripted.Call("add", num{2}), scripted.Call("note", num{3}), scripted.Text("ok")), noteTool(), add)
		agent.Name, agent.State = first+"r", helix.StateOf(notes{Last: 1})
		x := s.Start(agent)
		s.ended(s.Result(s.Execute(x, agent, helix.Input{SessionID: id, Message: helix.UserText("Hi!"), State: notes{Last: 9}})), helix.Completed)
		s.sameJSON(s.state(id), `{"notes":[1,2,3],"last":3}`, "state")
		s.sameJSON(s.foldState(`{"notes":[],"last":9}`, s.chunks(id)), s.state(id), "the folded patches")
	}
}

// stateReserved has a tool that, like a package of the framework, counts its calls in
// a reserved key, and looks for that key wherever an application could see it.
func stateReserved(s *Stage) {
	const key = session.ReservedPrefix + "count"
	count := newTool("count", func(_ context.Context, call *helix.Call, n int) (int, error) {
		draft := access.DraftOf(call)
		was, err := draft.Reserved(key)
		if err != nil {
			return 0, err
		}
		if err := draft.SetReserved(key, json.RawMessage(string(was)+"1")); err != nil {
			return 0, err
		}
		helix.Update(call, func(m *map[string]any) { (*m)["seen"] = len(*m); (*m)["n"] = n })
		return n, nil
	})
	forge := newTool("forge", func(_ context.Context, call *helix.Call, n int) (int, error) {
		helix.Update(call, func(m *map[string]any) { (*m)[key] = n })
		return n, nil
	})
	grow := newTool("grow", func(_ context.Context, call *helix.Call, n int) (int, error) {
		helix.Append(call, key, n)
		return n, nil
	})
	agent := newAgent(scripted.New(
		scripted.Call("count", num{1}), scripted.Call("count", num{2}), scripted.Call("forge", num{3}), scripted.Call("grow", num{4}), scripted.Text("ok"),
		scripted.Call("count", num{5}), scripted.Text("branched"), scripted.Call("count", num{6}), scripted.Text("rewound")), count, forge, grow)
	agent.State = helix.StateOf(map[string]any{})
	var told tally
	agent.Hooks.OnStateChange = func(_ context.Context, h *helix.HookContext, e helix.StateChangeEvent) error {
		for _, op := range e.Writes.Ops {
			if session.IsReservedKey(op.Key) {
				told.add("a key")
			}
		}
		if _, sees := helix.State[map[string]any](h)[key]; sees {
			told.add("a key")
		}
		return nil
	}
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	s.sameJSON(s.state("s-1"), `{"seen":2,"n":2,"helix:count":11}`, "what is stored")
	s.same(told.of("a key"), 0, "what hooks were told of it")
	for i := range 2 { // forge and grow
		part := &s.messages("s-1")[6+2*i].Parts[0]
		s.refused(part.Error, helix.ErrInvalid, key)
	}

	const public = `{"seen":2,"n":2}`
	got, err := x.Sessions().Get(s.ctx(), "s-1")
	s.ok(err, "get")
	raw, err := got.Custom.MarshalJSON()
	s.ok(err, "encode")
	s.sameJSON(string(raw), public, "Sessions.Get")
	read, err := helix.ReadState[map[string]any](s.ctx(), x.Sessions(), "s-1")
	s.ok(err, "read")
	s.same(len(read), 2, "keys of ReadState")
	shot, err := store.TakeSnapshot(s.ctx(), s.store(), s.Backend.Streams(), "s-1")
	s.ok(err, "snapshot")
	raw, err = shot.State.Custom.MarshalJSON()
	s.ok(err, "encode")
	s.sameJSON(string(raw), public, "the snapshot")
	s.sameJSON(s.foldState(`{}`, s.chunks("s-1")), public, "the folded patches")

	first := s.checkpoints("s-1")[1].ID
	s.ended(s.Result(s.branch(x, agent, "s-2", helix.Branch{From: "s-1", Checkpoint: first}, "Count!")), helix.Completed)
	s.sameJSON(s.state("s-2"), `{"seen":2,"n":5,"helix:count":11}`, "the branch")
	s.ended(s.Result(s.Resume(x, "s-1", helix.ResumeOptions{Checkpoint: first})), helix.Completed)
	s.sameJSON(s.state("s-1"), `{"seen":2,"n":6,"helix:count":11}`, "after a rewind")
}

func stateReservedInput(s *Stage) {
	agent := newAgent(scripted.New())
	agent.State = helix.StateOf(map[string]any{})
	x := s.Start(agent)
	_, err := x.Execute(s.ctx(), agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!"), State: map[string]any{"helix:count": 1}})
	s.refused(err, helix.ErrInvalid, "state.helix:count", "reserved for the framework")
	m := helix.UserText("Hi!")
	for _, name := range []string{session.MetaCompaction, session.MetaInterrupted, "helixOther"} {
		m.Metadata = map[string]json.RawMessage{name: json.RawMessage("true")}
		_, err = x.Execute(s.ctx(), agent, helix.Input{SessionID: "s-1", Message: m})
		s.refused(err, helix.ErrInvalid, "message metadata", name, "reserved for the framework")
	}
	_, err = s.store().Load(s.ctx(), "s-1")
	s.refused(err, helix.ErrNotFound)
}
