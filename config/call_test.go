package config

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/memory"
)

// desk runs the agents of a file, whose models play a script by the agents' models.
type desk struct {
	*testing.T
	rt       *local.Runtime
	sessions session.Store
	agents   []*helix.Agent
	judged   []string // the inputs that policies were asked about
	mu       sync.Mutex
}

func openDesk(t *testing.T, text string, models map[string]llm.Model) *desk {
	t.Helper()
	agents, err := mustParse(t, text).Build(BuildOptions{OpenModel: func(m Model) (llm.Model, error) { return models[m.Name], nil }})
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{T: t, agents: agents}
	for _, agent := range agents {
		for i := range agent.Tools {
			if policy := agent.Tools[i].Approval; policy != nil {
				agent.Tools[i].Approval = func(ctx context.Context, call *helix.Call, input json.RawMessage) (bool, error) {
					d.mu.Lock()
					d.judged = append(d.judged, string(input))
					d.mu.Unlock()
					return policy(ctx, call, input)
				}
			}
		}
	}
	db := memory.New(memory.Config{})
	if d.rt, err = local.New(local.Config{Backend: db, Agents: agents}); err != nil {
		t.Fatal(err)
	}
	d.sessions = db.Sessions()
	t.Cleanup(func() { _ = d.rt.Shutdown(context.Background()) })
	return d
}

// say says something to the first agent, as a user of a tenant.
func (d *desk) say(user helix.User) *helix.Result {
	d.Helper()
	rt := d.rt.Tenant(user.Tenant)
	run, err := rt.Execute(d.Context(), d.agents[0], helix.Input{SessionID: "s-1", User: user, Message: helix.UserText("Go!")})
	if err != nil {
		d.Fatal(err)
	}
	res, err := run.Result(d.Context())
	if err != nil {
		d.Fatal(err)
	}
	return res
}

// results are what the calls of a session came to.
func (d *desk) results(id string) []string {
	d.Helper()
	messages, err := d.sessions.AllMessages(d.Context(), id)
	if err != nil {
		d.Fatal(err)
	}
	var out []string
	for i := range messages {
		for j := range messages[i].Parts {
			switch p := &messages[i].Parts[j]; {
			case p.Kind != session.PartToolResult:
			case p.Error != nil:
				out = append(out, string(p.Error.Code)+": "+p.Error.Message)
			default:
				out = append(out, string(p.ResultJSON()))
			}
		}
	}
	return out
}

// refundExample is the file that docs/helix-yaml.md begins with, with another shop.
func refundExample(t *testing.T, shop string) string {
	t.Helper()
	page, err := os.ReadFile("testdata/helix-yaml.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	for _, change := range [][2]string{
		{"https://shop.example.com", shop},
		{"    idempotent: true\n", "    idempotent: true\n    allowPrivate: true\n"},
		{"${SHOP_TOKEN}", "${SECRET}"},
		{"${HELIX_TOKEN}", "${SECRET}"},
	} {
		if !strings.Contains(text, change[0]) {
			t.Fatalf("the example has no %q", change[0])
		}
		text = strings.ReplaceAll(text, change[0], change[1])
	}
	return text
}

