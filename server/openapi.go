package server

import (
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

func openAPIRoutes() []route {
	return []route{{
		method: http.MethodGet, path: "/openapi.json", summary: "Describe this API.",
		answers: []answer{{status: http.StatusOK, media: wire.ContentJSON}}, open: true,
		handle: func(x *exchange) error {
			document, err := x.server.openAPI()
			if err != nil {
				return session.ErrInternal.WithCause(err, "describe the API")
			}
			x.write(http.StatusOK, wire.ContentJSON, document)
			return nil
		},
	}}
}

// The parts of an OpenAPI 3.1 document that this API needs.
type (
	apiDocument struct {
		OpenAPI    string                             `json:"openapi"`
		Info       apiInfo                            `json:"info"`
		Paths      map[string]map[string]apiOperation `json:"paths"`
		Components apiComponents                      `json:"components"`
		Security   []map[string][]string              `json:"security"`
	}
	apiInfo struct {
		Title   string `json:"title"`
		Version string `json:"version"`
	}
	apiComponents struct {
		Schemas  map[string]*jsonschema.Schema `json:"schemas"`
		Security map[string]any                `json:"securitySchemes"`
	}
	apiOperation struct {
		ID         string                 `json:"operationId"`
		Summary    string                 `json:"summary"`
		Parameters []apiParameter         `json:"parameters,omitempty"`
		Body       *apiBody               `json:"requestBody,omitempty"`
		Responses  map[string]apiResponse `json:"responses"`
		// Security is an empty list if the route needs no identity.
		Security *[]map[string][]string `json:"security,omitempty"`
	}
	apiParameter struct {
		Name     string             `json:"name"`
		In       string             `json:"in"`
		About    string             `json:"description"`
		Required bool               `json:"required,omitempty"`
		Schema   *jsonschema.Schema `json:"schema"`
	}
	apiBody struct {
		Required bool                `json:"required"`
		Content  map[string]apiMedia `json:"content"`
	}
	apiResponse struct {
		About   string              `json:"description"`
		Content map[string]apiMedia `json:"content,omitempty"`
	}
	apiMedia struct {
		Schema *jsonschema.Schema `json:"schema,omitempty"`
	}
)

// describeAPI builds the document for a table of routes.
func describeAPI(title string, table []route) ([]byte, error) {
	schemas := newSchemas()
	doc := apiDocument{
		OpenAPI: "3.1.0",
		Info:    apiInfo{Title: title, Version: wire.ProtocolVersion},
		Paths:   map[string]map[string]apiOperation{},
		Components: apiComponents{
			Schemas:  schemas.named,
			Security: map[string]any{"bearer": map[string]string{"type": "http", "scheme": "bearer"}},
		},
		Security: []map[string][]string{{"bearer": {}}},
	}
	for i := range table {
		r := &table[i]
		operation, err := schemas.operation(r)
		if err != nil {
			return nil, err
		}
		if doc.Paths[r.path] == nil {
			doc.Paths[r.path] = map[string]apiOperation{}
		}
		doc.Paths[r.path][strings.ToLower(r.method)] = *operation
	}
	return json.Marshal(doc)
}

func (s *schemas) operation(r *route) (*apiOperation, error) {
	out := &apiOperation{ID: operationID(r), Summary: r.summary, Responses: map[string]apiResponse{}}
	if r.open {
		out.Security = &[]map[string][]string{}
	}
	for name := range pathParameters(r.path) {
		about := "A session's id, escaped."
		if name == "name" {
			about = "An agent's name."
		}
		out.Parameters = append(out.Parameters, apiParameter{
			Name: name, In: "path", Required: true, About: about, Schema: &jsonschema.Schema{Type: "string"},
		})
	}
	for _, p := range r.query {
		schema := &jsonschema.Schema{Type: p.kind}
		if p.repeated {
			schema = &jsonschema.Schema{Type: "array", Items: schema}
		}
		out.Parameters = append(out.Parameters, apiParameter{Name: p.name, In: "query", Required: p.required, About: p.about, Schema: schema})
	}
	if r.body != nil {
		ref, err := s.of(r.body, !r.extra)
		if err != nil {
			return nil, err
		}
		out.Body = &apiBody{Required: true, Content: map[string]apiMedia{wire.ContentJSON: {Schema: ref}}}
	}
	failure, err := s.of(wire.Error{}, false)
	if err != nil {
		return nil, err
	}
	failures := map[string]apiMedia{wire.ContentJSON: {Schema: failure}}
	if r.forSDK {
		failures["text/plain"] = apiMedia{Schema: &jsonschema.Schema{Type: "string"}}
	}
	out.Responses["default"] = apiResponse{About: "An error.", Content: failures}
	for _, a := range r.answers {
		media, content := a.media, apiMedia{}
		if a.body != nil {
			media = wire.ContentJSON
			if content.Schema, err = s.of(a.body, false); err != nil {
				return nil, err
			}
		}
		response := apiResponse{About: http.StatusText(a.status)}
		if media != "" {
			response.Content = map[string]apiMedia{media: content}
		}
		out.Responses[strconv.Itoa(a.status)] = response
	}
	return out, nil
}

// operationID returns a name for generated clients: "post-sessions-id-branch".
func operationID(r *route) string {
	words := strings.FieldsFunc(r.path, func(c rune) bool { return strings.ContainsRune("/{}.", c) })
	return strings.Join(append([]string{strings.ToLower(r.method)}, words...), "-")
}

// pathParameters yields the names in a path's braces.
func pathParameters(path string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for part := range strings.SplitSeq(path, "/") {
			if name, ok := strings.CutPrefix(part, "{"); ok && !yield(strings.TrimSuffix(name, "}")) {
				return
			}
		}
	}
}

