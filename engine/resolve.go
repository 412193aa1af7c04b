package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/usercode"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// toolResolver knows what a call of the agent's model means: which tool, sub-agent,
// companion tool or client tool it names, what input that takes, and whether a person
// has to approve it.
type toolResolver struct {
	userEnv
	agent      *helix.Agent // never changes
	sessionID  string       // of the agent's session; never changes
	extensions *extensions  // guards itself
	reader     *helix.Tool  // reads results that were evicted; nil if the agent evicts none; never changes
}

// tool returns a tool of the agent, or of the extensions that are attached, or the one that
// reads evicted results, or nil.
func (r *toolResolver) tool(name string) *helix.Tool {
	if tool := toolByName(r.agent, name); tool != nil {
		return tool
	}
	if r.reader != nil && name == r.reader.Name {
		return r.reader
	}
	return r.extensions.known().tool(name)
}

// attach attaches the extensions, unless that was done.
func (r *toolResolver) attach(ctx context.Context, key string) (*attached, error) {
	return r.extensions.attach(ctx, r.agent, key)
}

// unknown is the error of a call of a tool that does not exist. It names the extensions
// that could not be attached, because the tool may be theirs.
func (r *toolResolver) unknown(format, name string) *session.Error {
	err := toolError(session.CodeToolUnknown, format, name)
	if missing := r.extensions.known().missing; len(missing) > 0 {
		err.Message += "; these extensions could not be attached: " + strings.Join(missing, ", ")
	}
	return err
}

// resolve records in a call's row how the call is carried out, or why it is
// rejected, as it is if its input has more than room bytes. It repairs a name or an input
// that no store would keep.
func (r *toolResolver) resolve(row *session.Call, part *session.Part, room int, finishOnly bool) {
	row.Kind = session.CallServer
	if session.CheckKeyID("tool", part.Tool) != nil { // no store would keep it
		part.Tool, row.Tool = "unnamed", "unnamed"
	}
	if size := len(part.Input); size > room { // first, because to read it takes a multiple of its size
		row.Rejected = toolError(session.CodeToolInput, "the arguments of %s have %d bytes, and there is room for %d in this reply", part.Tool, size, room)
		part.Input = invalidArguments(strings.ToValidUTF8(string(part.Input[:min(size, shownArguments)]), "") + "…")
		return
	}
	if len(bytes.TrimSpace(part.Input)) == 0 {
		part.Input = json.RawMessage("{}")
	}
	if !json.Valid(part.Input) || !utf8.Valid(part.Input) {
		row.Rejected = toolError(session.CodeToolInput, "the arguments of %s are not valid JSON", part.Tool)
		part.Input = invalidArguments(string(part.Input))
		return
	}
	// Policies, people, stores and tools read the input: all must read the same in it.
	if err := ambiguous(part.Input); err != nil {
		row.Rejected = toolError(session.CodeToolInput, "the input of %s does not fit: %v", part.Tool, err)
		return
	}
	if part.Tool == session.FinishTool && r.agent.Output != nil {
		row.Kind = session.CallFinish
		if err := r.agent.Output.Schema().Validate(part.Input); err != nil {
			row.Rejected = toolError(session.CodeToolInput, "the result does not fit: %v", err)
		}
		return
	}
	if r.resolveAgent(row, part, finishOnly) {
		return
	}
	tool := r.tool(part.Tool)
	switch {
	case tool == nil:
		row.Rejected = r.unknown("there is no tool named %q", part.Tool)
		return
	case finishOnly:
		row.Rejected = toolError(session.CodeToolNotRun, "only %s may be called now", session.FinishTool)
		return
	}
	row.ReadOnly, row.Idempotent, row.FinishWith, row.Serial = tool.ReadOnly, tool.Idempotent, tool.FinishWith, tool.Serial
	schema, err := tool.Execute.InputSchema()
	if err == nil {
		err = schema.ValidateInput(part.Input)
	}
	switch {
	case err != nil:
		row.Rejected = toolError(session.CodeToolInput, "the input of %s does not fit: %v", part.Tool, err)
	case tool.OnClient():
		row.Kind = session.CallClient
	}
}

// shownArguments is how much is kept of arguments that are too large.
const shownArguments = 1000

// invalidArguments is an input that shows the model what it wrote.
func invalidArguments(text string) json.RawMessage {
	input, _ := session.Encode(map[string]string{"invalid_arguments": text}) // text always encodes
	return input
}

// resolveAgent does the same for a call of a sub-agent or a companion tool. It
// reports whether the call is one.
func (r *toolResolver) resolveAgent(row *session.Call, part *session.Part, finishOnly bool) bool {
	sub := subAgentByTool(r.agent, part.Tool)
	companion := r.companionSchema(part.Tool)
	schema := companion
	if sub != nil {
		schema = subAgentInput(sub)
	}
	if schema == nil {
		return false
	}
	if finishOnly {
		row.Rejected = toolError(session.CodeToolNotRun, "only %s may be called now", session.FinishTool)
		return true
	}
	if err := schema.ValidateInput(part.Input); err != nil {
		row.Rejected = toolError(session.CodeToolInput, "the input of %s does not fit: %v", part.Tool, err)
		return true
	}
	row.Idempotent = true // a repeated call finds the session that the first one made
	switch {
	case sub != nil && sub.Remote != nil:
		row.Kind, row.Child = session.CallRemote, session.NewChildID(r.sessionID, "remote", row.ID)
		return true
	case sub != nil:
		row.Kind, row.Child = session.CallSubAgent, session.NewChildID(r.sessionID, "sub", row.ID)
		return true
	}
	row.Kind = session.CallCompanion
	return true
}

