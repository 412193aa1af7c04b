package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/helixagents/helix/server/wire"
)

// attack sends a request straight to the handler. Whatever it is, the server lives
// and knows whose fault it is.
func attack(t testing.TB, s *service, method, target string, body []byte) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://example.com/", bytes.NewReader(body))
	if err != nil {
		return
	}
	r.URL, err = url.ParseRequestURI(target)
	if err != nil {
		return
	}
	r.Header.Set("Content-Type", wire.ContentJSON)
	r.Header.Set("Accept", wire.ContentJSON)
	r.Header.Set("Authorization", "Bearer "+s.token)
	w := leaver{httptest.NewRecorder(), cancel}
	s.server.ServeHTTP(w, r)
	if w.Code >= http.StatusInternalServerError {
		t.Fatalf("%s %q with %q is %d: %s", method, target, body, w.Code, w.Body)
	}
	if w.Code < http.StatusBadRequest {
		return
	}
	var refused wire.Error
	if err := json.Unmarshal(w.Body.Bytes(), &refused); err != nil || refused.Message == "" || refused.Code == "" {
		t.Fatalf("%s %q with %q is %d, and tells nothing: %s", method, target, body, w.Code, w.Body)
	}
	if w.Code == http.StatusBadRequest && refused.Field == "" && refused.Code == "validation_error" {
		t.Fatalf("%s %q with %q is refused, but no field is named: %s", method, target, body, w.Body)
	}
}

// leaver is a client that leaves once a stream has begun, because some stay open.
type leaver struct {
	*httptest.ResponseRecorder
	leave func()
}

func (l leaver) Flush() {
	l.ResponseRecorder.Flush()
	l.leave()
}

// bodies are the examples of all operations that take one.
func bodies(t testing.TB, s *service, f *files) (targets []string, all [][]byte) {
	t.Helper()
	for _, o := range operations(s) {
		if o.body == nil {
			continue
		}
		e := examples(t, o, f)
		raw, err := json.Marshal(e.body)
		if err != nil {
			t.Fatal(err)
		}
		targets, all = append(targets, e.on(o)), append(all, raw)
	}
	return targets, all
}

func FuzzBodies(f *testing.F) {
	s := staffed(f, inMemory(f), nil)
	sessions := s.fill("z/")
	targets, all := bodies(f, s, sessions)
	for i := range targets {
		f.Add(uint8(i), all[i])
		f.Add(uint8(i), all[i][:len(all[i])/2])
		f.Add(uint8(i), []byte(`[]`))
		f.Add(uint8(i), []byte(`{"sessionId":{}}`))
	}
	f.Fuzz(func(t *testing.T, at uint8, body []byte) {
		attack(t, s, http.MethodPost, targets[int(at)%len(targets)], body)
	})
}

// The same on every run, with bodies that are nearly right: those reach further.
func TestBadBodies(t *testing.T) {
	t.Parallel()
	s := staffed(t, inMemory(t), nil)
	f := s.fill("z/")
	targets, all := bodies(t, s, f)
	random := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		for i := range targets {
			attack(t, s, http.MethodPost, targets[i], mutate(random, all[i]))
		}
	}
}

// Paths and queries are input, too.
func TestBadTargets(t *testing.T) {
	t.Parallel()
	s := staffed(t, inMemory(t), nil)
	f := s.fill("z/")
	random := rand.New(rand.NewPCG(5, 6))
	var targets [][2]string
	for _, o := range operations(s) {
		e := examples(t, o, f)
		for range 30 {
			target := []byte(e.on(o))
			for range 1 + random.IntN(4) {
				at := 1 + random.IntN(len(target)-1)
				piece := pick(random, "%", "%2F", "%00", "/", "..", "?", "&", "=", "%ff", "-1", "é", "a", "9999999999", "limit=x", "total=2")
				target = slices.Concat(target[:at], []byte(piece), target[at+random.IntN(len(target)-at):])
			}
			targets = append(targets, [2]string{o.method, string(target)})
		}
	}
	for _, target := range targets {
		if strings.Contains(target[1], "running") && strings.HasPrefix(target[1], "/sse") {
			continue // it would be read until the run ends
		}
		attack(t, s, target[0], target[1], []byte(`{}`))
	}
}

func pick(random *rand.Rand, choices ...string) string { return choices[random.IntN(len(choices))] }

// odd are values that a field may be surprised by.
var odd = []string{
	`null`, `true`, `0`, `-1`, `1e400`, `""`, `"\u0000"`, `"\ud800"`, `"x"`, `[]`, `[null]`, `[[]]`, `{}`, `{"a":{}}`, `[{}]`,
	`[{"role":"tool","parts":[{"kind":"tool_result"}]}]`, `[{"role":"user","parts":[{"kind":"text"}],"v":99}]`, `[{"role":"user"}]`,
	`"../../etc"`, `"2036-99-99T00:00:00Z"`, `99999999999999999999`,
}

// mutate changes a body in one way or several.
func mutate(random *rand.Rand, body []byte) []byte {
	body = slices.Clone(body)
	for range 1 + random.IntN(3) {
		var fields map[string]json.RawMessage
		if random.IntN(4) > 0 && json.Unmarshal(body, &fields) == nil && len(fields) > 0 {
			names := make([]string, 0, len(fields))
			for name := range fields {
				names = append(names, name)
			}
			slices.Sort(names)
			name := names[random.IntN(len(names))]
			if random.IntN(3) == 0 {
				delete(fields, name)
			} else {
				fields[name] = json.RawMessage(odd[random.IntN(len(odd))])
			}
			if raw, err := json.Marshal(fields); err == nil {
				body = raw
				continue
			}
		}
		if len(body) < 2 {
			return body
		}
		switch at := random.IntN(len(body)); random.IntN(3) {
		case 0:
			body = body[:at]
		case 1:
			body[at] = byte(random.IntN(256))
		case 2:
			body = slices.Concat(body[:at], []byte(odd[random.IntN(len(odd))]), body[at:])
		}
	}
	return body
}
