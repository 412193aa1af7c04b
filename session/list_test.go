package session_test

import (
	"encoding/base64"
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/helixagents/helix/session"
)

func TestPageSize(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int]int{math.MinInt: 50, -1: 50, 0: 50, 1: 1, 200: 200, 201: 200, math.MaxInt: 200} {
		if got := (session.PageRequest{Limit: limit}).Size(); got != want {
			t.Errorf("limit %d gives %d, want %d", limit, got, want)
		}
	}
}

func TestQuerySelects(t *testing.T) {
	t.Parallel()
	state := session.State{
		Tenant: "t", ID: "a", Agent: "writer", Status: session.Active, UserID: "u", ParentID: "p", Tags: []string{"x", "y"},
		Metadata: map[string]string{"k": "1"}, Turn: 2, MessageCount: 3, CreatedAt: now, UpdatedAt: now.Add(time.Hour),
	}
	is := state.Summary(session.RunSuspendedPartial)
	want := session.Summary{
		Key: session.Key{Tenant: "t", ID: "a"}, Agent: "writer", Status: session.Active, Activity: session.ActivityWaiting, UserID: "u", ParentID: "p",
		Tags: []string{"x", "y"}, Metadata: map[string]string{"k": "1"}, Turn: 2, MessageCount: 3, CreatedAt: now, UpdatedAt: now.Add(time.Hour),
	}
	if !reflect.DeepEqual(is, want) {
		t.Errorf("the summary is %+v", is)
	}
	for name, test := range map[string]struct {
		query session.Query
		want  bool
	}{
		"everything":           {session.Query{}, true},
		"all of it":            {session.Query{UserID: "u", Agent: "writer", ParentID: "p", Tags: []string{"y", "x"}, Metadata: map[string]string{"k": "1"}, Activity: session.ActivityWaiting, Statuses: []session.Status{session.Failed, session.Active}}, true},
		"another user":         {session.Query{UserID: "v"}, false},
		"another agent":        {session.Query{Agent: "reader"}, false},
		"another parent":       {session.Query{ParentID: "q"}, false},
		"roots":                {session.Query{RootsOnly: true}, false},
		"another activity":     {session.Query{Activity: session.ActivityRunning}, false},
		"another status":       {session.Query{Statuses: []session.Status{session.Failed}}, false},
		"one tag too many":     {session.Query{Tags: []string{"x", "z"}}, false},
		"another value":        {session.Query{Metadata: map[string]string{"k": "2"}}, false},
		"a missing entry":      {session.Query{Metadata: map[string]string{"l": ""}}, false},
		"created after it was": {session.Query{CreatedAfter: now}, false},
		"created before that":  {session.Query{CreatedBefore: now}, false},
		"created around":       {session.Query{CreatedAfter: now.Add(-1), CreatedBefore: now.Add(1)}, true},
	} {
		if got := test.query.Selects(&is); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestCursorsLeadBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := session.Position{N: rapid.Int64().Draw(t, "n"), ID: rapid.String().Draw(t, "id")}
		got, ok, err := session.PageRequest{Cursor: p.Cursor()}.Position()
		if err != nil || !ok || got != p {
			t.Fatalf("%+v became %+v, %v, %v", p, got, ok, err)
		}
	})
}

func TestHostileCursors(t *testing.T) {
	t.Parallel()
	wire := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	for name, cursor := range map[string]string{
		"not base64":        "!!!",
		"padded":            wire(`{"n":1}`) + "==",
		"a line break":      "e30\n!",
		"not JSON":          wire("hello"),
		"a list":            wire("[1]"),
		"a string":          wire(`"x"`),
		"half":              wire(`{"n":1`),
		"two":               wire(`{"n":1}{"n":2}`),
		"a huge number":     wire(`{"n":1e400}`),
		"a fraction":        wire(`{"n":1.5}`),
		"text for a number": wire(`{"n":"1; DROP TABLE sessions"}`),
		"a number for text": wire(`{"n":1,"i":{}}`),
	} {
		if pos, ok, err := (session.PageRequest{Cursor: cursor}).Position(); !errors.Is(err, session.ErrInvalid) || ok {
			t.Errorf("%s: got %+v, %v, %v", name, pos, ok, err)
		}
	}
	if _, ok, err := (session.PageRequest{}).Position(); ok || err != nil {
		t.Errorf("no cursor: %v, %v", ok, err)
	}
	if _, _, err := (session.PageRequest{Offset: -1}).Position(); !errors.Is(err, session.ErrInvalid) {
		t.Errorf("a negative offset: %v", err)
	}
}
