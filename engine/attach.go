package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/internal/usercode"
	"github.com/helixagents/helix/internal/access"
	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// Limits of an attachment; see [helix.Attachment].
const (
	maxInstructions  = 256 << 10
	maxAttachedTools = 256
	maxToolBytes     = 128 << 10 // of a tool's description and schema
	maxWarnings      = 16
	maxWarningBytes  = 1 << 10
)

// attached is what the extensions of a turn have added to it. It never changes.
type attached struct {
	instructions []string
	tools        []attachedTool
	missing      []string // the extensions that could not be attached
}

// attachedTool is a tool of an extension.
type attachedTool struct {
	helix.Tool
	offer llm.Tool // as the model is offered it, made once, so that its bytes stay the same
	from  string   // the extension
}

// tool returns a tool by its name, or nil.
func (a *attached) tool(name string) *helix.Tool {
	for i := range a.tools {
		if a.tools[i].Name == name {
			return &a.tools[i].Tool
		}
	}
	return nil
}

// nothing is what no extension adds.
var nothing = &attached{}

// known returns what the extensions have added so far.
func (x *extensions) known() *attached {
	if x == nil {
		return nothing
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.attached == nil {
		return nothing
	}
	return x.attached
}

// attach asks the extensions what they add to the turn, unless that was done. An effect
// that comes meanwhile waits for the one that asks. If the effect that asks is cut off, the
// next one asks again.
func (x *extensions) attach(ctx context.Context, agent *helix.Agent, key string) (*attached, error) {
	if x == nil {
		return nothing, nil
	}
	for {
		x.mu.Lock()
		got, err, busy := x.attached, x.failed, x.attaching
		first := got == nil && err == nil && busy == nil
		if first {
			x.attaching = make(chan struct{})
		}
		x.mu.Unlock()
		switch {
		case first:
			return x.attachAll(ctx, agent, key)
		case busy == nil:
			return got, err
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// attachAll asks all extensions and puts together what they add.
func (x *extensions) attachAll(ctx context.Context, agent *helix.Agent, key string) (got *attached, err error) {
	defer func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		close(x.attaching)
		x.attaching = nil
		if ctx.Err() == nil {
			x.attached, x.failed = got, err
		}
	}()
	answers := make([]answer[*attachment], len(x.list))
	var wg sync.WaitGroup
	for i, extension := range x.list {
		answers[i].from = extension
		wg.Go(func() { answers[i].value, answers[i].err = x.attachOne(ctx, key, extension) })
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	out := &attached{}
	for i := range answers {
		a := &answers[i]
		name := a.from.Name()
		if a.err == nil {
			a.err = out.add(agent, name, a.value)
		}
		if a.err == nil {
			for _, warning := range a.value.warnings {
				x.log.WarnContext(ctx, "extension.warning", x.attrs("extension", name, "warning", warning)...)
				x.warn(name, warning)
			}
			continue
		}
		if required(a.from) {
			x.log.WarnContext(ctx, "extension.not_attached", x.failure(name, a.err, "the run fails")...)
			return nil, bounded((&session.Error{Code: session.CodeExtension}).WithCause(a.err, "extension %s could not be attached", name))
		}
		x.log.WarnContext(ctx, "extension.not_attached", x.failure(name, a.err, "the turn goes on without its tools and instructions")...)
		out.missing = append(out.missing, name)
		text := "It could not be attached. Its tools and instructions are missing."
		if e, ok := errors.AsType[*session.Error](a.err); ok && e.Code == session.CodeInvalid { // what is wrong with it is no secret
			text += " " + bounded(e).Message
		}
		x.warn(name, text)
	}
	return out, nil
}

// required reports whether no turn may run without an extension. One that panics when it is
// asked is.
func required(extension helix.Extension) bool {
	r, ok := extension.(helix.Required)
	if !ok {
		return false
	}
	yes := true
	_ = usercode.Guard(func() error {
		yes = r.Required()
		return nil
	})
	return yes
}

// attachment is what one extension adds, checked.
type attachment struct {
	instructions string
	tools        []attachedTool
	warnings     []string
}

// attachOne asks one extension. If no turn may run without it, an error that may pass is
// retried as often as that of a model.
func (x *extensions) attachOne(ctx context.Context, key string, extension helix.Extension) (*attachment, error) {
	for attempt := 1; ; attempt++ {
		got, err := askOne(ctx, x, key, attachLimit, func(ctx context.Context, turn *helix.Turn) (*attachment, error) {
			got, err := extension.Attach(ctx, turn)
			if err != nil || got == nil {
				return &attachment{}, err
			}
			return newAttachment(extension, got) // it calls the tools' code
		})
		if err == nil || ctx.Err() != nil || attempt > x.retries || !session.IsRetryable(err) || !required(extension) {
			return got, err
		}
		wait := backoff(x.backoff, attempt, err, rand.N[time.Duration])
		x.log.WarnContext(ctx, "extension.retried", x.attrs("extension", extension.Name(), "attempt", attempt, "wait", wait, "error", err)...)
		if err := retry.Sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// newAttachment checks what an extension adds, and keeps a copy.
func newAttachment(extension helix.Extension, got *helix.Attachment) (*attachment, error) {
	owner := "extension " + extension.Name()
	if n := len(got.Instructions); n > maxInstructions {
		return nil, session.Invalid(owner+": Instructions", "have %d bytes, at most %d are allowed", n, maxInstructions)
	}
	if err := session.CheckText(owner+": Instructions", got.Instructions); err != nil {
		return nil, err
	}
	if err := checkTools(extension, got.Tools); err != nil {
		return nil, err
	}
	out := &attachment{instructions: got.Instructions, tools: make([]attachedTool, 0, len(got.Tools))}
	for i := range got.Tools {
		tool := got.Tools[i]
		schema, err := tool.Execute.InputSchema()
		if err != nil {
			return nil, err
		}
		out.tools = append(out.tools, attachedTool{
			Tool: tool, from: extension.Name(),
			offer: llm.Tool{Name: tool.Name, Description: tool.Description, Schema: slices.Clone(schema.JSON()), Strict: tool.Strict},
		})
	}
	for _, warning := range got.Warnings[:min(len(got.Warnings), maxWarnings)] {
		out.warnings = append(out.warnings, cleanText(warning[:min(len(warning), maxWarningBytes)]))
	}
	return out, nil
}

// checkTools checks the tools of an extension.
func checkTools(extension helix.Extension, tools []helix.Tool) error {
	owner := "extension " + extension.Name()
	if len(tools) > maxAttachedTools {
		return session.Invalid(owner+": Tools", "are %d, at most %d are allowed", len(tools), maxAttachedTools)
	}
	seen := map[string]bool{}
	_, finds := extension.(helix.ToolFinder)
	for i := range tools {
		tool := &tools[i]
		if err := access.CheckTool(tool, owner, access.IsFramework(extension)); err != nil {
			return err
		}
		if seen[tool.Name] {
			return session.Invalid(owner+": Tools", "contains %q twice", tool.Name)
		}
		seen[tool.Name] = true
		if tool.Approver != nil && !finds {
			return session.Invalid(owner+": tool "+tool.Name, "has an Approver, which needs an extension that is a helix.ToolFinder")
		}
		if err := session.CheckText(owner+": description of "+tool.Name, tool.Description); err != nil {
			return err
		}
		schema, err := tool.Execute.InputSchema()
		if err != nil {
			return err
		}
		if n := len(tool.Description) + len(schema.JSON()); n > maxToolBytes {
			return session.Invalid(owner+": tool "+tool.Name, "has a description and a schema of %d bytes, at most %d are allowed", n, maxToolBytes)
		}
	}
	return nil
}

// add adds what an extension adds. A name must not be taken.
func (a *attached) add(agent *helix.Agent, name string, more *attachment) error {
	for i := range more.tools {
		tool := more.tools[i].Name
		taken := ""
		if toolByName(agent, tool) != nil {
			taken = "agent " + agent.Name
		}
		for j := range a.tools {
			if a.tools[j].Name == tool {
				taken = "extension " + a.tools[j].from
			}
		}
		if taken != "" {
			return session.Invalid("extension "+name+": Tools", "contains %q, which is a tool of %s, too", tool, taken)
		}
	}
	a.tools = append(a.tools, more.tools...)
	if text := strings.TrimSpace(more.instructions); text != "" {
		a.instructions = append(a.instructions, text)
	}
	return nil
}

// warn shows the readers of the stream a warning of an extension, or about it.
func (t *turn) warn(extension, message string) {
	t.emit(stream.Chunk{Kind: stream.Custom, Name: helix.WarningEvent, Data: encoded(helix.Warning{Extension: extension, Message: message})})
}
