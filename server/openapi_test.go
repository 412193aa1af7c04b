package server_test

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/server"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// document is /openapi.json as a client reads it.
type document struct {
	OpenAPI string `json:"openapi"`
	Paths   map[string]map[string]struct {
		OperationID string `json:"operationId"`
		Parameters  []struct {
			Name, In string
			Required bool
		} `json:"parameters"`
		RequestBody *struct {
			Content map[string]struct{ Schema json.RawMessage } `json:"content"`
		} `json:"requestBody"`
		Responses map[string]struct {
			Content map[string]struct{ Schema json.RawMessage } `json:"content"`
		} `json:"responses"`
	} `json:"paths"`
	Components struct {
		Schemas map[string]json.RawMessage `json:"schemas"`
	} `json:"components"`
}

// operation is one of a document's.
type operation struct {
	id, method, path string
	body             *schema
	answers          map[int]*schema // nil where the answer is not JSON
	failure          *schema
}

// operations reads the document of a server.
func operations(s *service) []operation {
	s.t.Helper()
	doc := call[document](s, http.StatusOK, http.MethodGet, "/openapi.json", nil)
	if doc.OpenAPI != "3.1.0" {
		s.t.Errorf("openapi is %q", doc.OpenAPI)
	}
	var out []operation
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(doc.Paths[path])) {
			described := doc.Paths[path][method]
			o := operation{id: described.OperationID, method: strings.ToUpper(method), path: path, answers: map[int]*schema{}}
			if described.RequestBody != nil {
				o.body = &schema{&doc, described.RequestBody.Content[wire.ContentJSON].Schema}
			}
			for status, answer := range described.Responses {
				content, ok := answer.Content[wire.ContentJSON]
				switch {
				case status == "default":
					o.failure = &schema{&doc, content.Schema}
				case ok && content.Schema != nil:
					o.answers[number(s.t, status)] = &schema{&doc, content.Schema}
				default:
					o.answers[number(s.t, status)] = nil
				}
			}
			out = append(out, o)
		}
	}
	return out
}

func number(t testing.TB, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// schema is one of a document's.
type schema struct {
	doc *document
	raw json.RawMessage
}

// fits reports how a value breaks the schema.
func fits(s *schema, raw []byte) error {
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		return err
	}
	resolved, err := s.resolve()
	if err != nil {
		return err
	}
	return resolved.Validate(value)
}

var referred = regexp.MustCompile(`"#/components/schemas/([^"]+)"`)

// resolve makes a schema that can validate by itself, of this one and those that it
// refers to.
func (s *schema) resolve() (*jsonschema.Resolved, error) {
	defs := map[string]json.RawMessage{}
	var gather func(raw json.RawMessage)
	gather = func(raw json.RawMessage) {
		for _, found := range referred.FindAllSubmatch(raw, -1) {
			if name := string(found[1]); defs[name] == nil {
				defs[name] = s.doc.Components.Schemas[name]
				gather(defs[name])
			}
		}
	}
	gather(s.raw)
	all, err := json.Marshal(map[string]any{"$defs": defs, "allOf": []json.RawMessage{s.raw}})
	if err != nil {
		return nil, err
	}
	var out jsonschema.Schema
	if err := json.Unmarshal(referred.ReplaceAll(all, []byte(`"#/$$defs/$1"`)), &out); err != nil {
		return nil, err
	}
	return out.Resolve(nil)
}

// example is a request of an operation that is about a user's sessions. The target
// is the session that it names, or one that suits it.
type example struct {
	query  string
	target string         // for the path
	body   map[string]any // nil for none
}

func (e example) on(o operation) string {
	return strings.NewReplacer("{id}", url.PathEscape(e.target), "{hash}", blob.RefOf(hostile), "{name}", "echo").Replace(o.path) + e.query
}

