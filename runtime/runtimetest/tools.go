package runtimetest

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

func toolScenarios() []Scenario {
	return []Scenario{
		{"one", "a call is carried out, and the model sees its result in the next step", toolOne},
		{"results", "strings are kept verbatim, other values as JSON without HTML escapes", toolResults},
		{"parallel", "the calls of one reply run at the same time", toolParallel},
		{"order", "results come in the calls' order, whichever finishes first", toolOrder},
		{"fails", "a tool's error becomes the call's result, and its siblings are not disturbed", toolFails},
		{"typed error", "an error with a code keeps it", toolTypedError},
		{"idempotency key", "every call has an idempotency key of its own", toolKeys},
		{"raw", "a tool on plain JSON is held to its schema", toolRaw},
		{"text and calls", "text beside calls is kept and streamed", toolTextAndCalls},
		{"read only", "a step of read-only calls gives the same transcript as any other", toolReadOnly},
		{"mixed", "read-only, refused and effective calls of one reply are answered together, in order", toolMixed},
		{"many", "a reply with many calls is carried out", toolMany},
		{"streamed", "calls and results are streamed as they happen", toolStreamed},
		{"context", "a tool's context ends with its call", toolContext},
	}
}

func toolOne(s *Stage) {
	model := scripted.New(scripted.Call("double", num{21}), scripted.Text("42"))
	agent := newAgent(model, double())
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "21?")
	s.same(res.Text, "42", "the reply")
	s.same(res.Steps, 2, "steps")
	s.transcript("s-1", "user: 21?", `assistant: double({"n":21})`, "tool double: 42", "assistant: 42")
	s.same(render(model.Requests()[1].Messages), "user: 21?\nassistant: double({\"n\":21})\ntool double: 42", "what the model sees")
	messages := s.messages("s-1")
	s.same([]any{messages[1].Step, messages[2].Step, messages[3].Step}, []any{1, 1, 2}, "steps of the messages")
}

func toolResults(s *Stage) {
	type hit struct {
		Title string `json:"title"`
	}
	agent := newAgent(scripted.New(
		scripted.Reply(scripted.Calling("text", num{}), scripted.Calling("hits", num{}), scripted.Calling("nothing", num{})), scripted.Text("ok")),
		newTool("text", func(context.Context, *helix.Call, int) (string, error) { return "a \"b\"\n<c>", nil }),
		newTool("hits", func(context.Context, *helix.Call, int) ([]hit, error) { return []hit{{"<a> & b"}}, nil }),
		newTool("nothing", func(context.Context, *helix.Call, int) (*hit, error) { return nil, nil }),
	)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Hi!"), helix.Completed)
	messages := s.messages("s-1")
	s.same(messages[2].Parts[0].Text, "a \"b\"\n<c>", "the text")
	s.same(string(messages[3].Parts[0].Output), `[{"title":"<a> & b"}]`, "the hits")
	s.same(string(messages[4].Parts[0].Output), `null`, "nothing")
}

