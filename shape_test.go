package helix_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/helixagents/helix"
)

// A schema of types and properties alone is decided on the bytes of a value. The same
// schema with a keyword that forbids nothing is not: both must agree on every value.
func TestPlainSchemasAgreeWithTheValidator(t *testing.T) {
	t.Parallel()
	const plain = `{"type":"object","required":["s","n"],"properties":{
		"s":{"type":"string","description":"a text"},"n":{"type":"integer"},"f":{"type":"number"},"b":{"type":"boolean"},
		"l":{"type":["null","array"],"items":{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"],"additionalProperties":false}},
		"o":{"type":["object","null"],"properties":{"y":{"type":"string"}}}, "e":{"type":"array"}}%s}`
	for name, more := range map[string]string{"open": "", "closed": `,"additionalProperties":false`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fast, slow := parseSchema(t, fmt.Sprintf(plain, more)), parseSchema(t, fmt.Sprintf(plain, more+`,"minProperties":0`))
			accepted := 0
			for seed := range uint64(1000) {
				input := json.RawMessage((&valueMaker{rand.New(rand.NewPCG(seed, 0))}).object("snfbloex", 0.9))
				for what, validate := range map[string]func(*helix.Schema) error{
					"Validate":      func(s *helix.Schema) error { return s.Validate(input) },
					"ValidateInput": func(s *helix.Schema) error { return s.ValidateInput(input) },
				} {
					got, want := validate(fast), validate(slow)
					if (got == nil) != (want == nil) {
						t.Fatalf("%s of %s: %v, want %v", what, input, got, want)
					}
					if got == nil {
						accepted++
					}
				}
			}
			if accepted < 100 {
				t.Errorf("only %d values were accepted", accepted)
			}
		})
	}
}

// valueMaker makes JSON, mostly of the types that the properties with these names have.
type valueMaker struct{ *rand.Rand }

func (m *valueMaker) object(names string, fit float64) string {
	var b strings.Builder
	b.WriteString("{")
	for i, name := range names {
		if m.Float64() < 0.2 && i > 1 {
			continue
		}
		if b.Len() > 1 {
			b.WriteString(",")
		}
		key := string(name)
		if m.Float64() < 0.02 {
			key = fmt.Sprintf(`\u%04x`, name)
		}
		fmt.Fprintf(&b, `%s"%s"%s:%s`, m.space(), key, m.space(), m.space())
		if m.Float64() > fit {
			name = rune("snfbloex"[m.IntN(8)])
		}
		b.WriteString(m.value(name) + m.space())
		if m.Float64() < 0.02 {
			b.WriteString(`,"s":1`) // once more
		}
	}
	return b.String() + m.space() + "}"
}

func (m *valueMaker) value(name rune) string {
	choose := func(values ...string) string { return values[m.IntN(len(values))] }
	switch name {
	case 's', 'y':
		return choose(`"text"`, `""`, `"a\"b\\"`, `"\u00e9é"`, "\"\xff\"")
	case 'n', 'x':
		return choose("1", "-7", "0", "1", "12", "1.0", "1.5", "1e2", "123456789012345678901234567890")
	case 'f':
		return choose("1", "-0.5", "1e3", "2.25", "1e400", "1E-2")
	case 'b':
		return choose("true", "false")
	case 'l':
		return choose("null", "[]", "[ ]", "["+m.object("x", 0.97)+" , "+m.object("x", 0.97)+"]")
	case 'o':
		return choose("null", "{}", m.object("y", 0.97))
	}
	return choose("[]", "[]", "[1]", "null")
}

func (m *valueMaker) space() string {
	if m.Float64() < 0.9 {
		return ""
	}
	return []string{" ", "\n", "\t ", "\r\n"}[m.IntN(4)]
}

func parseSchema(t *testing.T, text string) *helix.Schema {
	t.Helper()
	schema, err := helix.ParseSchema(json.RawMessage(text))
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// A call whose input is plain costs nearly no memory to check.
func TestPlainSchemasAllocateNothing(t *testing.T) {
	schema, err := helix.SchemaFor[struct {
		City string   `json:"city"`
		Days int      `json:"days"`
		Tags []string `json:"tags,omitempty"`
	}]()
	if err != nil {
		t.Fatal(err)
	}
	input := json.RawMessage(`{"city":"Oslo","days":3,"tags":["a","b"]}`)
	n := testing.AllocsPerRun(100, func() { err = schema.ValidateInput(input) })
	if n > 2 || err != nil {
		t.Errorf("%v allocations; the error is %v", n, err)
	}
}
