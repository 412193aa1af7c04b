package helix

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/helixagents/helix/session"
)

// DefaultToolTimeout bounds a call of a tool that sets no timeout.
const DefaultToolTimeout = 5 * time.Minute

// DefaultDeadline is how long a call waits for a person unless its tool says so.
const DefaultDeadline = 24 * time.Hour

// NoDeadline lets a call wait for a person for ever.
const NoDeadline = Unlimited

// Tool is something the model may call.
type Tool struct {
	Name        string
	Description string
	// Execute carries the call out; see [Func]. One that [OnClient] makes is carried
	// out by whoever answers the call.
	Execute Callable
	// Approval, if set, says which calls a person must approve before they are
	// carried out; see [ApproveAlways] and [ApproveWhen].
	Approval Approval
	// Approver, if set, decides who may answer a call that waits. It is asked when an
	// answer is submitted; an error refuses that answer, and the call stays open for
	// others.
	Approver func(ctx context.Context, answer *Answer) error
	// Deadline is how long a call waits for a person before it is answered with a
	// timeout. Defaults to 24 hours; [NoDeadline] lifts it.
	Deadline time.Duration
	// ReadOnly says that the tool has no effect: it may run again at any time and
	// needs no record before it starts.
	ReadOnly bool
	// Idempotent says that the tool has an effect but may run again after a crash,
	// for example because it hands [Call.IdempotencyKey] to the service it calls.
	Idempotent bool
	// FinishWith makes the tool's output the session's output: a call that succeeds
	// completes the turn. Such calls run after all others of the same reply, one
	// after another, and see the state those left.
	FinishWith bool
	// Timeout bounds one call. Defaults to 5 minutes; [Unlimited] lifts it.
	Timeout time.Duration
	// Strict asks the model's provider to constrain arguments to the schema.
	Strict bool
}

// CallTimeout is the bound of one call, or 0 for none.
func (t *Tool) CallTimeout() time.Duration { return bound(t.Timeout, DefaultToolTimeout) }

// WaitLimit is how long a call waits for a person, or 0 for ever.
func (t *Tool) WaitLimit() time.Duration { return bound(t.Deadline, DefaultDeadline) }

// Waits reports whether calls of the tool may wait for a person.
func (t *Tool) Waits() bool { return t.Approval != nil || t.OnClient() }

// OnClient reports whether whoever answers a call of the tool carries it out.
func (t *Tool) OnClient() bool { _, ok := t.Execute.(*clientTool); return ok }

func (t *Tool) check(a *Agent) error {
	field := "tool " + t.Name
	if err := CheckToolName(t.Name); err != nil {
		return a.invalid("Tools", "has a tool that cannot be called that: %v", err)
	}
	switch {
	case t.Execute == nil:
		return a.invalid(field, "has no Execute")
	case t.Timeout < Unlimited:
		return a.invalid(field, "has a Timeout of %s; use helix.Unlimited for no limit", t.Timeout)
	case t.Deadline < Unlimited:
		return a.invalid(field, "has a Deadline of %s; use helix.NoDeadline for none", t.Deadline)
	case t.OnClient() && t.FinishWith:
		return a.invalid(field, "cannot be both carried out on the client and FinishWith")
	case t.OnClient() && t.Approval != nil:
		return a.invalid(field, "is carried out on the client, where a person can refuse it; it takes no Approval")
	case t.Approval != nil && t.FinishWith:
		return a.invalid(field, "cannot both need an Approval and be FinishWith")
	case t.Approver != nil && !t.Waits():
		return a.invalid(field, "has an Approver, but nobody is asked: it has no Approval and is not carried out on the client")
	case t.Deadline != 0 && !t.Waits():
		return a.invalid(field, "has a Deadline, but waits for nobody; a bound of the call itself is its Timeout")
	case t.ReadOnly && t.FinishWith:
		return a.invalid(field, "cannot be both ReadOnly and FinishWith: finishing is an effect")
	}
	schema, err := t.Execute.InputSchema()
	if err != nil {
		return a.invalid(field, "has an input that cannot be described: %v", err)
	}
	if !schema.IsObject() {
		return a.invalid(field, "needs a struct or map as its input, so that its arguments have names")
	}
	if schema.undeclarable != nil {
		return a.invalid(field, "has an input that cannot be described: %v", schema.undeclarable)
	}
	return nil
}