// meeting is a tool that only returns once as many calls as parties have come.
func meeting(parties int) helix.Tool {
	var mu sync.Mutex
	here, all := 0, make(chan struct{})
	return newTool("meet", func(ctx context.Context, _ *helix.Call, n int) (int, error) {
		mu.Lock()
		if here++; here == parties {
			close(all)
		}
		mu.Unlock()
		select {
		case <-all:
			return n, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	})
}

func toolParallel(s *Stage) {
	agent := newAgent(scripted.New(
		scripted.Reply(scripted.Calling("meet", num{1}), scripted.Calling("meet", num{2}), scripted.Calling("meet", num{3})),
		scripted.Text("all met")), meeting(3))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Meet!"), helix.Completed)
	s.transcript("s-1", "user: Meet!", `assistant: meet({"n":1}), meet({"n":2}), meet({"n":3})`,
		"tool meet: 1", "tool meet: 2", "tool meet: 3", "assistant: all met")
}

// chain is a tool whose calls finish in falling order of n.
func chain(last int) helix.Tool {
	done := make([]chan struct{}, last+2)
	for i := range done {
		done[i] = make(chan struct{})
	}
	close(done[last+1])
	return newTool("chain", func(ctx context.Context, _ *helix.Call, n int) (int, error) {
		defer close(done[n])
		select {
		case <-done[n+1]:
			return n, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	})
}

func toolOrder(s *Stage) {
	agent := newAgent(scripted.New(
		scripted.Reply(scripted.Calling("chain", num{1}), scripted.Calling("chain", num{2}), scripted.Calling("chain", num{3})),
		scripted.Text("ok")), chain(3))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	s.transcript("s-1", "user: Go!", `assistant: chain({"n":1}), chain({"n":2}), chain({"n":3})`,
		"tool chain: 1", "tool chain: 2", "tool chain: 3", "assistant: ok")
}

func toolFails(s *Stage) {
	model := scripted.New(
		scripted.Reply(scripted.Calling("double", num{1}), scripted.Calling("broken", num{2}), scripted.Calling("double", num{3})),
		scripted.Text("I see."))
	agent := newAgent(model, double(),
		newTool("broken", func(context.Context, *helix.Call, int) (int, error) { return 0, errors.New("the archive is closed") }))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	s.transcript("s-1", "user: Go!", `assistant: double({"n":1}), broken({"n":2}), double({"n":3})`,
		"tool double: 2", "tool broken failed: tool_execution_failed", "tool double: 6", "assistant: I see.")
	s.same(model.Requests()[1].Messages[3].Parts[0].Error.Message, "the archive is closed", "what the model is told")
}

func toolTypedError(s *Stage) {
	broken := newTool("broken", func(context.Context, *helix.Call, int) (int, error) {
		return 0, &helix.Error{Code: "tool_quota", Message: "no quota left"}
	})
	agent := newAgent(scripted.New(scripted.Call("broken", num{}), scripted.Text("ok")), broken)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	s.refused(s.messages("s-1")[2].Parts[0].Error, code("tool_quota"), "no quota left")
}

func toolKeys(s *Stage) {
	var mu sync.Mutex
	keys := map[string]bool{}
	look := newTool("look", func(_ context.Context, call *helix.Call, _ int) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		keys[call.IdempotencyKey()] = true
		return call.ID, nil
	})
	agent := newAgent(scripted.New(
		scripted.Reply(scripted.Calling("look", num{1}), scripted.Calling("look", num{1})), scripted.Call("look", num{1}), scripted.Text("ok"),
		scripted.Call("look", num{1}), scripted.Text("ok")), look)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	s.same(len(keys), 4, "keys of four calls")
	s.same(s.messages("s-1")[2].Parts[0].Text, s.messages("s-1")[1].Calls()[0].CallID, "the call's id, as the tool sees it")
}

func toolRaw(s *Stage) {
	schema := json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`)
	raw := helix.Tool{Name: "weather", Execute: helix.RawFunc(schema,
		func(_ context.Context, _ *helix.Call, input json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage(`{"got":` + string(input) + `}`), nil
		})}
	agent := newAgent(scripted.New(
		scripted.Call("weather", `{"town":"Rome"}`), scripted.Call("weather", `{"city":"Rome"}`), scripted.Text("ok")), raw)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	s.transcript("s-1", "user: Go!", `assistant: weather({"town":"Rome"})`, "tool weather failed: tool_invalid_input",
		`assistant: weather({"city":"Rome"})`, `tool weather: {"got":{"city":"Rome"}}`, "assistant: ok")
}

func toolTextAndCalls(s *Stage) {
	agent := newAgent(scripted.New(
		scripted.Reply(scripted.Say("First this. "), scripted.Calling("double", num{1}), scripted.Say("Then that. "), scripted.Calling("double", num{2})),
		scripted.Text("ok")), double())
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	messages := s.messages("s-1")
	s.same(messages[1].Content(), "First this. Then that. ", "the text")
	s.same(len(messages[1].Calls()), 2, "calls")
	s.loose["s-1"] = true // a stream does not tell what text came between two calls
}

func toolReadOnly(s *Stage) {
	look := double()
	look.ReadOnly = true
	agent := newAgent(scripted.New(
		scripted.Reply(scripted.Calling("double", num{1}), scripted.Calling("double", num{2})), scripted.Call("double", num{3}), scripted.Text("ok")), look)
	x := s.Start(agent)
	res := s.Say(x, agent, "s-1", "Go!")
	s.ended(res, helix.Completed)
	s.same(res.Steps, 3, "steps")
	s.transcript("s-1", "user: Go!", `assistant: double({"n":1}), double({"n":2})`, "tool double: 2", "tool double: 4",
		`assistant: double({"n":3})`, "tool double: 6", "assistant: ok")
}

func toolMixed(s *Stage) {
	look := double()
	look.Name, look.ReadOnly = "look", true
	agent := newAgent(scripted.New(
		scripted.Reply(
			scripted.Calling("unknown", num{0}), scripted.Calling("look", num{1}), scripted.Calling("double", `{"n":"x"}`),
			scripted.Calling("double", num{2}), scripted.Calling("look", num{3}), scripted.Calling("double", num{4})),
		scripted.Text("ok")), double(), look)
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	s.transcript("s-1", "user: Go!",
		`assistant: unknown({"n":0}), look({"n":1}), double({"n":"x"}), double({"n":2}), look({"n":3}), double({"n":4})`,
		"tool unknown failed: tool_not_found", "tool look: 2", "tool double failed: tool_invalid_input",
		"tool double: 4", "tool look: 6", "tool double: 8", "assistant: ok")
}

func toolMany(s *Stage) {
	const calls = 40
	var parts []scripted.Part
	for i := range calls {
		parts = append(parts, scripted.Calling("double", num{i}))
	}
	agent := newAgent(scripted.New(scripted.Reply(parts...), scripted.Text("ok")), double())
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	messages := s.messages("s-1")
	s.same(len(messages), calls+3, "messages")
	for i := range calls {
		s.same(string(messages[2+i].Parts[0].Output), strconv.Itoa(2*i), "result %d", i)
	}
}

func toolStreamed(s *Stage) {
	g := s.newGate()
	agent := newAgent(scripted.New(
		scripted.Reply(scripted.Calling("double", num{1}), scripted.Calling("wait", num{2})), scripted.Text("ok")), double(), blocking(g))
	x := s.Start(agent)
	run := s.Begin(x, agent, "s-1", "Go!")
	var seen []stream.Chunk
	for item, err := range run.Stream(s.ctx()) {
		s.ok(err, "stream")
		if item.Chunk == nil {
			continue
		}
		seen = append(seen, *item.Chunk)
		if item.Chunk.Kind == stream.ToolEnd && item.Chunk.Tool == "double" {
			g.release() // only now: its sibling's result was seen before
		}
	}
	starts, ends := ofKind(seen, stream.ToolStart), ofKind(seen, stream.ToolEnd)
	s.same(len(starts), 2, "calls announced")
	s.same(starts[0].Tool+string(starts[0].Arguments)+starts[1].Tool+string(starts[1].Arguments), `double{"n":1}wait{"n":2}`, "calls announced")
	s.same(len(ends), 2, "results")
	s.same([]any{ends[0].CallID, ends[0].Tool, string(ends[0].Result), ends[0].Success}, []any{starts[0].CallID, "double", "2", true}, "the first result")
	s.same(ends[1].CallID, starts[1].CallID, "the second result")
	s.same(len(ofKind(seen, stream.ToolArgsStart)), 2, "arguments begun")
	s.same(len(ofKind(seen, stream.ToolArgsEnd)), 2, "arguments ended")
}

func toolContext(s *Stage) {
	left := make(chan context.Context, 1)
	agent := newAgent(scripted.New(scripted.Call("leave", num{}), scripted.Text("ok")),
		newTool("leave", func(ctx context.Context, _ *helix.Call, _ int) (int, error) {
			left <- ctx
			return 0, nil
		}))
	x := s.Start(agent)
	s.ended(s.Say(x, agent, "s-1", "Go!"), helix.Completed)
	s.receive("the tool's context ends", (<-left).Done())
	s.same(s.load("s-1").Status, session.Completed, "status")
}
