package session_test

import (
	"maps"
	"testing"

	"github.com/helixagents/helix/session"
)

func TestPatchedMetadata(t *testing.T) {
	t.Parallel()
	was := map[string]string{"a": "1", "b": "2"}
	s := session.State{ID: "s", Agent: "a", Status: session.Active, Metadata: was}
	for name, test := range map[string]struct {
		patch map[string]*string
		want  map[string]string
	}{
		"nothing":          {nil, map[string]string{"a": "1", "b": "2"}},
		"set and add":      {map[string]*string{"a": new("x"), "c": new("3")}, map[string]string{"a": "x", "b": "2", "c": "3"}},
		"delete":           {map[string]*string{"a": nil, "z": nil}, map[string]string{"b": "2"}},
		"delete all":       {map[string]*string{"a": nil, "b": nil}, nil},
		"an empty value":   {map[string]*string{"a": new("")}, map[string]string{"a": "", "b": "2"}},
		"in place of some": {map[string]*string{"a": nil, "b": nil, "c": new("3")}, map[string]string{"c": "3"}},
	} {
		got, err := s.PatchedMetadata(test.patch)
		if err != nil || !maps.Equal(got, test.want) || (got == nil) != (test.want == nil) {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
	if _, err := s.PatchedMetadata(map[string]*string{"": new("x")}); err == nil {
		t.Error("an entry that a document may not have is added")
	}
	if !maps.Equal(was, map[string]string{"a": "1", "b": "2"}) {
		t.Error("the document was changed")
	}
}
