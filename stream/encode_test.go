package stream_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// TestChunkEncodesEveryField fills every field of a chunk and requires that it
// survives a round trip: the encoder is written by hand, and would lose a field
// that is added only to the struct.
func TestChunkEncodesEveryField(t *testing.T) {
	count := 0
	c := stream.Chunk{
		At: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), MessageCount: &count, Step: 1, Success: true, Omitted: true, Attempt: 2, Turn: 3,
		Messages:  []session.Message{session.UserText("a"), session.UserText("b")},
		Arguments: json.RawMessage(`{"a": 1}`), Result: json.RawMessage(`"<b>"`), Data: json.RawMessage(`[1]`),
		Error:   &session.Error{Code: session.CodeToolFailed, Category: "tool", Message: "no"},
		Patches: []session.Patch{{Op: "add", Path: "/a", Value: json.RawMessage(`1`)}},
	}
	v := reflect.ValueOf(&c).Elem()
	for i := range v.NumField() {
		f := v.Field(i)
		if f.Kind() == reflect.String {
			f.SetString("<" + v.Type().Field(i).Name + "> \"\n\u2028é")
		}
		if f.IsZero() {
			t.Fatalf("the test does not fill %s", v.Type().Field(i).Name)
		}
	}
	raw, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var got stream.Chunk
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	compareChunks(t, got, c)
	through, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var again stream.Chunk
	if err := json.Unmarshal(through, &again); err != nil {
		t.Fatal(err)
	}
	again.Arguments, again.Result = got.Arguments, got.Result // encoding/json reformats embedded JSON
	compareChunks(t, again, c)
}

// compareChunks compares field by field, errors by their text.
func compareChunks(t *testing.T, got, want stream.Chunk) {
	t.Helper()
	if got.Error.Code != want.Error.Code || got.Error.Message != want.Error.Message {
		t.Errorf("the error is %v, want %v", got.Error, want.Error)
	}
	a, b := reflect.ValueOf(got), reflect.ValueOf(want)
	for i := range a.NumField() {
		name := a.Type().Field(i).Name
		if name != "Error" && !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			t.Errorf("%s is %v, want %v", name, a.Field(i), b.Field(i))
		}
	}
}