// examples are requests of every operation that succeed. A new operation needs one.
func examples(t testing.TB, o operation, f *files) example {
	t.Helper()
	switch o.id {
	case "post-start":
		return example{body: map[string]any{
			"sessionId": f.done, "agentType": "echo", "message": "more", "requestId": "again", "abandonPending": true,
			"metadata": map[string]string{"a": "b"}, "tags": []string{"x"}, "expiresAt": "2036-01-02T15:04:05Z",
		}}
	case "post-resume":
		return example{body: map[string]any{"sessionId": f.paused, "message": []any{map[string]any{
			"role": "user", "parts": []any{map[string]any{"kind": "text", "text": "continue"}},
		}}, "requestId": "resumed"}}
	case "get-sse":
		return example{query: "?sessionId=" + f.done + "&from=2&run=" + f.run}
	case "get-status":
		return example{query: "?sessionId=" + f.waiting}
	case "post-interrupt", "post-abort":
		return example{body: map[string]any{"sessionId": f.running, "reason": "enough"}}
	case "post-submit-tool-result":
		return example{body: map[string]any{
			"sessionId": f.waiting, "toolCallId": f.call, "resume": true,
			"approval": map[string]any{"approvalId": f.approval, "approved": true, "reason": "fine"},
			"seen":     map[string]any{"toolName": "publish", "input": note{"a note on " + secret}},
		}}
	case "get-sessions":
		return example{query: "?status=active&status=completed&tag=" + secret + "&metadata.topic=" + secret +
			"&roots=true&activity=waiting&limit=2&total=true&createdAfter=2020-01-02T15:04:05Z"}
	case "get-waiting":
		return example{query: "?order=newest&limit=2&total=true"}
	case "get-sessions-id", "get-sessions-id-messages", "get-sessions-id-runs", "get-sessions-id-checkpoints", "get-sessions-id-snapshot",
		"get-sessions-id-blobs-hash", "delete-sessions-id":
		return example{target: f.waiting}
	case "get-sessions-id-pending":
		return example{target: f.waiting}
	case "post-sessions-id-branch":
		return example{target: f.done, body: map[string]any{"sessionId": f.done + "-branch", "message": "else", "checkpointId": f.checkpoint}}
	case "post-sessions-id-retry":
		return example{target: f.failed, body: map[string]any{"requestId": "once more"}}
	case "post-sessions-id-pause":
		return example{target: f.done, body: map[string]any{"reason": "wait"}}
	case "post-sessions-id-compact":
		return example{target: f.done, body: map[string]any{"force": true}}
	case "post-sessions-id-clear":
		return example{target: f.done}
	case "post-chat":
		return example{body: map[string]any{
			"id": f.done, "trigger": "submit-message", "agent": "echo", "abandonPending": true, "tags": []string{"x"},
			"metadata": map[string]string{"a": "b"}, "messageId": "other",
			"messages": []any{map[string]any{"id": "u9", "role": "user", "parts": []any{map[string]any{"type": "text", "text": "hello"}}}},
		}}
	case "get-chat-id-stream":
		return example{target: f.done, query: "?sdk=7&run=" + f.run}
	case "get-chat-id-messages":
		return example{target: f.waiting, query: "?sdk=7&tail=true"}
	case "post-chat-id-submit-tool-result":
		return example{target: f.waiting, body: map[string]any{
			"kind": "approval-response", "toolCallId": f.call, "resume": true, "approvalId": f.approval, "approved": false, "reason": "no",
		}}
	case "post-chat-id-interrupt", "post-chat-id-abort":
		return example{target: f.running, body: map[string]any{"reason": "enough"}}
	case "get-workspace", "get-agents", "get-agents-name-skills", "get-healthz", "get-readyz", "get-openapi-json", "get-helix-js", "get-metrics", "post-cleanup":
		return example{}
	case "get-tasks":
		return example{query: "?givenUp=true&limit=10"}
	case "post-tasks-retry", "post-tasks-drop":
		return example{body: map[string]any{"sessionId": f.done, "id": "task"}}
	}
	t.Fatalf("the operation %s has no example", o.id)
	return example{}
}

