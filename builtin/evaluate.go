package builtin

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// maxNesting limits how deep parentheses and signs may nest.
const maxNesting = 200

// evaluate evaluates an arithmetic expression of numbers, + - * / % ^ and parentheses.
// Powers bind tightest and to the right; a sign binds less than a power, so -2^2 is -4.
func evaluate(expression string) (float64, error) {
	e := evaluator{rest: expression}
	value, err := e.sum()
	if err != nil {
		return 0, err
	}
	if next := e.peek(); next != 0 {
		return 0, fmt.Errorf("unexpected %q", next)
	}
	if math.IsInf(value, 0) || math.IsNaN(value) {
		return 0, errors.New("the result is not a finite number")
	}
	// The last digits are an artefact of binary fractions: 0.1 + 0.2 is 0.3.
	return strconv.ParseFloat(strconv.FormatFloat(value, 'g', 15, 64), 64)
}

// evaluator parses an expression from left to right, one method per precedence.
type evaluator struct {
	rest  string
	depth int
}

// peek returns the next character that is not a space, or 0 at the end.
func (e *evaluator) peek() rune {
	e.rest = strings.TrimLeft(e.rest, " \t\n")
	for _, r := range e.rest {
		return r
	}
	return 0
}

// accept consumes the next character if it is one of the given ones.
func (e *evaluator) accept(characters string) (rune, bool) {
	next := e.peek()
	if next == 0 || !strings.ContainsRune(characters, next) {
		return 0, false
	}
	e.rest = e.rest[len(string(next)):]
	return next, true
}

func (e *evaluator) sum() (float64, error) {
	return e.chain("+-", e.product)
}

func (e *evaluator) product() (float64, error) {
	return e.chain("*/%×÷", e.signed)
}

// chain parses operands joined by operators of one precedence, left to right.
func (e *evaluator) chain(operators string, operand func() (float64, error)) (float64, error) {
	left, err := operand()
	if err != nil {
		return 0, err
	}
	for {
		operator, ok := e.accept(operators)
		if !ok {
			return left, nil
		}
		right, err := operand()
		if err != nil {
			return 0, err
		}
		if left, err = apply(operator, left, right); err != nil {
			return 0, err
		}
	}
}

func apply(operator rune, left, right float64) (float64, error) {
	switch operator {
	case '+':
		return left + right, nil
	case '-':
		return left - right, nil
	case '*', '×':
		return left * right, nil
	}
	if right == 0 {
		return 0, errors.New("division by zero")
	}
	if operator == '%' {
		return math.Mod(left, right), nil
	}
	return left / right, nil
}

func (e *evaluator) signed() (float64, error) {
	sign, ok := e.accept("+-")
	if !ok {
		return e.power()
	}
	value, err := e.nested(e.signed)
	if sign == '-' {
		value = -value
	}
	return value, err
}

func (e *evaluator) power() (float64, error) {
	base, err := e.atom()
	if err != nil {
		return 0, err
	}
	if _, ok := e.accept("^"); !ok {
		return base, nil
	}
	exponent, err := e.nested(e.signed)
	return math.Pow(base, exponent), err
}

func (e *evaluator) atom() (float64, error) {
	if _, ok := e.accept("("); !ok {
		return e.number()
	}
	value, err := e.nested(e.sum)
	if err != nil {
		return 0, err
	}
	if _, ok := e.accept(")"); !ok {
		return 0, errors.New("a closing parenthesis is missing")
	}
	return value, nil
}

// nested parses one level deeper, unless that is too deep.
func (e *evaluator) nested(part func() (float64, error)) (float64, error) {
	if e.depth++; e.depth > maxNesting {
		return 0, errors.New("the expression is nested too deeply")
	}
	defer func() { e.depth-- }()
	return part()
}

func (e *evaluator) number() (float64, error) {
	next := e.peek()
	length := len(e.rest) - len(strings.TrimLeft(e.rest, "0123456789."))
	digits := e.rest[:length]
	e.rest = e.rest[length:]
	switch value, err := strconv.ParseFloat(digits, 64); {
	case next == 0:
		return 0, errors.New("the expression is incomplete")
	case length == 0:
		return 0, fmt.Errorf("unexpected %q", next)
	case err != nil:
		return 0, fmt.Errorf("%q is not a number", digits)
	default:
		return value, nil
	}
}