// requireApprovals asks the approval policies of tools which calls a person has to
// approve. The decisions are part of the reply's commit, so that policies are asked
// once. If a policy fails, the call needs approval. written is what hooks wrote in the
// step so far.
func (r *toolResolver) requireApprovals(ctx context.Context, key string, f *flight, written session.Writes) {
	hung := map[string]error{} // by tool: policies that have not returned in time; the calls of a reply may be many
	for _, c := range f.calls {
		tool := r.tool(c.Tool)
		if tool == nil || tool.Approval == nil || c.Kind != session.CallServer || c.Rejected != nil {
			continue
		}
		needed, err := false, hung[c.Tool]
		if err == nil {
			needed, err = r.needsApproval(ctx, key, tool, c, written)
		}
		if errors.Is(err, usercode.ErrTimeout) {
			hung[c.Tool] = err
		}
		if err != nil {
			r.log.WarnContext(ctx, "approval_gate.failed", r.attrs("tool", c.Tool, "error", err, "effect", "the call requires approval")...)
		}
		if needed || err != nil {
			c.Kind = session.CallApproval
		}
	}
}

func (r *toolResolver) needsApproval(ctx context.Context, key string, tool *helix.Tool, c *call, written session.Writes) (bool, error) {
	limit := r.limit.limit
	if ofTool := callTimeout(tool); ofTool > 0 {
		limit = ofTool
	}
	draft := r.draft(written)
	handle := &helix.Call{ID: c.ID, Tool: c.Tool, Input: c.part.Input}
	r.scope(&handle.Scope, key, draft)
	needed, err := callShorter(ctx, r.limit, limit, r.agent.Name, r.pool, func(ctx context.Context) (bool, error) {
		needed, err := tool.Approval(ctx, handle, c.part.Input)
		if err == nil {
			err = context.Cause(ctx) // an answer that comes after the limit does not count
		}
		return needed, err
	})
	_, _ = draft.Close() // a policy decides and changes nothing
	return needed, err
}

// pending makes the entry of a call that waits for a person, who may answer it until
// the tool's deadline.
func (r *toolResolver) pending(c *call, now time.Time) session.Pending {
	p := session.Pending{
		CallID: c.ID, MessageID: c.MessageID, Tool: c.Tool, Input: c.part.Input, Kind: session.PendingClientTool,
		Fingerprint: session.Fingerprint(c.Tool, c.part.Input), CreatedAt: now,
	}
	if c.Kind == session.CallApproval {
		p.Kind, p.ApprovalID = session.PendingApproval, session.NewApprovalID()
	}
	if tool := r.tool(c.Tool); tool != nil {
		p.Policy = tool.Approver != nil
		if limit := waitLimit(tool); limit > 0 {
			p.Deadline = now.Add(limit)
		}
	}
	return p
}

// approverOf returns the policy of an agent that decides who may answer a call, or
// nil. A call that was made under a policy is refused if the tool has none any more.
func approverOf(ctx context.Context, agent *helix.Agent, p *session.Pending) (func(context.Context, *helix.Answer) error, error) {
	tool, err := toolOutside(ctx, agent, p.Tool)
	switch {
	case err != nil:
		return nil, err
	case tool != nil && tool.Approver != nil:
		return tool.Approver, nil
	case !p.Policy:
		return nil, nil
	}
	return nil, session.ErrNotAllowed.WithMessage("call %s: the tool %s, which decides who may answer, no longer has an Approver", p.CallID, p.Tool)
}

// offered lists the tools that the model may call, in an order that does not change: the
// agent's, those of its extensions, the one that reads evicted results, sub-agents and
// companion tools. The finish tool is not one of them.
func (r *toolResolver) offered() ([]llm.Tool, error) {
	agent := r.agent
	attached := r.extensions.known()
	tools := slices.Grow([]llm.Tool(nil), len(agent.Tools)+len(attached.tools)+len(agent.SubAgents)+1)
	for i := range agent.Tools {
		tool := &agent.Tools[i]
		schema, err := tool.Execute.InputSchema()
		if err != nil {
			return nil, err
		}
		tools = append(tools, llm.Tool{
			Name: tool.Name, Description: tool.Description, Schema: schema.JSON(), Strict: tool.Strict,
		})
	}
	for i := range attached.tools {
		tools = append(tools, attached.tools[i].offer)
	}
	if r.reader != nil {
		tools = append(tools, readOffer(r.reader))
	}
	for i := range agent.SubAgents {
		sub := &agent.SubAgents[i]
		tools = append(tools, llm.Tool{Name: subAgentTool(sub), Description: describeSubAgent(sub), Schema: subAgentInput(sub).JSON()})
	}
	return append(tools, r.companionTools()...), nil
}

// instructions are those of the agent, followed by those of its extensions.
func (r *toolResolver) instructions(own string) string {
	more := r.extensions.known().instructions
	if len(more) == 0 {
		return own
	}
	if own != "" {
		more = append([]string{own}, more...)
	}
	return strings.Join(more, "\n\n")
}

// finishTool is the tool with which the model gives the agent's output.
func (r *toolResolver) finishTool(strict bool) llm.Tool {
	return llm.Tool{
		Name:        session.FinishTool,
		Description: "Finish with the final result. Call this once the task is done; its arguments are the result.",
		Schema:      r.agent.Output.Schema().JSON(),
		Strict:      strict,
	}
}

// toolError makes the error of a call, as the model sees it.
func toolError(code session.Code, format string, args ...any) *session.Error {
	return (&session.Error{Code: code}).WithMessage(format, args...)
}