// What the document says is what the handlers take and give.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, db store.Backend) {
		s := staffed(t, db, nil)
		for _, o := range operations(s) {
			t.Run(o.id, func(t *testing.T) {
				s := s.as("alice-token")
				s.t = t
				f := s.fill(o.id + "/")
				switch o.id {
				case "get-metrics":
					s = s.as("process-token")
				case "post-cleanup", "get-tasks", "post-tasks-retry", "post-tasks-drop":
					s = s.as("operator-token")
				}
				task := session.Task{ID: "task", Kind: "work", Agent: "agent", SessionID: f.done, Body: []byte(`{"n":1}`)}
				if err := db.Sessions().Tenant("north").PutTasks(t.Context(), []session.Task{task}); err != nil {
					t.Fatal(err)
				}
				e := examples(t, o, f)
				if (o.body == nil) != (e.body == nil) {
					t.Fatalf("the document and the example disagree on whether there is a body")
				}
				if o.body != nil {
					badBodies(t, s, o, e)
					raw, err := session.Encode(e.body)
					if err != nil {
						t.Fatal(err)
					}
					if err := fits(o.body, raw); err != nil {
						t.Errorf("the example does not fit the document: %v", err)
					}
				}
				status := succeeds(t, s, o, e)
				if o.id == "get-workspace" {
					return // it has no success
				}
				if _, ok := o.answers[status]; !ok {
					t.Errorf("%s %s is %d, which the document does not name", o.method, e.on(o), status)
				}
			})
		}
	})
}

// succeeds makes a request whose answer must fit the document.
func succeeds(t *testing.T, s *service, o operation, e example) int {
	t.Helper()
	var body any
	if e.body != nil {
		body = e.body
	}
	answer := s.request(o.method, e.on(o), body)
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	described, named := o.answers[answer.StatusCode]
	if !named {
		described = o.failure
	}
	if described != nil {
		if err := fits(described, raw); err != nil {
			t.Errorf("the answer does not fit the document: %v: %.2000s", err, raw)
		}
	}
	return answer.StatusCode
}

// badBodies sends bodies that the document does not allow.
func badBodies(t *testing.T, s *service, o operation, e example) {
	t.Helper()
	for name := range e.body {
		for _, wrong := range []any{12.5, true, map[string]any{"unexpected": 1}, []any{7}} {
			body := maps.Clone(e.body)
			body[name] = wrong
			raw, err := session.Encode(body)
			if err != nil {
				t.Fatal(err)
			}
			if fits(o.body, raw) == nil {
				continue // a flag may be true
			}
			refused := call[wire.Error](s, http.StatusBadRequest, o.method, e.on(o), string(raw))
			if field := refused.Field[:strings.IndexAny(refused.Field+".", ".[")]; field != name && refused.Field != "unexpected" {
				t.Errorf("%s of %v is refused, but the field is %q: %s", name, wrong, refused.Field, refused.Message)
			}
		}
	}
	body := maps.Clone(e.body)
	body["surprise"] = 1
	raw, err := session.Encode(body)
	if err != nil {
		t.Fatal(err)
	}
	if o.id == "post-chat" { // an application may send fields of its own
		if err := fits(o.body, raw); err != nil {
			t.Errorf("the document does not allow fields that are not named: %v", err)
		}
		return
	}
	if fits(o.body, raw) == nil {
		t.Error("the document allows a field that is not named")
	}
	if refused := s.refused(http.StatusBadRequest, session.CodeInvalid, o.method, e.on(o), body); refused.Field != "surprise" {
		t.Errorf("an unknown field is refused as %+v", refused)
	}
}

// Every route is in the document, and nothing else.
func TestOpenAPIHasEveryRoute(t *testing.T) {
	t.Parallel()
	var described []string
	for _, o := range operations(staffed(t, inMemory(t), nil)) {
		described = append(described, o.method+" "+o.path)
	}
	if routes := server.Routes(); !slices.Equal(described, routes) {
		t.Errorf("the document has\n%q\nand the server\n%q", described, routes)
	}
}
