package config

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"go.yaml.in/yaml/v3"

	"github.com/helixagents/helix"
)

// Approvals that are not expressions.
const (
	approveAlways = "always"
	approveNever  = "never"
)

// Limits of an expression: its length and its evaluation cost.
const (
	maxExpression = 4096
	maxCost       = 100_000
)

// environments declare the variables of expressions, by policy.
var environments = sync.OnceValues(func() (map[string]*cel.Env, error) {
	approval := []cel.EnvOption{
		cel.Variable("input", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("user.id", cel.StringType),
		cel.Variable("user.tenant", cel.StringType),
		cel.CrossTypeNumericComparisons(true),
		cel.ParserExpressionSizeLimit(maxExpression),
		cel.ParserRecursionLimit(100),
	}
	approvers := append([]cel.EnvOption{cel.Variable("owner", cel.StringType)}, approval...)
	all := map[string]*cel.Env{}
	for policy, options := range map[string][]cel.EnvOption{"approval": approval, "approvers": approvers} {
		env, err := cel.NewEnv(options...)
		if err != nil {
			return nil, fmt.Errorf("config: %w", err)
		}
		all[policy] = env
	}
	return all, nil
})

// expressionError is an error in an expression and the byte where it is.
type expressionError struct {
	offset  int
	message string
}

func (e *expressionError) Error() string { return e.message }

// mentions returns the arguments that an expression uses as input.NAME.
func mentions(policy, text string) []string {
	all, err := environments()
	if err != nil {
		return nil
	}
	parsed, issues := all[policy].Parse(text)
	if issues.Err() != nil {
		return nil
	}
	var found []string
	ast.PostOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.SelectKind {
			return
		}
		if of := e.AsSelect().Operand(); of.Kind() == ast.IdentKind && of.AsIdent() == "input" {
			found = append(found, e.AsSelect().FieldName())
		}
	}))
	return found
}

// compile compiles a boolean expression over arguments of a schema, if there is one.
func compile(policy, text string, schema Schema) (cel.Program, error) {
	all, err := environments()
	if err != nil {
		return nil, err
	}
	if len(text) > maxExpression {
		return nil, &expressionError{message: fmt.Sprintf("the expression has more than %d bytes", maxExpression)}
	}
	env, err := typed(all[policy], schema)
	if err != nil {
		return nil, err
	}
	checked, issues := env.Compile(text)
	if issues.Err() != nil {
		found := issues.Errors()
		if len(found) == 0 {
			return nil, &expressionError{message: issues.Err().Error()}
		}
		first := found[0]
		return nil, &expressionError{byteOf(text, first.Location.Line(), first.Location.Column()), plain(first.Message)}
	}
	if !checked.OutputType().IsExactType(types.BoolType) {
		return nil, &expressionError{message: fmt.Sprintf("the expression must return true or false, not %s", checked.OutputType())}
	}
	program, err := env.Program(checked, cel.CostLimit(maxCost), cel.InterruptCheckFrequency(100))
	if err != nil {
		return nil, &expressionError{message: err.Error()}
	}
	return program, nil
}

// plain removes the internals from a message of CEL.
func plain(message string) string {
	message = strings.TrimSuffix(message, " (in container '')")
	if strings.HasPrefix(message, "undeclared reference to 'user'") {
		return "user has only id and tenant"
	}
	message, _, _ = strings.Cut(message, "\n")
	message, _, _ = strings.Cut(message, " expecting {")
	if strings.HasSuffix(message, "mismatched input '<EOF>'") {
		return "the expression is incomplete"
	}
	return message
}

// byteOf returns the byte offset of a line (from 1) and a column in characters (from 0).
func byteOf(text string, line, column int) int {
	offset := 0
	for ; line > 1; line-- {
		next := strings.IndexByte(text[offset:], '\n')
		if next < 0 {
			return 0
		}
		offset += next + 1
	}
	for ; column > 0 && offset < len(text); column-- {
		_, size := utf8.DecodeRuneInString(text[offset:])
		offset += size
	}
	return offset
}

// expression checks an expression of the file.
func (d *decoder) expression(n *yaml.Node, path, text string, o *option) {
	if o.policy == "approval" && (text == approveAlways || text == approveNever) {
		return
	}
	_, err := compile(o.policy, text, nil)
	if err == nil {
		return
	}
	where := at(n)
	if found, ok := errors.AsType[*expressionError](err); ok && text == n.Value {
		where = d.within(n, found.offset)
	}
	d.problem(where, path, "expected %s: %v", expectedOf(reflect.TypeFor[Expression](), o), err)
}

// holds evaluates a program.
func holds(ctx context.Context, program cel.Program, variables map[string]any, input json.RawMessage, schema Schema) (bool, error) {
	arguments, err := decodeArguments(input, schema)
	if err != nil {
		return false, err
	}
	variables["input"] = arguments
	for name, value := range arguments {
		if identifier.MatchString(name) {
			variables["input."+name] = value
		}
	}
	result, _, err := program.ContextEval(ctx, variables)
	if err != nil {
		return false, fmt.Errorf("evaluate the expression: %w", err)
	}
	answer, ok := result.Value().(bool)
	if !ok {
		return false, fmt.Errorf("the expression returned %v, not true or false", result.Type())
	}
	return answer, nil
}

// approval makes a tool's approval policy from an expression; see [helix.Approval] for
// errors.
func approval(text Expression, schema Schema) (helix.Approval, error) {
	switch text {
	case "", approveNever:
		return nil, nil
	case approveAlways:
		return helix.RequireApproval, nil
	}
	program, err := compile("approval", string(text), schema)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, call *helix.Call, input json.RawMessage) (bool, error) {
		needs, err := holds(ctx, program, map[string]any{"user.id": call.UserID, "user.tenant": call.Tenant}, input, schema)
		return needs || err != nil, err
	}, nil
}

// approver makes the policy of who may answer from an expression.
func approver(tool string, text Expression, schema Schema) (func(context.Context, *helix.Answer) error, error) {
	if text == "" {
		return nil, nil
	}
	program, err := compile("approvers", string(text), schema)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, answer *helix.Answer) error {
		may, err := holds(ctx, program, map[string]any{
			"user.id": answer.By.ID, "user.tenant": answer.By.Tenant, "owner": answer.Owner,
		}, answer.Input, schema)
		switch {
		case err != nil:
			return helix.ErrNotAllowed.WithCause(err, "cannot decide who may answer a call of %s", tool)
		case !may:
			return helix.ErrNotAllowed.WithMessage("you may not answer a call of %s", tool)
		}
		return nil
	}, nil
}
