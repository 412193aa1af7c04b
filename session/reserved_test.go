package session_test

import (
	"strings"
	"testing"

	"github.com/helixagents/helix/session"
)

func TestPublicLeavesOutReservedKeys(t *testing.T) {
	t.Parallel()
	state, err := session.ParseCustomState([]byte(`{"a":1,"helix:b":2,"helix":3}`))
	if err != nil {
		t.Fatal(err)
	}
	public := state.Public()
	if raw, _ := public.MarshalJSON(); string(raw) != `{"a":1,"helix":3}` {
		t.Errorf("the public state is %s", raw)
	}
	if !state.Has("helix:b") {
		t.Error("the state itself has lost a key")
	}
	writes := session.Writes{Ops: []session.Op{
		{Kind: session.OpReplace, Key: "helix:b", Value: []byte("4")},
		{Kind: session.OpReplace, Key: "a", Value: []byte("5")},
		{Kind: session.OpAppend, Key: "helix:l", Items: nil},
	}}
	if got := writes.Public(); len(got.Ops) != 1 || got.Ops[0].Key != "a" || len(writes.Ops) != 3 {
		t.Errorf("the public writes are %v", got.Ops)
	}
	for name, patches := range map[string][]session.Patch{
		"patches": session.Patches(&state, writes), "results": session.ResultPatches(&state, writes),
	} {
		if len(patches) != 1 || patches[0].Path != "/a" {
			t.Errorf("%s: %v", name, patches)
		}
	}
	for name := range map[string]bool{session.MetaCompaction: true, "helixOther": true} {
		m := session.UserText("x")
		m.Metadata = session.Extra{name: []byte("1")}
		if err := m.CheckPublic(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	m := session.UserText("x")
	m.Metadata = session.Extra{session.MetaHidden: []byte("true"), "mine": []byte("1"), session.MetaSkills: []byte(`["pdf","a-1"]`)}
	if err := m.CheckPublic(); err != nil {
		t.Error(err)
	}
	for _, value := range []string{`"pdf"`, `[1]`, `[""]`, `["a/b"]`, `["A"]`, `["` + strings.Repeat("a", 65) + `"]`, `["a"` + strings.Repeat(`,"a"`, session.MaxSkills) + `]`} {
		m.Metadata = session.Extra{session.MetaSkills: []byte(value)}
		if err := m.CheckPublic(); err == nil || !strings.Contains(err.Error(), session.MetaSkills) {
			t.Errorf("%s: %v", value, err)
		}
	}
}
