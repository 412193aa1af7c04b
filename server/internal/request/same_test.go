package request_test

import (
	"encoding/json"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/helixagents/helix/server/internal/request"
)

func TestSameJSON(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{
		{`{"a":1,"b":[true,null,"x"]}`, ` { "b" : [ true , null , "\u0078" ] , "a" : 1.0 } `},
		{`{"2":"b","10":"c","é":1e2}`, `{"10":"c","2":"b","\u00e9":100}`},
		{`9007199254740993`, `9007199254740992`}, // as JavaScript reads it
		{`[-0]`, `[0]`},
		{`{}`, `{}`},
		{`[]`, `[ ]`},
		{`""`, `""`},
		{`"\ud800"`, `"\ud800"`},
	} {
		if !request.SameJSON([]byte(pair[0]), []byte(pair[1])) {
			t.Errorf("%s is not %s", pair[0], pair[1])
		}
	}
	for _, pair := range [][2]string{
		{`{"a":1}`, `{"a":2}`},
		{`{"a":1}`, `{"b":1}`},
		{`{"a":1}`, `{"a":1,"b":1}`},
		{`{"a":1,"b":2}`, `{"a":2,"b":1}`},
		{`[1,2]`, `[2,1]`},
		{`[[1],2]`, `[1,[2]]`},
		{`[1]`, `1`},
		{`[]`, `{}`},
		{`[]`, `null`},
		{`0`, `"0"`},
		{`0`, `false`},
		{`null`, `"null"`},
		{`{"a":{"b":1},"c":2}`, `{"a":{"c":2},"b":1}`},
		{`"a"`, `"A"`},
		{`[{}]`, `[{},{}]`},
		{``, ``},
		{`{`, `{`},
		{`1 2`, `1 2`},
		{`1e400`, `1e400`},
		{`{"a":1}x`, `{"a":1}x`},
		{`"a`, `"a`},
	} {
		if request.SameJSON([]byte(pair[0]), []byte(pair[1])) {
			t.Errorf("%s is %s", pair[0], pair[1])
		}
	}
}

// What SameJSON says is what a comparison of the decoded values says.
func TestSameJSONComparesValues(t *testing.T) {
	t.Parallel()
	var values func(depth int) *rapid.Generator[any]
	values = func(depth int) *rapid.Generator[any] {
		scalars := rapid.SampledFrom([]any{nil, true, false, 0.0, 1.0, -1.5, "", "a", "b", "0"})
		if depth == 0 {
			return scalars
		}
		below := values(depth - 1)
		return rapid.OneOf(scalars,
			rapid.Map(rapid.SliceOfN(below, 0, 3), func(list []any) any { return list }),
			rapid.Map(rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c"}), below, 0, 3), func(object map[string]any) any { return object }))
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := values(3).Draw(t, "a"), values(3).Draw(t, "b")
		first, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		second, err := json.MarshalIndent(b, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if same := request.SameJSON(first, second); same != reflect.DeepEqual(a, b) {
			t.Fatalf("%s and %s: %t", first, second, same)
		}
		if !request.SameJSON(first, first) {
			t.Fatalf("%s is not itself", first)
		}
	})
}

func TestSameJSONNeedsNoMemory(t *testing.T) { //nolint:paralleltest // it measures
	for name, text := range map[string]string{
		"lists":   "[" + strings.Repeat("[],", 1<<20) + "[]]",
		"objects": "[" + strings.Repeat(`{"a":0},`, 1<<19) + "{}]",
		"names":   "{" + strings.Repeat(`"a":0,`, 1<<19) + `"b":0}`,
	} {
		body := []byte(text)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if !request.SameJSON(body, body) {
			t.Errorf("%s: not the same", name)
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > uint64(len(body)) { // of all that it allocated, in use or not
			t.Errorf("%s: comparing %d bytes took %d", name, len(body), took)
		}
	}
	deep := []byte(strings.Repeat("[", 1<<20) + strings.Repeat("]", 1<<20))
	if request.SameJSON(deep, deep) {
		t.Error("it is nested too deep, and was compared")
	}
}
