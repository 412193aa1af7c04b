package scripted_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
)

var demoTools = []llm.Tool{
	{Name: scripted.DemoClock}, {Name: scripted.DemoCalculate}, {Name: scripted.DemoRemember}, {Name: scripted.DemoRecall},
}

func TestDemoCallsTools(t *testing.T) {
	t.Parallel()
	model := scripted.Demo(scripted.DemoConfig{})
	for words, want := range map[string][]string{
		"What time is it?":                           {"clock {}"},
		"what's today's date":                        {"clock {}"},
		"What is 6 * 7?":                             {`calculate {"expression":"6 * 7"}`},
		"compute (1+2)*3.":                           {`calculate {"expression":"(1+2)*3"}`},
		"what is 2-1 and the time?":                  {"clock {}", `calculate {"expression":"2-1"}`},
		"1+1 or 2+2":                                 {`calculate {"expression":"1+1"}`, `calculate {"expression":"2+2"}`},
		"Remember that the compass\npoints north.":   {`remember {"note":"the compass\npoints north."}`},
		"please remember: <b> at 5 pm, what a time!": {`remember {"note":"<b> at 5 pm, what a time!"}`},
		"What do you remember?":                      {"recall {}"},
		"recall my notes":                            {"recall {}"},
		"hello":                                      nil,
		"I have 3 apples":                            nil,
		"":                                           nil,
	} {
		response, _ := ask(t, model, &llm.Request{
			Messages: []session.Message{{Role: session.RoleUser, Parts: []session.Part{session.Text(words)}}}, Tools: demoTools,
		})
		m := session.Message{Parts: response.Parts}
		var got []string
		for _, call := range m.Calls() {
			got = append(got, call.Tool+" "+string(call.Input))
		}
		if strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("%q: calls %q, want %q", words, got, want)
		}
		if want == nil && !strings.Contains(m.Content(), "scripted demo") {
			t.Errorf("%q: %q does not say what this is", words, m.Content())
		}
	}
}

// What a program's own tools are called, and what they take, is up to the program.
func TestDemoCallsOtherTools(t *testing.T) {
	t.Parallel()
	const loan = `{"type":"object","properties":{"title":{"type":"string"},"days":{"type":"integer","maximum":30},"kind":{"enum":["book","map"]}},"required":["title"]}`
	tools := []llm.Tool{
		{Name: "lend_book", Schema: json.RawMessage(loan)},
		{Name: "returnBook", Schema: json.RawMessage(`{"type":"object"}`)},
		{Name: scripted.DemoOrder, Schema: json.RawMessage(`{"type":"object","properties":{"article":{"type":"string"},"quantity":{"type":"integer"}}}`)},
		{Name: scripted.DemoRemember, Schema: json.RawMessage(`{"type":"object","properties":{"note":{"type":"string"}},"required":["note"]}`)},
		{Name: "return_map", Schema: json.RawMessage(`{"type":"object"}`)},
		{Name: "_debug", Schema: json.RawMessage(`{"type":"object"}`)},
		{Name: "read_result", Schema: json.RawMessage(`{"type":"object"}`)},
	}
	for words, want := range map[string]string{
		"Please lend the map of 1812 to Bob.": `lend_book {"days":30,"kind":"map","title":"the map of 1812 to Bob"}`,
		"Return it!":                          "returnBook {}",
		"Return the maps!":                    "return_map {}",
		"Order 10 pencils.":                   `order {"article":"Order 10 pencils.","quantity":10}`,
		"Remember this.":                      `remember {"note":"this."}`,
		"Read everything.":                    "",
		"Sell it.":                            "",
	} {
		response, _ := ask(t, scripted.Demo(scripted.DemoConfig{}), &llm.Request{Messages: []session.Message{session.UserText(words)}, Tools: tools})
		m := session.Message{Parts: response.Parts}
		got := ""
		for _, call := range m.Calls() {
			got += call.Tool + " " + string(call.Input)
		}
		if got != want {
			t.Errorf("%q: calls %q, want %q", words, got, want)
		}
		if want == "" && !strings.Contains(m.Content(), `"Lend …", "Return …"`) {
			t.Errorf("%q: %q does not say what to try", words, m.Content())
		}
	}
}

