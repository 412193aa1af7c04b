package helix_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/helixagents/helix"
)

// Arguments that a schema does not declare are refused at every depth, and composed
// schemas keep working.
func TestValidateInput(t *testing.T) {
	t.Parallel()
	const draft7 = `"$schema":"http://json-schema.org/draft-07/schema#",`
	for name, c := range map[string]struct {
		schema string
		inputs map[string]string // and what is wrong with them
	}{
		"properties": {`{"type":"object","required":["id"],"properties":{"id":{"type":"string"},"amount":{"type":"number"}}}`, map[string]string{
			`{"id":"7","amount":5}`:                        "",
			`{"id":"7","Amount":5}`:                        `undeclared argument "Amount"`,
			`{"id":"7","to":"x","Amount":5}`:               `undeclared arguments "Amount", "to"`,
			`{"amount":"x","to":1}`:                        "amount",
			`{"id":"7","id ":1,"\u200bid":2,"i\u0064d":3}`: `undeclared arguments "id ", "idd", "\u200bid"`,
		}},
		"other keywords that name it": {`{"type":"object","required":["id"],"properties":{"n":{}}}`, map[string]string{
			`{"id":1,"n":{"any":{"thing":1}}}`: "", `{"id":1,"m":1}`: `"m"`,
		}},
		"told to be open":   {`{"properties":{"id":{}},"additionalProperties":true}`, map[string]string{`{"id":1,"x":{"y":1}}`: ""}},
		"told to be closed": {`{"type":"object","properties":{"id":{}},"additionalProperties":false}`, map[string]string{`{"x":1}`: `undeclared argument "x"`}},
		"no arguments":      {`{"type":"object","additionalProperties":false}`, map[string]string{`{}`: "", `{"x":1}`: `undeclared argument "x"`}},
		"open, of a type": {`{"properties":{"id":{}},"additionalProperties":{"type":"object","properties":{"a":{}}}}`, map[string]string{
			`{"id":1,"x":{"a":1}}`: "", `{"x":{"a":1,"b":2}}`: `"x.b"`, `{"x":1}`: "type",
		}},
		"patterns": {`{"properties":{"id":{}},"patternProperties":{"^x-":{"properties":{"a":{}}}}}`, map[string]string{
			`{"id":1,"x-1":{"a":1}}`: "", `{"x-1":{"b":1}}`: `"x-1.b"`, `{"id":1,"y":1}`: `"y"`,
		}},
		"nothing declared": {`{"type":"object","properties":{}}`, map[string]string{`{}`: "", `{"a":1}`: `"a"`}},
		"required only":    {`{"type":"object","required":["id"]}`, map[string]string{`{"id":1}`: "", `{"id":1,"a":1}`: `"a"`}},
		"a map":            {`{"type":"object"}`, map[string]string{`{"any":{"thing":1}}`: ""}},
		"nested": {`{"properties":{"order":{"type":"object","properties":{"amount":{}}},"rows":{"items":{"properties":{"a":{"properties":{"b":{}}}}}},"any":{"type":"object"}}}`, map[string]string{
			`{"order":{"amount":5},"rows":[{"a":{"b":1}}],"any":{"x":1}}`: "",
			`{"order":{"amount":5,"Amount":6}}`:                           `undeclared argument "order.Amount"`,
			`{"rows":[{},{"a":{"b":1,"c":1}}]}`:                           `undeclared argument "rows[1].a.c"`,
		}},
		"tuples": {`{"properties":{"t":{"prefixItems":[{"properties":{"a":{}}}],"items":{"properties":{"b":{}}}}}}`, map[string]string{
			`{"t":[{"a":1},{"b":1},{"b":1}]}`: "", `{"t":[{"b":1}]}`: `"t[0].b"`, `{"t":[{},{"a":1}]}`: `"t[1].a"`,
		}},
		"references": {`{"type":"object","properties":{"from":{"$ref":"#/$defs/place"},"to":{"$ref":"#there"}},"$defs":{"place":{"$anchor":"there","properties":{"city":{},"in":{"$ref":"#/$defs/place"}}}}}`, map[string]string{
			`{"from":{"city":1,"in":{"in":{"city":2}}},"to":{"city":3}}`: "",
			`{"from":{"in":{"in":{"street":1}}}}`:                        `"from.in.in.street"`,
			`{"to":{"street":1}}`:                                        `"to.street"`,
		}},
		"references of draft 7": {`{` + draft7 + `"type":"object","properties":{"from":{"$ref":"#/definitions/place"},"l":{"items":[{"properties":{"a":{}}}],"additionalItems":{"properties":{"b":{}}}}},"definitions":{"place":{"type":"object","properties":{"city":{}}}}}`, map[string]string{
			`{"from":{"city":1},"l":[{"a":1},{"b":1}]}`: "", `{"from":{"street":1}}`: `"from.street"`, `{"l":[{},{"a":1}]}`: `"l[1].a"`, `{"x":1}`: `"x"`,
		}},
		"references by id": {`{"$id":"https://x.example/a","type":"object","properties":{"p":{"$ref":"/b"},"q":{"$ref":"b#/$defs/c"}},"$defs":{"b":{"$id":"/b","properties":{"c":{"$ref":"#/$defs/c"}},"$defs":{"c":{"properties":{"d":{}}}}}}}`, map[string]string{
			`{"p":{"c":{"d":1}},"q":{"d":1}}`: "", `{"p":{"c":{"e":1}}}`: `"p.c.e"`, `{"q":{"c":1}}`: `"q.c"`,
		}},
		"a reference and more": {`{"type":"object","properties":{"a":{}},"$ref":"#/$defs/base","$defs":{"base":{"properties":{"b":{}}}}}`, map[string]string{
			`{"a":1,"b":1}`: "", `{"a":1,"c":1}`: `"c"`,
		}},
		"all of": {`{"type":"object","allOf":[{"properties":{"a":{}}},{"properties":{"b":{}}},{"$ref":"#/$defs/c"}],"$defs":{"c":{"properties":{"c":{}}}}}`, map[string]string{
			`{"a":1,"b":1,"c":1}`: "", `{"a":1,"d":1}`: `"d"`,
		}},
		"one of": {`{"type":"object","properties":{"kind":{}},"oneOf":[{"properties":{"kind":{"const":"a"},"x":{}}},{"properties":{"kind":{"const":"b"},"y":{}}}]}`, map[string]string{
			`{"kind":"a","x":1}`: "", `{"kind":"b","y":1}`: "", `{"kind":"a","y":1}`: `undeclared argument "y"`, `{"kind":"c"}`: "oneOf",
		}},
		"any of": {`{"type":"object","properties":{"to":{"anyOf":[{"$ref":"#/$defs/to"},{"type":"null"}]}},"$defs":{"to":{"type":"object","properties":{"city":{}}}}}`, map[string]string{
			`{"to":{"city":1}}`: "", `{"to":null}`: "", `{"to":{"street":1}}`: `"to.street"`,
		}},
		"one of several is open": {`{"type":"object","properties":{"kind":{}},"anyOf":[{"properties":{"kind":{"const":"a"}}},{"properties":{"kind":{"const":"b"}},"additionalProperties":true}]}`, map[string]string{
			`{"kind":"b","x":1}`: "", `{"kind":"a","x":1}`: `"x"`,
		}},
		"conditions": {`{"type":"object","properties":{"country":{},"at":{"properties":{"street":{},"zip":{}}}},"if":{"properties":{"country":{"const":"us"}}},"then":{"properties":{"at":{"properties":{"zip":{"pattern":"^[0-9]+$"}}},"state":{}}},"else":{"properties":{"region":{}}}}`, map[string]string{
			`{"country":"us","at":{"street":"x","zip":"1"},"state":"x"}`: "",
			`{"country":"de","at":{"street":"x","zip":"y"},"region":1}`:  "",
			`{"country":"us","region":1}`:                                `"region"`,
			`{"country":"us","at":{"street":"x","city":"y"}}`:            `"at.city"`,
			`{"country":"us","at":{"zip":"y"}}`:                          "zip",
		}},
		"dependencies": {`{"type":"object","properties":{"card":{}},"dependentSchemas":{"card":{"properties":{"pin":{}}}}}`, map[string]string{
			`{"card":1,"pin":1}`: "", `{"pin":1}`: `"pin"`,
		}},
		"what must not be": {`{"type":"object","properties":{"a":{}},"not":{"required":["b"],"properties":{"c":{}}}}`, map[string]string{
			`{"a":1}`: "", `{"a":1,"c":1}`: `"c"`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			schema, err := helix.ParseSchema(json.RawMessage(c.schema))
			if err != nil {
				t.Fatal(err)
			}
			for input, want := range c.inputs {
				err := schema.ValidateInput(json.RawMessage(input))
				switch {
				case want == "" && err != nil:
					t.Errorf("%s is refused: %v", input, err)
				case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
					t.Errorf("%s: %v, want %s", input, err, want)
				}
			}
		})
	}
}

