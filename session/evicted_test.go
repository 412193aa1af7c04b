package session_test

import (
	"encoding/json"
	"testing"

	"github.com/helixagents/helix/session"
)

func TestEvicted(t *testing.T) {
	t.Parallel()
	part := session.Part{Kind: session.PartToolResult, CallID: "c", Text: "[…]"}
	value := `{"id":"abc","blobs":["sha256:a","sha256:b"],"bytes":20000000,"lines":3,"json":true}`
	for name, c := range map[string]struct {
		role  session.Role
		value string
		want  bool
	}{
		"a result":            {session.RoleTool, value, true},
		"with a later field":  {session.RoleTool, `{"blobs":["sha256:a"],"kind":"new"}`, true},
		"no metadata":         {session.RoleTool, "", false},
		"no blob":             {session.RoleTool, `{"id":"abc","blobs":[]}`, false},
		"nonsense":            {session.RoleTool, `[1]`, false},
		"a message of a user": {session.RoleUser, value, false},
	} {
		m := session.Message{ID: "m", Role: c.role, Parts: []session.Part{part}}
		if c.value != "" {
			m.Metadata = map[string]json.RawMessage{session.MetaEvicted: json.RawMessage(c.value)}
		}
		if got := m.Evicted(); (got != nil) != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	m := session.Message{ID: "m", Role: session.RoleTool, Parts: []session.Part{part}, Metadata: map[string]json.RawMessage{session.MetaEvicted: json.RawMessage(value)}}
	raw, err := session.Encode(&m)
	if err != nil {
		t.Fatal(err)
	}
	var back session.Message
	if err := session.Decode("message", raw, &back); err != nil {
		t.Fatal(err)
	}
	got := back.Evicted()
	if got == nil || got.ID != "abc" || len(got.Blobs) != 2 || got.Bytes != 20_000_000 || got.Lines != 3 || !got.JSON {
		t.Errorf("it is read back as %+v", got)
	}
	if err := m.CheckPublic(); err == nil {
		t.Error("a caller may write it")
	}
}