func TestDemoCallsOnlyWhatIsOffered(t *testing.T) {
	t.Parallel()
	model := scripted.Demo(scripted.DemoConfig{})
	messages := []session.Message{session.UserText("What time is it?")}
	for name, request := range map[string]*llm.Request{
		"no tools":  {Messages: messages},
		"none mode": {Messages: messages, Tools: demoTools, ToolChoice: llm.ToolChoice{Mode: llm.ToolNone}},
	} {
		response, _ := ask(t, model, request)
		if response.Finish != llm.FinishStop || strings.Contains(content(response), "Try") {
			t.Errorf("%s: %+v", name, response)
		}
	}
}

func TestDemoReportsResults(t *testing.T) {
	t.Parallel()
	model := scripted.Demo(scripted.DemoConfig{})
	for _, test := range []struct {
		tool, input, output, want string
		err                       *session.Error
	}{
		{tool: "clock", output: `"12:00"`, want: "It is 12:00."},
		{tool: "calculate", input: `{"expression":"6 * 7"}`, output: `42`, want: "6 * 7 = 42"},
		{tool: "calculate", input: `[]`, output: `42`, want: "The result = 42"},
		{tool: "remember", output: `true`, want: "I will remember that."},
		{tool: "recall", output: `["a","b"]`, want: "I remember: a; b"},
		{tool: "recall", output: `null`, want: "I remember nothing yet."},
		{tool: "recall", output: `[]`, want: "I remember nothing yet."},
		{tool: "other", output: `{"x":1}`, want: `other says: {"x":1}`},
		{tool: "clock", err: session.ErrInvalid.WithMessage("broken"), want: "clock did not work: broken"},
	} {
		call := session.Part{Kind: session.PartToolCall, CallID: "c", Tool: test.tool, Input: json.RawMessage(test.input)}
		result := session.ToolResult(call, json.RawMessage(test.output))
		if test.err != nil {
			result = session.ToolFailure(call, test.err)
		}
		response, _ := ask(t, model, &llm.Request{Tools: demoTools, Messages: []session.Message{
			session.UserText("?"), {Role: session.RoleAssistant, Parts: []session.Part{call}}, result,
		}})
		if got := content(response); got != test.want {
			t.Errorf("%s %s: said %q, want %q", test.tool, test.output, got, test.want)
		}
	}
}

func TestDemoStreamsWordByWord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		model := scripted.Demo(scripted.DemoConfig{Delay: time.Second})
		request := &llm.Request{Messages: []session.Message{session.UserText("hello")}}
		begin := time.Now()
		response, deltas := ask(t, model, request)
		words := strings.Fields(content(response))
		if len(deltas) != len(words) || time.Since(begin) != time.Duration(len(words))*time.Second {
			t.Errorf("%d words came in %d pieces and %s", len(words), len(deltas), time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		partial, err := model.Generate(ctx, request, nil)
		if !errors.Is(err, context.DeadlineExceeded) || partial == nil || content(partial) != "Hello! I " {
			t.Errorf("cancelled: %+v, %v", partial, err)
		}
	})
}

// An agent that may call others does so when the user names them.
func TestDemoCallsAgents(t *testing.T) {
	t.Parallel()
	model := scripted.Demo(scripted.DemoConfig{})
	tools := []llm.Tool{
		{Name: "subagent__buyer"},
		{Name: "order"},
		{Name: "companion__spawnAgent", Description: "Call on another agent. Agents:\n- diary (answers at once): Notes."},
	}
	for words, want := range map[string]string{
		"Ask the buyer to order ten pencils.": `subagent__buyer {"task":"order ten pencils."}`,
		"please tell buyer: hurry":            `subagent__buyer {"task":"hurry"}`,
		"Tell the diary that it rained.":      `companion__spawnAgent {"agent":"diary","initialMessage":"it rained.","name":"diary"}`,
		"Order ten pencils!":                  `order {"note":"ten pencils"}`,
		"Ask the plumber to come.":            "",
	} {
		response, _ := ask(t, model, &llm.Request{Messages: []session.Message{session.UserText(words)}, Tools: tools})
		m := session.Message{Parts: response.Parts}
		got := ""
		for _, call := range m.Calls() {
			got += call.Tool + " " + string(call.Input)
		}
		if got != want {
			t.Errorf("%q: calls %s, want %s", words, got, want)
		}
		if want == "" && !strings.Contains(m.Content(), "Ask the buyer") {
			t.Errorf("%q: %q does not say whom to ask", words, m.Content())
		}
	}
}

