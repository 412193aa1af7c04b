package session_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/helixagents/helix/session"
)

// TestQuestionsAreBounded refuses questions whose answers could take long to check, or whose
// address misleads.
func TestQuestionsAreBounded(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"items":`, 40) + `{}` + strings.Repeat("}", 40)
	wide := `{"anyOf":[` + strings.Repeat(`{},`, 1000) + `{}]}`
	for name, test := range map[string]struct {
		change func(*session.Pending)
		want   string // in the error; "" if there is none
	}{
		"object": {func(p *session.Pending) {
			p.Schema = json.RawMessage(`{"type":"object","properties":{"a":{"enum":["$ref"]}}}`)
		}, ""},
		"boolean": {func(p *session.Pending) { p.Schema = json.RawMessage(`true`) }, ""},
		"itself":  {func(p *session.Pending) { p.Schema = json.RawMessage(`{"$ref":"#"}`) }, "$ref"},
		"nested": {func(p *session.Pending) {
			p.Schema = json.RawMessage(`{"allOf":[{"type":"string"},{"a":1,"$ref":"#"}]}`)
		}, "$ref"},
		"escaped":    {func(p *session.Pending) { p.Schema = json.RawMessage(`{"\u0024ref":"#"}`) }, "$ref"},
		"dynamic":    {func(p *session.Pending) { p.Schema = json.RawMessage(`{"items":{"$dynamicRef":"#"}}`) }, "$dynamicRef"},
		"deep":       {func(p *session.Pending) { p.Schema = json.RawMessage(deep) }, "levels"},
		"wide":       {func(p *session.Pending) { p.Schema = json.RawMessage(wide) }, "parts"},
		"other case": {func(p *session.Pending) { p.Schema = json.RawMessage(`{"not":{"$REF":"#"}}`) }, "$REF"},
		"many values": {func(p *session.Pending) {
			p.Schema = json.RawMessage(`{"enum":[` + strings.Repeat(`1,`, 1000) + `1]}`)
		}, "parts"},
		"patterns": {func(p *session.Pending) {
			p.Schema = json.RawMessage(`{"properties":{"pattern":{"pattern":"^[\\p{L} ]{1,64}$"},"b":{"pattern":"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"}}}`)
		}, ""},
		"long pattern": {func(p *session.Pending) {
			p.Schema = json.RawMessage(`{"items":{"pattern":"` + strings.Repeat("a", 257) + `"}}`)
		}, "256 bytes"},
		"many patterns": {func(p *session.Pending) {
			p.Schema = json.RawMessage(`{"anyOf":[` + strings.Repeat(`{"pattern":"a"},`, 16) + `{"pattern":"a"}]}`)
		}, "16 patterns"},
		"large pattern": {func(p *session.Pending) {
			p.Schema = json.RawMessage(`{"pattern":"` + strings.Repeat(".{0,1000}", 3) + `"}`)
		}, "steps"},
		"nested repeats": {func(p *session.Pending) { p.Schema = json.RawMessage(`{"Pattern":"((aaaa){30}){30}"}`) }, "steps"},
		"wrong pattern":  {func(p *session.Pending) { p.Schema = json.RawMessage(`{"pattern":"("}`) }, "pattern"},
		"pattern in value": {func(p *session.Pending) {
			p.Schema = json.RawMessage(`{"const":{"pattern":"(","contains":{"$ref":"#"}}}`)
		}, ""},
		"names": {func(p *session.Pending) {
			p.Schema = json.RawMessage(`{"properties":{"contains":{"type":"string"},"properties":{"properties":{"dependencies":{}}}},"dependentRequired":{"contains":["properties"]}}`)
		}, ""},
		"after a list":    {func(p *session.Pending) { p.Schema = json.RawMessage(`{"enum":[{"a":[]}],"uniqueItems":true}`) }, "uniqueItems"},
		"in definitions":  {func(p *session.Pending) { p.Schema = json.RawMessage(`{"$defs":{"const":{"contains":{}}}}`) }, "contains"},
		"name patterns":   {func(p *session.Pending) { p.Schema = json.RawMessage(`{"patternProperties":{"a":{}}}`) }, "patternProperties"},
		"address":         {func(p *session.Pending) { p.Schema, p.URL = nil, "https://example.com/sign-in" }, ""},
		"user in address": {func(p *session.Pending) { p.Schema, p.URL = nil, "https://example.com@evil.example/" }, "url"},
		"look-alike":      {func(p *session.Pending) { p.Schema, p.URL = nil, "https://ex\u0430mple.com/" }, "punycode"},
		"escaped host":    {func(p *session.Pending) { p.Schema, p.URL = nil, "https://ex%D0%B0mple.com/" }, "punycode"},
		"punycode":        {func(p *session.Pending) { p.Schema, p.URL = nil, "https://xn--exmple-4nf.com:8443/\u0430" }, ""},
		"script":          {func(p *session.Pending) { p.Schema, p.URL = nil, "javascript:alert(1)" }, "url"},
		"another call's":  {func(p *session.Pending) { p.For = "call-2" }, "call-2"},
		"number 0":        {func(p *session.Pending) { p.CallID = "call-1.q0" }, "call-1.q0"},
		"number 017":      {func(p *session.Pending) { p.CallID = "call-1.q017" }, "call-1.q017"},
		"number 17":       {func(p *session.Pending) { p.CallID = "call-1.q17" }, "call-1.q17"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := session.Pending{
				CallID: "call-1.q1", For: "call-1", Tool: "ask", Kind: session.PendingQuestion, Prompt: "What?", Schema: json.RawMessage(`{"type":"string"}`),
			}
			test.change(&p)
			err := p.Check()
			if (err == nil) != (test.want == "") || (err != nil && !strings.Contains(err.Error(), test.want)) {
				t.Errorf("the error is %v, want one with %q", err, test.want)
			}
		})
	}
}

// TestEffortOfAnswers refuses answers that would take long to check, and no others.
func TestEffortOfAnswers(t *testing.T) {
	t.Parallel()
	list := func(n int) string { return "[" + strings.Repeat("1,", n-1) + "1]" }
	for name, test := range map[string]struct {
		schema, answer string
		refused        bool
	}{
		"long text":               {`{"type":"string"}`, `"` + strings.Repeat("a, [", 16_000) + `"`, false},
		"long list":               {`{"items":{"type":"integer"}}`, list(30_000), false},
		"short list, many parts":  {`{"items":{"anyOf":` + list(900) + `}}`, list(100), false},
		"long list, many parts":   {`{"items":{"anyOf":` + list(900) + `}}`, list(2000), true},
		"long list, long text":    {`{"items":{"enum":["` + strings.Repeat("a", 60_000) + `"]}}`, list(2000), true},
		"long text, long pattern": {`{"pattern":"(x+x+){200}y"}`, `"` + strings.Repeat("x", 60_000) + `"`, true},
		"short, long pattern":     {`{"pattern":"(x+x+){100}y"}`, `"xxxx"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := session.Pending{CallID: "call-1.q1", Kind: session.PendingQuestion, Schema: json.RawMessage(test.schema)}
			err := p.CheckEffort(json.RawMessage(test.answer))
			if test.refused != errors.Is(err, session.ErrTooLarge) || (err != nil) != test.refused ||
				(err != nil && !strings.Contains(err.Error(), "the answer to question call-1.q1")) {
				t.Errorf("the error is %v, want one: %v", err, test.refused)
			}
		})
	}
}
