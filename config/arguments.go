package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"

	"cel.dev/cel-go/cel"
)

// decodeArguments decodes a call's arguments for expressions. JSON has one type of number,
// but CEL has two: a number that the schema declares as number becomes a double, any other
// whole number an int. Numbers are rounded only if neither type can represent them.
func decodeArguments(input json.RawMessage, schema Schema) (map[string]any, error) {
	decoder := json.NewDecoder(bytes.NewReader(input))
	decoder.UseNumber()
	var arguments map[string]any
	if err := decoder.Decode(&arguments); err != nil {
		return nil, fmt.Errorf("decode the input: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("decode the input: there is more than one value")
	}
	if arguments == nil {
		return map[string]any{}, nil
	}
	if _, err := withNumbers(arguments, json.RawMessage(schema)); err != nil {
		return nil, fmt.Errorf("decode the input: %w", err)
	}
	return arguments, nil
}

// shape is the part of a schema that concerns numbers.
type shape struct {
	Type       json.RawMessage            `json:"type"`
	Properties map[string]json.RawMessage `json:"properties"`
	Items      json.RawMessage            `json:"items"`
}

// shapeOf decodes a schema. Without one, or for another form, it returns the zero value.
func shapeOf(schema json.RawMessage) shape {
	var s shape
	if json.Unmarshal(schema, &s) != nil {
		return shape{}
	}
	return s
}

// withNumbers replaces the JSON numbers in a value with CEL numbers.
func withNumbers(value any, schema json.RawMessage) (any, error) {
	var err error
	switch value := value.(type) {
	case json.Number:
		return number(value, string(shapeOf(schema).Type) == `"number"`)
	case map[string]any:
		below := shapeOf(schema).Properties
		for name := range value {
			if value[name], err = withNumbers(value[name], below[name]); err != nil {
				return nil, err
			}
		}
	case []any:
		below := shapeOf(schema).Items
		for i := range value {
			if value[i], err = withNumbers(value[i], below); err != nil {
				return nil, err
			}
		}
	}
	return value, nil
}

// maxExact is the largest number up to which doubles represent all whole numbers.
const maxExact = 1 << 53

// number returns an int or a double. A whole number that no double represents exactly stays
// an int.
func number(n json.Number, double bool) (any, error) {
	if whole, err := strconv.ParseInt(n.String(), 10, 64); err == nil {
		if double && whole >= -maxExact && whole <= maxExact {
			return float64(whole), nil
		}
		return whole, nil
	}
	value, err := n.Float64()
	if err != nil {
		return nil, err
	}
	if !double && value == math.Trunc(value) && math.Abs(value) < maxExact {
		return int64(value), nil
	}
	return value, nil
}

// identifier matches the names that an expression can select. A name with a dot would
// denote a field of another argument.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// typed declares the whole-number arguments to CEL's checker.
func typed(env *cel.Env, schema Schema) (*cel.Env, error) {
	var integers []cel.EnvOption
	for name, property := range shapeOf(json.RawMessage(schema)).Properties {
		if identifier.MatchString(name) && string(shapeOf(property).Type) == `"integer"` {
			integers = append(integers, cel.Variable("input."+name, cel.IntType))
		}
	}
	if len(integers) == 0 {
		return env, nil
	}
	return env.Extend(integers...)
}