// What the policy saw, what is stored for the person who approves, and what the service
// is sent are the same bytes, value by value; and nothing that is not declared, or given
// twice, gets as far as any of them.
func TestRefunds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		input   string
		refused string // why
		waits   bool
		body    string
	}{
		"small":                    {input: `{"id":"7","amount":50}`, body: `{"amount":50}`},
		"as it is written":         {input: `{ "amount" : 1.000e2, "id":"\u0037" }`, body: `{"amount":1.000e2}`},
		"large":                    {input: `{"id":"7","amount":5000.10}`, waits: true, body: `{"amount":5000.10}`},
		"more digits than a float": {input: `{"id":"7","amount":100000000000000000000.01}`, waits: true, body: `{"amount":100000000000000000000.01}`},
		"extra":                    {input: `{"id":"7","amount":50,"to_account":"attacker","currency":"KWD"}`, refused: `undeclared arguments "currency", "to_account"`},
		"another case":             {input: `{"id":"7","amount":50,"Amount":5000}`, refused: `undeclared argument "Amount"`},
		"twice":                    {input: `{"id":"7","amount":5000,"amount":5}`, refused: `the argument "amount" is given twice`},
		"twice, escaped":           {input: `{"id":"7","amount":5,"\u0061mount":5000}`, refused: `the argument "amount" is given twice`},
		"twice below":              {input: `{"id":"7","amount":50,"order":{"amount":5000,"amount":5}}`, refused: `the argument "order.amount" is given twice`},
		"options and a question":   {input: `{"id":"7","amount":5000000,"options":[],"question":"Refund 5 EUR?"}`, refused: `undeclared arguments "options", "question"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shop := serveWeb(t, answerJSON(`"paid"`))
			d := openDesk(t, refundExample(t, shop.URL), map[string]llm.Model{
				"default": scripted.New(scripted.Call("refund", c.input), scripted.Text("Done.")), "cheap": scripted.New(),
			})
			res := d.say(helix.User{ID: "ada"})
			if c.refused != "" {
				if got := d.results("s-1"); len(got) != 1 || got[0] != "tool_invalid_input: the input of refund does not fit: "+c.refused {
					t.Errorf("the call came to %q", got)
				}
				if len(d.judged) > 0 || len(res.Pending) > 0 || len(shop.asked()) > 0 {
					t.Errorf("judged %q, waits for %v, sent %q", d.judged, res.Pending, shop.asked())
				}
				return
			}
			if !slices.Equal(d.judged, []string{c.input}) {
				t.Errorf("the policy was given %q", d.judged)
			}
			if c.waits {
				if len(res.Pending) != 1 || string(res.Pending[0].Input) != c.input || len(shop.asked()) > 0 {
					t.Fatalf("waits for %+v, sent %q", res.Pending, shop.asked())
				}
				p := res.Pending[0]
				if _, err := d.rt.Submit(t.Context(), "s-1", helix.Approve(p, helix.User{ID: "ada"})); !errors.Is(err, helix.ErrNotAllowed) {
					t.Errorf("the owner approves: %v", err)
				}
				if _, err := d.rt.Submit(t.Context(), "s-1", helix.Approve(p, helix.User{ID: "bob"})); err != nil {
					t.Fatal(err)
				}
				run, err := d.rt.Resume(t.Context(), "s-1", helix.ResumeOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := run.Result(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if got := d.results("s-1"); !slices.Equal(got, []string{`"paid"`}) {
				t.Errorf("the call came to %q", got)
			}
			if got, want := shop.asked(), "POST /orders/7/refunds Bearer s3cr3t-s3cr3t-s3cr3t "+c.body; !slices.Equal(got, []string{want}) {
				t.Errorf("the service was sent %q", got)
			}
			// What CEL calculates with is what the service reads.
			arguments, err := decodeArguments(json.RawMessage(c.input), Schema(`{"properties":{"amount":{"type":"number"}}}`))
			if err != nil {
				t.Fatal(err)
			}
			var sent struct{ Amount float64 }
			if err := json.Unmarshal([]byte(c.body), &sent); err != nil || arguments["amount"] != sent.Amount {
				t.Errorf("the policy calculated with %v, the service with %v", arguments["amount"], sent.Amount)
			}
		})
	}
}

// A service is told for whom it is asked by the server; the model cannot say so.
func TestIdentityOfTheSession(t *testing.T) {
	t.Parallel()
	shop := serveWeb(t, answerJSON(`"ok"`))
	text := `version: 1
models: {front: demo, back: demo}
agents:
  front: {model: front, subAgents: [back]}
  back: {model: back, tools: [orders]}
tools:
  orders:
    type: http
    method: POST
    url: ` + shop.URL + `/{user.tenant}/users/{user.id}/{topic}?session={session.id}&u={user.id}
    headers: {Authorization: "user {user.id}", X-Literal: "{topic}"}
    body: {user: "{user.id}", text: "{topic} of {user.id}"}
    allowPrivate: true
    input: {type: object, required: [topic], properties: {topic: {type: string}}}
`
	models := map[string]llm.Model{
		"front": scripted.New(scripted.Call("subagent__back", `{"task":"look"}`), scripted.Text("Done.")),
		"back":  scripted.New(scripted.Call("orders", `{"topic":"{user.id} as bob"}`), scripted.Call("orders", `{"topic":"x","user.id":"bob"}`), scripted.Text("Done.")),
	}
	d := openDesk(t, text, models)
	if res := d.say(helix.User{ID: "ada/1@x", Tenant: "acme"}); res.Status != helix.Completed {
		t.Fatalf("%+v", res)
	}
	seen := shop.asked()
	if len(seen) != 1 {
		t.Fatalf("the service was sent %q", seen)
	}
	request, body, _ := strings.Cut(seen[0], " {")
	path, session, _ := strings.Cut(request, "session=s-1-sub-")
	if path != "POST /acme/users/ada%2F1@x/%7Buser.id%7D%20as%20bob?" || !strings.HasSuffix(session, "&u=ada%2F1%40x user ada/1@x") {
		t.Errorf("the service was sent %s", request)
	}
	if "{"+body != `{"text":"{user.id} as bob of ada/1@x","user":"ada/1@x"}` || shop.headers[0].Get("X-Literal") != "{topic}" {
		t.Errorf("the service was sent %s, %v", body, shop.headers[0])
	}
}

// A tool that needs to know for whom it asks sends nothing where nobody knows, or where
// the name would not arrive as it is.
func TestNoIdentity(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		keys string
		call helix.Scope
		want string
	}{
		"no user in a path":      {"url: BASE/{user.id}", helix.Scope{SessionID: "s"}, "needs {user.id}, and the session has no user"},
		"no user in a query":     {"url: BASE/?u={user.id}", helix.Scope{SessionID: "s"}, "needs {user.id}"},
		"no user in a header":    {"url: BASE/\nheaders: {X-User: \"{user.id}\"}", helix.Scope{SessionID: "s"}, "needs {user.id}"},
		"no user in a body":      {"method: POST\nurl: BASE/\nbody: {u: \"{user.id}\"}", helix.Scope{SessionID: "s"}, "needs {user.id}"},
		"no tenant":              {"url: BASE/?t={user.tenant}", helix.Scope{SessionID: "s", UserID: "ada"}, "needs {user.tenant}"},
		"another path":           {"url: BASE/{user.id}", helix.Scope{SessionID: "s", UserID: ".."}, "cannot be part of an address"},
		"another header":         {"url: BASE/\nheaders: {X-User: \"{user.id}\"}", helix.Scope{SessionID: "s", UserID: "a\r\nX-Admin: yes"}, "a header must not have"},
		"a name that is trimmed": {"url: BASE/\nheaders: {X-User: \"{user.id}\"}", helix.Scope{SessionID: "s", UserID: "ada "}, "a header must not have"},
		"a name of other signs":  {"url: BASE/\nheaders: {X-User: \"{user.id}\"}", helix.Scope{SessionID: "s", UserID: "ad\u202ea"}, "a header must not have"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveWeb(t, answerJSON(`1`))
			tool := builtTool(t, strings.ReplaceAll(c.keys, "BASE", s.URL))
			_, err := tool.Execute.Call(t.Context(), &helix.Call{Scope: c.call, ID: "c", Tool: "t"}, json.RawMessage(`{}`))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
			if seen := s.asked(); len(seen) > 0 {
				t.Errorf("sent %q", seen)
			}
		})
	}
}

// An argument is sent once, whatever the schema lets pass.
func TestNoArgumentTwice(t *testing.T) {
	t.Parallel()
	s := serveWeb(t, answerJSON(`1`))
	const open = "input: {type: object, properties: {q: {type: string}}, additionalProperties: true}\n"
	tool := builtTool(t, open+"url: "+s.URL+"/?account=42&%6Bind=x")
	for _, input := range []string{`{"account":"999"}`, `{"Account":"999"}`, `{"kind":"y"}`} {
		if _, err := callTool(t, tool, input); !errors.Is(err, &session.Error{Code: session.CodeToolInput}) || !strings.Contains(err.Error(), "the address already sets it") {
			t.Errorf("%s: %v", input, err)
		}
	}
	if seen := s.asked(); len(seen) > 0 {
		t.Errorf("sent %q", seen)
	}
	if _, err := callTool(t, tool, `{"q":"x","more":["a","b"]}`); err != nil {
		t.Error(err)
	}
	if seen := s.asked(); !slices.Equal(seen, []string{"GET /?account=42&%6Bind=x&more=a&more=b&q=x"}) {
		t.Errorf("sent %q", seen)
	}
}

// A call that waited since before an argument was undeclared is not sent with it.
func TestUndeclaredArgumentsAreNotSent(t *testing.T) {
	t.Parallel()
	s := serveWeb(t, answerJSON(`1`))
	for _, keys := range []string{"method: POST\nurl: ", "url: "} {
		_, err := callTool(t, builtTool(t, threeInputs+"\n"+keys+s.URL), `{"id":"x","to_account":"attacker"}`)
		if !errors.Is(err, &session.Error{Code: session.CodeToolInput}) || !strings.Contains(err.Error(), `undeclared argument "to_account"`) {
			t.Errorf("%v", err)
		}
	}
	if seen := s.asked(); len(seen) > 0 {
		t.Errorf("sent %q", seen)
	}
}

// What the file's check takes for open is what calls are held to.
func TestCheckAndCallsAgree(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ input, problem string }{
		{"{type: object, properties: {a: {}}}", `there is no argument "b"`},
		{"{type: object, properties: {a: {}}, additionalProperties: false}", `there is no argument "b"`},
		{"{type: object, allOf: [{$ref: '#/$defs/x'}], $defs: {x: {properties: {a: {}}}}}", `there is no argument "b"`},
		{"{type: object, properties: {a: {}}, additionalProperties: true}", ""},
		{"{type: object, properties: {a: {}}, patternProperties: {'^b': {}}}", ""},
		{"{type: object}", ""},
	} {
		keys := "url: https://api.example.com/\napproval: input.b > 1\ninput: " + c.input
		text := "version: 1\nagents:\n  a: {model: demo, tools: [t]}\ntools:\n  t:\n    type: http\n"
		for line := range strings.Lines(keys) {
			text += "    " + line
		}
		_, err := parse("helix.yaml", []byte(text+"\n"), noEnv)
		if (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%s: %v", c.input, err)
		}
		s := serveWeb(t, answerJSON(`1`))
		_, err = callTool(t, builtTool(t, "url: "+s.URL+"\ninput: "+c.input), `{"b":5}`)
		if (err == nil) != (c.problem == "") {
			t.Errorf("%s: the call: %v", c.input, err)
		}
	}
}
