package helix_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
)

type query struct {
	Query string `json:"query"`
	Limit int    `json:"limit,omitempty"`
}

func noop(context.Context, *helix.Call, query) (string, error) { return "", nil }

// plugin is an extension that adds nothing.
type plugin struct {
	name  string
	kinds []string
}

func (p *plugin) Name() string { return p.name }

func (p *plugin) Attach(context.Context, *helix.Turn) (*helix.Attachment, error) { return nil, nil } //nolint:nilnil // nothing

func (p *plugin) TaskKinds() []string { return p.kinds }

func (p *plugin) HandleTask(context.Context, *session.Task) error { return nil }

func extensions(list ...helix.Extension) func(*helix.Agent) {
	return func(a *helix.Agent) { a.Extensions = list }
}

// TestAgentCheck requires that a wrong definition is refused with an error that
// names agent, tool and field.
func TestAgentCheck(t *testing.T) {
	t.Parallel()
	tool := func(change func(*helix.Tool)) func(*helix.Agent) {
		return func(a *helix.Agent) { change(&a.Tools[0]) }
	}
	for _, c := range []struct {
		name   string
		change func(*helix.Agent)
		want   []string
	}{
		{"no name", func(a *helix.Agent) { a.Name = "" }, []string{"agent name"}},
		{"bad name", func(a *helix.Agent) { a.Name = "a b" }, []string{"agent name", `"a b"`}},
		{"no model", func(a *helix.Agent) { a.Model = nil }, []string{"agent a", "Model"}},
		{"two instructions", func(a *helix.Agent) {
			a.Instructions = "x"
			a.InstructionsFunc = func(context.Context, *helix.Prompt) (string, error) { return "", nil }
		}, []string{"agent a", "Instructions"}},
		{"negative limit", func(a *helix.Agent) { a.MaxSteps = -2 }, []string{"MaxSteps", "Unlimited"}},
		{"state that is no object", func(a *helix.Agent) { a.State = helix.StateOf(3) }, []string{"agent a", "State"}},
		{"state that cannot be encoded", func(a *helix.Agent) { a.State = helix.StateOf(struct{ C chan int }{}) }, []string{"agent a", "State"}},
		{"output that is no object", func(a *helix.Agent) { a.Output = helix.OutputOf[[]string]() }, []string{"agent a", "Output"}},
		{"raw output that is no object", func(a *helix.Agent) {
			a.Output = helix.RawOutput(json.RawMessage(`{"type":"string"}`))
		}, []string{"agent a", "Output", "object"}},
		{"raw output that is no schema", func(a *helix.Agent) {
			a.Output = helix.RawOutput(json.RawMessage(`{"type":7}`))
		}, []string{"agent a", "Output"}},
		{"raw input that is no object", func(a *helix.Agent) {
			a.SubAgents = []helix.SubAgent{{Agent: &helix.Agent{Name: "b"}, Input: helix.RawInput(json.RawMessage(`{"type":"array"}`))}}
		}, []string{"sub-agent b", "Input", "object"}},
		{"tool without name", tool(func(t *helix.Tool) { t.Name = "" }), []string{"agent a", "Tools"}},
		{"tool with a reserved name", tool(func(t *helix.Tool) { t.Name = "__finish__" }), []string{"__finish__", "reserved"}},
		{"tool that reads results", tool(func(t *helix.Tool) { t.Name = "read_result" }), []string{"read_result", "reserved"}},
		{"tool that loads skills", tool(func(t *helix.Tool) { t.Name = "load_skill" }), []string{"load_skill", "reserved"}},
		{"tool that reads files of skills", tool(func(t *helix.Tool) { t.Name = "read_skill_file" }), []string{"read_skill_file", "reserved"}},
		{"tool with a reserved prefix", tool(func(t *helix.Tool) { t.Name = "subagent__x" }), []string{"subagent__x", "reserved"}},
		{"tool without function", tool(func(t *helix.Tool) { t.Execute = nil }), []string{"tool search", "Execute"}},
		{"tool that reads and finishes", tool(func(t *helix.Tool) { t.ReadOnly, t.FinishWith = true, true }), []string{"tool search", "ReadOnly"}},
		{"tool whose input is no object", tool(func(t *helix.Tool) {
			t.Execute = helix.Func(func(context.Context, *helix.Call, string) (string, error) { return "", nil })
		}), []string{"tool search", "input"}},
		{"tool whose input has no schema", tool(func(t *helix.Tool) {
			t.Execute = helix.Func(func(context.Context, *helix.Call, struct{ C chan int }) (string, error) { return "", nil })
		}), []string{"tool search", "input"}},
		{"tool that is serial on the client", tool(func(t *helix.Tool) { t.Serial, t.Execute = true, helix.OnClient[query]() }), []string{"tool search", "Serial"}},
		{"tool that is serial and finishes", tool(func(t *helix.Tool) { t.Serial, t.FinishWith = true, true }), []string{"tool search", "Serial"}},
		{"nil extension", extensions(nil), []string{"agent a", "Extensions", "nil", "index 0"}},
		{"nil pointer as an extension", extensions((*plugin)(nil)), []string{"Extensions", "nil", "index 0"}},
		{"extension with a bad name", extensions(&plugin{name: "a b"}), []string{"Extensions", `"a b"`}},
		{"two extensions of one name", extensions(&plugin{name: "x"}, &plugin{name: "x"}), []string{"Extensions", `"x" twice`}},
		{"two handlers of one kind", extensions(&plugin{name: "x", kinds: []string{"k"}}, &plugin{name: "y", kinds: []string{"k"}}), []string{"x", "y", `"k"`}},
		{"a kind without a name", extensions(&plugin{name: "x", kinds: []string{""}}), []string{"extension x", "kind"}},
		{"too many extensions", extensions(make([]helix.Extension, helix.MaxExtensions+1)...), []string{"Extensions", "33", "32"}},
		{"the same tool twice", func(a *helix.Agent) { a.Tools = append(a.Tools, a.Tools[0]) }, []string{"search", "twice"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := &helix.Agent{Name: "a", Model: scripted.New(), Tools: []helix.Tool{{Name: "search", Execute: helix.Func(noop)}}}
			if err := a.Check(); err != nil {
				t.Fatalf("the unchanged agent is refused: %v", err)
			}
			c.change(a)
			err := a.Check()
			if err == nil {
				t.Fatal("it is accepted")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not name %q", err, want)
				}
			}
		})
	}
}

// TestSchemaNamesTheField requires that a value that does not fit is refused with
// the field's name.
func TestSchemaNamesTheField(t *testing.T) {
	t.Parallel()
	type inner struct {
		Deep int `json:"deep"`
	}
	type input struct {
		Query string   `json:"query" jsonschema:"what to look for"`
		Tags  []string `json:"tags,omitempty"`
		In    *inner   `json:"in,omitempty"`
	}
	schema, err := helix.SchemaFor[input]()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(schema.JSON()), "what to look for") {
		t.Errorf("the schema has no description: %s", schema.JSON())
	}
	for value, want := range map[string]string{
		`{"query":"x"}`:                   "",
		`{"query":5}`:                     "query",
		`{}`:                              "query",
		`{"query":"x","tags":"no"}`:       "tags",
		`{"query":"x","in":{"deep":"x"}}`: "in.deep",
		`{"query":"x","more":1}`:          "more",
		`[]`:                              "object",
		`{"query":`:                       "JSON",
	} {
		err := schema.Validate(json.RawMessage(value))
		switch {
		case want == "" && err != nil:
			t.Errorf("%s is refused: %v", value, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v does not name %q", value, err, want)
		}
	}
}