// Whatever the schema, an agent with an output finishes with something that fits.
func TestDemoFinishes(t *testing.T) {
	t.Parallel()
	model := scripted.Demo(scripted.DemoConfig{})
	for schema, want := range map[string]string{
		`{"type":"object","properties":{"n":{"type":"integer","maximum":4},"at":{"type":"number"}}}`:                    `{"at":7.5,"n":4}`,
		`{"type":"object","properties":{"email":{"type":"string"},"size":{"enum":["small","large"]}}}`:                  `{"email":"ada@example.com","size":"large"}`,
		`{"properties":{"list":{"type":"array","items":{"type":"object","properties":{"ok":{"type":"boolean"}}}}}}`:     `{"list":[{"ok":false}]}`,
		`{"type":"object","properties":{"maybe":{"type":["null","string"]},"topics":{"type":"array","items":{}}}}`:      `{"maybe":null,"topics":["write","example","large"]}`,
		`{"type":"object","properties":{"title":{"type":"string"},"rest":{"type":"array","items":{"type":"integer"}}}}`: `{"rest":[7],"title":"Write to ada@example"}`,
		`not a schema`: `{}`,
	} {
		response, _ := ask(t, model, &llm.Request{
			Messages: []session.Message{session.UserText("Write to ada@example.com: 7.5 large ones.")},
			Tools:    []llm.Tool{{Name: session.FinishTool, Schema: json.RawMessage(schema)}},
		})
		m := session.Message{Parts: response.Parts}
		if calls := m.Calls(); len(calls) != 1 || string(calls[0].Input) != want {
			t.Errorf("%s: %+v, want %s", schema, calls, want)
		}
	}
}

// The demo works through its tasks one by one, and begins anew with the next message.
func TestDemoWorks(t *testing.T) {
	t.Parallel()
	model := scripted.Demo(scripted.DemoConfig{})
	messages := []session.Message{session.UserText("Bake a loaf of bread.")}
	for round := range 2 {
		var tasks []string
		for step := 1; step <= 6; step++ {
			response, _ := ask(t, model, &llm.Request{Messages: messages, Tools: []llm.Tool{{Name: scripted.DemoWork}}})
			m := session.Message{Role: session.RoleAssistant, Parts: response.Parts}
			calls := m.Calls()
			if len(calls) != 1 || !strings.Contains(m.Content(), fmt.Sprintf("Step %d of 6", step)) {
				t.Fatalf("round %d, step %d: %q with %d calls", round, step, m.Content(), len(calls))
			}
			var in struct{ Task string }
			if err := json.Unmarshal(calls[0].Input, &in); err != nil {
				t.Fatal(err)
			}
			tasks = append(tasks, in.Task)
			messages = append(messages, m, session.ToolResult(calls[0], json.RawMessage(`{"task":"`+in.Task+`","from":"1","until":"2"}`)))
		}
		response, _ := ask(t, model, &llm.Request{Messages: messages, Tools: []llm.Tool{{Name: scripted.DemoWork}}})
		for _, task := range tasks {
			if !strings.Contains(content(response), task+", from 1 until 2") {
				t.Errorf("%q does not tell of %q", content(response), task)
			}
		}
		messages = append(messages, session.Message{Role: session.RoleAssistant, Parts: response.Parts}, session.UserText("Bake another one."))
	}
	failed := session.ToolFailure(session.Part{CallID: "c", Tool: scripted.DemoWork}, session.ErrInvalid.WithMessage("no flour"))
	response, _ := ask(t, model, &llm.Request{Messages: append(messages, failed), Tools: []llm.Tool{{Name: scripted.DemoWork}}})
	if !strings.Contains(content(response), "no flour") {
		t.Errorf("a failure: %q", content(response))
	}
	stopped := session.ToolFailure(session.Part{CallID: "c", Tool: scripted.DemoWork}, &session.Error{Code: session.CodeRunStopped, Message: "stopped"})
	for n := range 6 {
		messages = append(messages, stopped)
		response, _ = ask(t, model, &llm.Request{Messages: messages, Tools: []llm.Tool{{Name: scripted.DemoWork}}})
		want := "Step 1 of 6, once more: "
		if n >= 4 {
			want = "interrupted too often"
		}
		if !strings.Contains(content(response), want) {
			t.Errorf("interrupted %d times: %q", n+1, content(response))
		}
	}
}
