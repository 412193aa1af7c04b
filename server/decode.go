package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

// decode reads the request's body into v, a pointer to a struct. It takes nothing
// that the struct does not name. No body is an empty object.
func (x *exchange) decode(v any) error {
	body, err := x.body()
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(body)) == 0 {
		body = []byte("{}")
	}
	return decodeObject(body, v)
}

// body reads the request's body, which must be JSON, within limits.
func (x *exchange) body() ([]byte, error) {
	if x.r.ContentLength == 0 { // and so of no type
		return nil, nil
	}
	media, _, err := mime.ParseMediaType(x.r.Header.Get("Content-Type"))
	if err != nil || media != wire.ContentJSON {
		return nil, refuse(http.StatusUnsupportedMediaType, wire.CodeMediaType, "the body must be "+wire.ContentJSON).field("Content-Type")
	}
	limit := x.server.cfg.Limits.Body
	control := http.NewResponseController(x.w)
	_ = control.SetReadDeadline(time.Now().Add(x.server.cfg.Limits.ReadTimeout)) // not every connection can
	body, err := io.ReadAll(http.MaxBytesReader(x.w, x.r.Body, limit))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return nil, session.ErrTooLarge.WithMessage("the body has more than %d bytes", limit)
	}
	if err != nil {
		return nil, session.Invalid("body", "could not be read").WithCause(err, "the body could not be read")
	}
	_ = control.SetReadDeadline(time.Time{}) // it stays for what is left of a body that was not read
	return body, nil
}

func decodeObject(body []byte, v any) error {
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return session.Invalid("body", "must be a JSON object")
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(v); err != nil {
		return badBody(body, v, err)
	}
	if decoder.InputOffset() < int64(len(body)) && len(bytes.TrimSpace(body[decoder.InputOffset():])) > 0 {
		return session.Invalid("body", "has something after its end")
	}
	return nil
}

// badBody says which field of a body is wrong.
func badBody(body []byte, v any, err error) error {
	if wrongType, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		field := wrongType.Field
		if field == "" {
			field = "body"
		}
		return session.Invalid(field, "must be %s, not %s", kindName(wrongType), wrongType.Value)
	}
	if invalid, ok := errors.AsType[*session.Error](err); ok {
		return invalid
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		if unquoted, err := strconv.Unquote(name); err == nil {
			name = unquoted
		}
		if name == "" {
			return session.Invalid("body", "has a field without a name")
		}
		return session.Invalid(name, "is not a field of this request")
	}
	field := culprit(body, v)
	if field == "body" {
		return session.Invalid(field, "is not valid JSON: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return session.Invalid(field, "cannot be read: %s", strings.TrimPrefix(err.Error(), "json: "))
}

// culprit finds the field of a body whose own decoder refused it, for such errors
// name none.
func culprit(body []byte, v any) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil {
		return "body"
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		alone, err := json.Marshal(map[string]json.RawMessage{name: fields[name]})
		if err == nil && json.Unmarshal(alone, reflect.New(reflect.TypeOf(v).Elem()).Interface()) != nil {
			return name
		}
	}
	return "body"
}

func kindName(err *json.UnmarshalTypeError) string {
	switch err.Type.Kind() {
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map, reflect.Pointer:
		return "an object"
	}
	return "a whole number"
}
