package helix

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/helixagents/helix/session"
)

// DefaultToolTimeout is the timeout of a tool whose Timeout is 0.
const DefaultToolTimeout = 5 * time.Minute

// DefaultDeadline is how long a call waits for a person if its tool's Deadline is 0.
const DefaultDeadline = 24 * time.Hour

// NoDeadline lets a call wait for a person indefinitely.
const NoDeadline = Unlimited

// Tool is something the model may call.
type Tool struct {
	Name        string
	Description string
	// Execute runs a call; see [Func]. With [OnClient], whoever answers the call runs it.
	Execute Callable
	// Approval, if set, reports which calls a person must approve before they run; see
	// [RequireApproval] and [RequireApprovalWhen].
	Approval Approval
	// Approver, if set, decides who may answer a waiting call. It is called when an answer
	// is submitted. An error refuses that answer, and the call stays open for others.
	Approver func(ctx context.Context, answer *Answer) error
	// Deadline is how long a call waits for a person before it times out. Defaults to 24
	// hours; [NoDeadline] disables it.
	Deadline time.Duration
	// Asks marks a tool that may ask people questions in the middle of a call; see [Ask]. Runs
	// of agents that can reach such a tool are left alone by programs that do not know
	// questions. A tool without the mark that asks fails.
	Asks bool
	// ReadOnly marks a tool without side effects: a call may run again at any time and needs
	// no record before it starts.
	ReadOnly bool
	// Idempotent marks a tool with side effects whose calls may run again after a crash, for
	// example because it passes [Call.IdempotencyKey] to the service it calls.
	Idempotent bool
	// FinishWith makes the tool's result the session's output: a successful call completes
	// the turn. Such calls run one by one, after all other calls of the same reply, and see
	// their changes to the state.
	FinishWith bool
	// Serial makes the calls of all serial tools of one reply run one after another, in the
	// order in which the model made them, each with the earlier ones' changes to the state.
	// One that needs no approval does not run before an earlier one that does; those that
	// need one run as they are approved.
	Serial bool
	// Timeout limits one call. Defaults to 5 minutes; [Unlimited] disables it.
	Timeout time.Duration
	// Strict asks the provider to constrain arguments to the schema.
	Strict bool
}

// OnClient reports whether calls run on the client.
func (t *Tool) OnClient() bool {
	if t.Execute == nil {
		return false
	}
	schema, err := t.Execute.InputSchema()
	return err == nil && schema != nil && schema.onClient
}

func (t *Tool) mayWait() bool { return t.Approval != nil || t.Asks || t.OnClient() }

// check returns an error that names the tool and its owner, an agent or an extension, if
// the definition is invalid. framework is set for the framework's own extensions.
func (t *Tool) check(owner string, framework bool) error {
	invalid := func(field, format string, args ...any) error {
		return session.Invalid(owner+": "+field, format, args...)
	}
	field := "tool " + t.Name
	if err := checkToolName(t.Name, framework); err != nil {
		return invalid("Tools", "has a tool with an invalid name: %v", err)
	}
	switch {
	case t.Execute == nil:
		return invalid(field, "has no Execute")
	case t.Timeout < Unlimited:
		return invalid(field, "has a Timeout of %s; use helix.Unlimited for no limit", t.Timeout)
	case t.Deadline < Unlimited:
		return invalid(field, "has a Deadline of %s; use helix.NoDeadline for none", t.Deadline)
	case t.OnClient() && t.FinishWith:
		return invalid(field, "cannot both run on the client and be FinishWith")
	case t.OnClient() && t.Approval != nil:
		return invalid(field, "runs on the client, where a person can refuse it; it must not have an Approval")
	case t.OnClient() && t.Asks:
		return invalid(field, "runs on the client, where it can ask without Asks")
	case t.Serial && t.Asks:
		return invalid(field, "must not be both Serial and Asks: the calls behind it would wait for a person")
	case t.Approval != nil && t.FinishWith:
		return invalid(field, "cannot both have an Approval and be FinishWith")
	case t.Approver != nil && !t.mayWait():
		return invalid(field, "has an Approver, but its calls never wait: it has no Approval, is not marked Asks and does not run on the client")
	case t.Deadline != 0 && !t.mayWait():
		return invalid(field, "has a Deadline, but its calls never wait; use Timeout to limit a call")
	case t.OnClient() && t.Serial:
		return invalid(field, "cannot both run on the client, which decides when, and be Serial")
	case t.Serial && t.FinishWith:
		return invalid(field, "must not be both Serial and FinishWith, whose calls run one by one after all others")
	case t.ReadOnly && t.FinishWith:
		return invalid(field, "cannot be both ReadOnly and FinishWith: finishing is a side effect")
	}
	schema, err := t.Execute.InputSchema()
	if err != nil {
		return invalid(field, "has an invalid input type: %v", err)
	}
	if !schema.IsObject() {
		return invalid(field, "must have a struct or map as its input, so that its arguments have names")
	}
	if _, err := schema.declared(); err != nil {
		return invalid(field, "has an invalid input type: %v", err)
	}
	return nil
}

// Callable runs the calls of a tool. One may be put around another, to measure or log its
// calls: a type that embeds a Callable and has a Call method of its own loses nothing.
type Callable interface {
	// InputSchema returns the schema of the input; see [Schema.ValidateInput] for arguments
	// that it does not declare. It is called when the agent is checked.
	InputSchema() (*Schema, error)
	// Call runs one call whose input matches the schema and returns its result as JSON.
	Call(ctx context.Context, call *Call, input json.RawMessage) (json.RawMessage, error)
}

// Func makes a tool from a Go function. The input's schema is inferred from In and enforced
// before the function runs; Out is encoded as JSON.
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
		return nil, (&Error{Code: session.CodeToolInput}).WithCause(err, "decode the input")
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

// RawFunc makes a tool from a function on JSON, with an explicit schema. Arguments that the
// schema does not declare are refused unless it has "additionalProperties": true; see
// [Schema.ValidateInput].
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

// OnClient makes a tool that runs on the client: a call waits until its result is
// submitted; see [ToolResult]. The input's schema is inferred from In.
func OnClient[In any]() Callable {
	schema, err := SchemaFor[In]()
	return newClientTool(schema, err)
}

// RawOnClient is [OnClient] with an explicit JSON Schema.
func RawOnClient(schema json.RawMessage) Callable {
	parsed, err := ParseSchema(schema)
	return newClientTool(parsed, err)
}

func newClientTool(schema *Schema, err error) *clientTool {
	if err == nil {
		marked := *schema // other tools may have the same schema
		marked.onClient = true
		schema = &marked
	}
	return &clientTool{schema: schema, err: err}
}

type clientTool struct {
	schema *Schema
	err    error
}

func (c *clientTool) InputSchema() (*Schema, error) { return c.schema, c.err }

func (c *clientTool) Call(_ context.Context, call *Call, _ json.RawMessage) (json.RawMessage, error) {
	return nil, session.ErrNotSupported.WithMessage("%s runs on the client", call.Tool)
}

// encodeResult encodes without escaping HTML, because the model reads the result.
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
	// ID is the call's id, Tool the tool's name, and Input the arguments.
	ID    string
	Tool  string
	Input json.RawMessage

	answers []Answered
	memo    json.RawMessage
}

// View returns the conversation as the model was sent it before it made the call. The
// messages must not be changed.
func (c *Call) View() []session.Message {
	if c.env == nil {
		return nil
	}
	return c.env.View()
}