// The arguments that a file is checked against are those that calls may have.
func TestArguments(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		`{"type":"object","required":["a"],"properties":{"b":{},"a":{}}}`: `{"Known":["a","b"],"Required":["a"],"Open":false}`,
		`{"type":"object"}`: `{"Known":null,"Required":null,"Open":true}`,
		`{"type":"object","properties":{"a":{}},"additionalProperties":false}`:             `{"Known":["a"],"Required":null,"Open":false}`,
		`{"type":"object","properties":{"a":{}},"additionalProperties":{"type":"string"}}`: `{"Known":["a"],"Required":null,"Open":true}`,
		`{"type":"object","additionalProperties":false}`:                                   `{"Known":null,"Required":null,"Open":false}`,
		`{"type":"object","allOf":[{"$ref":"#/$defs/b"}],"oneOf":[{"properties":{"x":{}},"required":["x"]},{"properties":{"y":{}}}],"$defs":{"b":{"required":["b"],"properties":{"b":{}}}}}`: `{"Known":["b","x","y"],"Required":["b"],"Open":false}`,
		`{"type":"object","if":{"properties":{"a":{}}},"then":{"properties":{"b":{}}},"else":{"properties":{"c":{}}},"dependentSchemas":{"a":{"properties":{"d":{}}}}}`:                      `{"Known":["a","b","c","d"],"Required":null,"Open":false}`,
	} {
		parsed, err := helix.ParseSchema(json.RawMessage(schema))
		if err != nil {
			t.Fatal(err)
		}
		arguments, err := parsed.Arguments()
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := json.Marshal(arguments); string(got) != want {
			t.Errorf("%s: %s, want %s", schema, got, want)
		}
	}
}
