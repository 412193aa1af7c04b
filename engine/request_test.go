package engine

import (
	"context"
	"errors"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
)

func builder(t *testing.T, agent *helix.Agent) *promptBuilder {
	t.Helper()
	env := newHooked(t).userEnv
	return &promptBuilder{userEnv: env, agent: agent, tools: &toolResolver{userEnv: env, agent: agent, sessionID: "s"}, sessionID: "s", runID: "r"}
}

func transcript(t *testing.T, messages ...session.Message) *session.Transcript {
	t.Helper()
	out, err := session.NewTranscript(messages)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// What a request holds follows from the agent's definition, the transcript and
// whether the model can only finish.
func TestRequest(t *testing.T) {
	t.Parallel()
	user := session.UserText("hi")
	agent := clerk()
	agent.Instructions, agent.Settings = "Work.", llm.Settings{StrictOutput: true, Headers: map[string]string{"a": "b"}}
	for _, c := range []struct {
		name       string
		output     bool
		finishOnly bool
		tools      int
		last       string
		choice     llm.ToolChoice
	}{
		{"all tools", false, false, 13, helix.WaitForResultTool, llm.ToolChoice{}},
		{"all tools, then the one that finishes", true, false, 14, session.FinishTool, llm.ToolChoice{}},
		{"only the one that finishes", true, true, 1, session.FinishTool, llm.ToolChoice{Mode: llm.ToolNamed, Name: session.FinishTool}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			agent := *agent
			if !c.output {
				agent.Output = nil
			}
			got, err := builder(t, &agent).request(t.Context(), &promptInput{key: "k", step: 3, finishOnly: c.finishOnly, transcript: transcript(t, user)})
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Tools) != c.tools || got.Tools[len(got.Tools)-1].Name != c.last || got.ToolChoice != c.choice {
				t.Errorf("%d tools, the last is %s, and the choice %+v", len(got.Tools), got.Tools[len(got.Tools)-1].Name, got.ToolChoice)
			}
			if got.Agent != "clerk" || got.SessionID != "s" || got.RunID != "r" || got.Step != 3 || got.Instructions != "Work." || len(got.Messages) != 1 {
				t.Errorf("the request is %+v", got)
			}
			got.Settings.Headers["a"] = "changed by a hook"
			if agent.Settings.Headers["a"] != "b" {
				t.Error("a hook that changes a request changes the agent")
			}
		})
	}
}

// Functions of the definition see the state and win over fixed values; one that fails
// fails the model call.
func TestRequestFromFunctions(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	agent := &helix.Agent{
		Name: "a", Instructions: "fixed",
		InstructionsFunc: func(_ context.Context, p *helix.Prompt) (string, error) {
			if p.MessageCount != 1 || p.Key != "k" {
				t.Errorf("the function sees %d messages under key %q", p.MessageCount, p.Key)
			}
			return "made", nil
		},
		ModelFunc: func(context.Context, *helix.Prompt) (llm.Model, error) { return nil, nil },
	}
	in := &promptInput{key: "k", step: 1, transcript: transcript(t, session.UserText("hi"))}
	b := builder(t, agent)
	got, err := b.request(t.Context(), in)
	if err != nil || got.Instructions != "made" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := b.model(t.Context(), in); !errors.Is(err, session.ErrInternal) {
		t.Errorf("a ModelFunc without a model: %v", err)
	}
	agent.ModelFunc, agent.Model = nil, scripted.New()
	if model, err := b.model(t.Context(), in); err != nil || model != agent.Model {
		t.Errorf("%v, %v", model, err)
	}
	agent.SettingsFunc = func(context.Context, *helix.Prompt) (llm.Settings, error) { return llm.Settings{}, refused }
	if _, err := b.request(t.Context(), in); !errors.Is(err, session.ErrInternal) {
		t.Errorf("a SettingsFunc that fails: %v", err)
	}
}