// Callable carries out a tool's calls.
type Callable interface {
	// InputSchema describes the input; see [Schema.ValidateInput] for what that means for
	// arguments that it does not declare. It is asked when the agent is checked.
	InputSchema() (*Schema, error)
	// Call carries out one call whose input fits the schema and returns its result
	// as JSON.
	Call(ctx context.Context, call *Call, input json.RawMessage) (json.RawMessage, error)
}

// Func makes a tool of a Go function. The input's schema is inferred from In and
// enforced before the function runs; Out is encoded as JSON.
func Func[In, Out any](fn func(ctx context.Context, call *Call, in In) (Out, error)) Callable {
	schema, err := SchemaFor[In]()
	return &funcTool[In, Out]{fn: fn, schema: schema, err: err}
}

type funcTool[In, Out any] struct {
	fn     func(context.Context, *Call, In) (Out, error)
	schema *Schema
	err    error
}

func (f *funcTool[In, Out]) InputSchema() (*Schema, error) { return f.schema, f.err }

func (f *funcTool[In, Out]) Call(ctx context.Context, call *Call, input json.RawMessage) (json.RawMessage, error) {
	var in In
	if err := json.Unmarshal(input, &in); err != nil {
		return nil, (&Error{Code: session.CodeToolInput}).WithCause(err, "the input does not fit")
	}
	out, err := f.fn(ctx, call, in)
	if err != nil {
		return nil, err
	}
	raw, err := encodeResult(out)
	if err != nil {
		return nil, (&Error{Code: session.CodeToolOutput}).WithCause(err, "the result of type %T cannot be encoded", out)
	}
	return raw, nil
}

// RawFunc makes a tool of a function on JSON, for input whose schema is not a Go
// type's. Arguments that the schema does not declare are refused unless it says
// "additionalProperties": true; see [Schema.ValidateInput].
func RawFunc(schema json.RawMessage, fn func(ctx context.Context, call *Call, input json.RawMessage) (json.RawMessage, error)) Callable {
	parsed, err := ParseSchema(schema)
	return &rawTool{fn: fn, schema: parsed, err: err}
}

type rawTool struct {
	fn     func(context.Context, *Call, json.RawMessage) (json.RawMessage, error)
	schema *Schema
	err    error
}

func (r *rawTool) InputSchema() (*Schema, error) { return r.schema, r.err }

func (r *rawTool) Call(ctx context.Context, call *Call, input json.RawMessage) (json.RawMessage, error) {
	out, err := r.fn(ctx, call, input)
	if err != nil {
		return nil, err
	}
	if !json.Valid(out) {
		return nil, &Error{Code: session.CodeToolOutput, Message: "the result is not valid JSON"}
	}
	return out, nil
}

// OnClient makes a tool that runs where the user is: a call waits until its result
// is submitted; see [ToolResult]. The input's schema is inferred from In.
func OnClient[In any]() Callable {
	schema, err := SchemaFor[In]()
	return &clientTool{schema: schema, err: err}
}

// RawOnClient is [OnClient] for input whose schema is not a Go type's.
func RawOnClient(schema json.RawMessage) Callable {
	parsed, err := ParseSchema(schema)
	return &clientTool{schema: parsed, err: err}
}

type clientTool struct {
	schema *Schema
	err    error
}

func (c *clientTool) InputSchema() (*Schema, error) { return c.schema, c.err }

func (c *clientTool) Call(_ context.Context, call *Call, _ json.RawMessage) (json.RawMessage, error) {
	return nil, session.ErrNotSupported.WithMessage("%s runs on the client", call.Tool)
}

// encodeResult encodes without escaping HTML: the model reads it, not a browser.
func encodeResult(v any) (json.RawMessage, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return bytes.TrimRight(buf.Bytes(), "\n"), nil
}

// Call is one tool call in progress.
type Call struct {
	Scope
	// ID is the call's id, Tool the tool's name.
	ID   string
	Tool string
}

// IdempotencyKey is the same on every attempt of this call and differs from that
// of every other call, so that a tool can hand it to the service it calls.
func (c *Call) IdempotencyKey() string { return c.SessionID + "/" + c.ID }