// schemas collects the schemas of types, each once, by name.
type schemas struct {
	named   map[string]*jsonschema.Schema
	options *jsonschema.ForOptions
}

func newSchemas() *schemas {
	anything := &jsonschema.Schema{}
	object := &jsonschema.Schema{Type: "object"}
	text := func(values ...any) *jsonschema.Schema { return &jsonschema.Schema{Type: "string", Enum: values} }
	return &schemas{
		named: map[string]*jsonschema.Schema{"Message": messageSchema(), "UserMessage": userMessageSchema()},
		options: &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
			reflect.TypeFor[json.RawMessage]():     anything,
			reflect.TypeFor[session.CustomState](): object,
			reflect.TypeFor[session.Message]():     {Ref: reference + "Message"},
			reflect.TypeFor[wire.Messages](): {OneOf: []*jsonschema.Schema{
				{Type: "string"}, {Type: "array", Items: &jsonschema.Schema{Ref: reference + "UserMessage"}},
			}},
			reflect.TypeFor[stream.Chunk]():        object,
			reflect.TypeFor[time.Time]():           {Type: "string", Format: "date-time"},
			reflect.TypeFor[session.Status]():      text(values(session.Statuses())...),
			reflect.TypeFor[session.StopKind]():    text(string(session.StopInterrupt), string(session.StopAbort)),
			reflect.TypeFor[session.PendingKind](): text(string(session.PendingClientTool), string(session.PendingApproval), string(session.PendingQuestion)),
			reflect.TypeFor[wire.SubmitKind]():     text(string(wire.SubmitResult), string(wire.SubmitApproval), string(wire.SubmitAnswer)),
			reflect.TypeFor[wire.ToolKind]():       text(string(wire.ToolServer), string(wire.ToolClient), string(wire.ToolApproval)),
			reflect.TypeFor[session.SubmitOutcome](): text(string(session.SubmitAccepted), string(session.SubmitAlreadyCompleted),
				string(session.SubmitLate), string(session.SubmitUnknownCall)),
		}},
	}
}

func values[T ~string](all []T) []any {
	out := make([]any, len(all))
	for i, v := range all {
		out[i] = string(v)
	}
	return out
}

const reference = "#/components/schemas/"

// of returns a reference to the schema of a value's type. Requests allow only defined
// fields; responses may gain fields.
func (s *schemas) of(value any, request bool) (*jsonschema.Schema, error) {
	t := reflect.TypeOf(value)
	name := schemaName(t)
	if s.named[name] == nil {
		schema, err := jsonschema.ForType(t, s.options)
		if err != nil {
			return nil, err
		}
		if !request {
			loosen(schema)
		}
		s.named[name] = schema
	}
	return &jsonschema.Schema{Ref: reference + name}, nil
}

// schemaName returns the type's name; a page is named after its items.
func schemaName(t reflect.Type) string {
	name, item, generic := strings.Cut(t.Name(), "[")
	if generic {
		item = item[strings.LastIndexAny(item, "./")+1:]
		name = strings.TrimSuffix(item, "]") + name
	}
	return name
}

// loosen allows additional fields in objects.
func loosen(s *jsonschema.Schema) {
	if s.Properties != nil {
		s.AdditionalProperties = nil
	}
	for child := range maps.Values(s.Properties) {
		loosen(child)
	}
	for _, child := range slices.Concat([]*jsonschema.Schema{s.Items, s.AdditionalProperties}, s.OneOf) {
		if child != nil {
			loosen(child)
		}
	}
}

// userMessageSchema describes a message that a user sends.
func userMessageSchema() *jsonschema.Schema {
	text, nothing := &jsonschema.Schema{Type: "string"}, &jsonschema.Schema{Not: &jsonschema.Schema{}}
	return &jsonschema.Schema{
		Type: "object", Required: []string{"parts"}, AdditionalProperties: nothing,
		Properties: map[string]*jsonschema.Schema{
			"id": text, "role": {Type: "string", Enum: values([]session.Role{session.RoleUser})},
			"skills": {Type: "array", Items: text},
			"v":      {Type: "integer", Enum: []any{session.FormatVersion}},
			"parts": {Type: "array", Items: &jsonschema.Schema{
				Type: "object", Required: []string{"kind"}, AdditionalProperties: nothing,
				Properties: map[string]*jsonschema.Schema{
					"kind": {Type: "string", Enum: values([]session.PartKind{session.PartText, session.PartFile})},
					"text": text, "url": text, "mediaType": text, "filename": text,
				},
			}},
		},
	}
}

// messageSchema describes a message, whose JSON encoding is written by hand.
func messageSchema() *jsonschema.Schema {
	text := &jsonschema.Schema{Type: "string"}
	part := &jsonschema.Schema{
		Type: "object", Required: []string{"kind"},
		Properties: map[string]*jsonschema.Schema{
			"kind": {Type: "string", Enum: values([]session.PartKind{
				session.PartText, session.PartReasoning, session.PartFile, session.PartToolCall, session.PartToolResult,
			})},
			"text": text, "url": text, "mediaType": text, "filename": text, "callId": text, "providerCallId": text, "tool": text,
			"provider": {}, "input": {}, "output": {}, "error": {Type: "object"},
		},
	}
	return &jsonschema.Schema{
		Type: "object", Required: []string{"role", "parts"},
		Properties: map[string]*jsonschema.Schema{
			"v": {Type: "integer"}, "id": text, "runId": text, "step": {Type: "integer"},
			"role": {Type: "string", Enum: values([]session.Role{
				session.RoleSystem, session.RoleUser, session.RoleAssistant, session.RoleTool,
			})},
			"parts": {Type: "array", Items: part}, "metadata": {Type: "object"}, "at": {Type: "string", Format: "date-time"},
		},
	}
}
