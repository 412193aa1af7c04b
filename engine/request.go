package engine

import (
	"context"
	"maps"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// promptBuilder makes the requests of a turn's model calls: instructions, messages,
// tools and settings. All fields never change.
type promptBuilder struct {
	userEnv
	agent     *helix.Agent
	tools     *toolResolver
	sessionID string
	runID     string
}

// promptInput is what a request is made from.
type promptInput struct {
	key        string // of the effect
	step       int
	finishOnly bool // the model can only call the finish tool
	transcript *session.Transcript
	prepared   []session.Message // by extensions: it follows the transcript
	written    session.Writes    // by hooks, in the step so far
}

// request builds the request of a model call. A transcript that a provider would
// refuse is an error.
func (b *promptBuilder) request(ctx context.Context, in *promptInput) (*llm.Request, error) {
	if err := in.transcript.Sendable(); err != nil {
		return nil, err
	}
	instructions, err := fromState(ctx, b, in, "InstructionsFunc", b.agent.Instructions, b.agent.InstructionsFunc)
	if err != nil {
		return nil, err
	}
	settings, err := fromState(ctx, b, in, "SettingsFunc", b.agent.Settings, b.agent.SettingsFunc)
	if err != nil {
		return nil, err
	}
	request := &llm.Request{
		Agent: b.agent.Name, SessionID: b.sessionID, RunID: b.runID, Step: in.step,
		Instructions: b.tools.instructions(instructions), Messages: append(in.transcript.View(), in.prepared...), Settings: settings,
	}
	request.Settings.Headers = maps.Clone(request.Settings.Headers) // hooks may change the request
	if in.finishOnly {
		request.Tools = []llm.Tool{b.tools.finishTool(settings.StrictOutput)}
		request.ToolChoice = llm.ToolChoice{Mode: llm.ToolNamed, Name: session.FinishTool}
		return request, nil
	}
	tools, err := b.tools.offered()
	if err != nil {
		return nil, err
	}
	request.Tools = tools
	if b.agent.Output != nil {
		request.Tools = append(request.Tools, b.tools.finishTool(settings.StrictOutput))
	}
	return request, nil
}

// model returns the model to ask.
func (b *promptBuilder) model(ctx context.Context, in *promptInput) (llm.Model, error) {
	model, err := fromState(ctx, b, in, "ModelFunc", b.agent.Model, b.agent.ModelFunc)
	if err == nil && model == nil {
		err = session.ErrInternal.WithMessage("agent %s: ModelFunc returned no model", b.agent.Name)
	}
	return model, err
}

// fromState returns a part of the agent's definition: the fixed value or, if there is
// a function, what the function makes of the state.
func fromState[V any](
	ctx context.Context, b *promptBuilder, in *promptInput, name string, fixed V, compute func(context.Context, *helix.Prompt) (V, error),
) (V, error) {
	if compute == nil {
		return fixed, nil
	}
	draft := b.draft(in.written)
	prompt := &helix.Prompt{MessageCount: in.transcript.Len()}
	b.scope(&prompt.Scope, in.key, draft)
	made, err := callLimitedKeeping(ctx, b.limit, b.agent.Name, b.pool, func(ctx context.Context) (V, error) { return compute(ctx, prompt) })
	if _, draftErr := draft.Close(); err == nil {
		err = draftErr
	}
	if err != nil {
		err = session.ErrInternal.WithCause(err, "agent %s: %s failed", b.agent.Name, name)
	}
	return made, err
}
