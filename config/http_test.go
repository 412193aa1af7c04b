package config

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/session"
)

// web is a service that tells what it was asked.
type web struct {
	*httptest.Server
	mu      sync.Mutex
	seen    []string
	headers []http.Header
}

// serveWeb starts a service that answers with what answer does.
func serveWeb(t *testing.T, answer http.HandlerFunc) *web {
	t.Helper()
	s := &web{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.seen = append(s.seen, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", r.Method, r.URL.RequestURI(), r.Header.Get("Authorization"), body)))
		s.headers = append(s.headers, r.Header.Clone())
		s.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *web) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.seen...)
}

func answerJSON(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		_, _ = io.WriteString(w, text)
	}
}

// builtTool is the tool "t" of a file that has it with the given keys.
func builtTool(t *testing.T, keys string) helix.Tool {
	t.Helper()
	text := "version: 1\nagents:\n  a: {model: demo, tools: [t]}\ntools:\n  t:\n    type: http\n"
	if !strings.Contains(keys, "allowPrivate") {
		text += "    allowPrivate: true\n"
	}
	for line := range strings.Lines(keys) {
		text += "    " + line
	}
	file, err := parse("helix.yaml", []byte(text+"\n"), noEnv)
	if err != nil {
		t.Fatal(err)
	}
	agents, err := file.Build(BuildOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return agents[0].Tools[0]
}

func callTool(t *testing.T, tool helix.Tool, input string) (string, error) {
	t.Helper()
	return callToolIn(t.Context(), tool, input)
}

func callToolIn(ctx context.Context, tool helix.Tool, input string) (string, error) {
	call := &helix.Call{Scope: helix.Scope{SessionID: "s"}, ID: "c", Tool: tool.Name}
	raw, err := tool.Execute.Call(ctx, call, json.RawMessage(input))
	return string(raw), err
}

const threeInputs = `input: {type: object, required: [id], properties: {id: {type: string}, n: {type: integer}, tags: {type: array}}}`

func TestHTTPRequests(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ keys, input, want string }{
		"query": {"url: BASE/items", `{"id":"a b","n":3,"tags":["x","y"]}`, "GET /items?id=a+b&n=3&tags=x&tags=y"},
		"address and query": {
			"url: BASE/items/{id}?v=1&of={id}", `{"id":"a/b ?&","n":3}`, "GET /items/a%2Fb%20%3F&?v=1&of=a%2Fb+%3F%26&n=3",
		},
		"body": {"method: POST\nurl: BASE/items/{id}", `{"id":"x","n":3}`, `POST /items/x  {"n":3}`},
		"values as written": {
			"method: POST\nurl: BASE/items", `{"tags":["\u0041<\/>", 1.50, 1e2], "id":"\u00e9"}`, `POST /items  {"id":"\u00e9","tags":["\u0041<\/>",1.50,1e2]}`,
		},
		"empty body":        {"method: PUT\nurl: BASE/items/{id}", `{"id":"x"}`, `PUT /items/x  {}`},
		"deletion":          {"method: DELETE\nurl: BASE/items/{id}", `{"id":"x","n":1}`, `DELETE /items/x?n=1`},
		"deletion and body": {"method: DELETE\nurl: BASE/items/{id}\nbody: {why: done}", `{"id":"x"}`, `DELETE /items/x  {"why":"done"}`},
		"body of one's own": {
			"method: PATCH\nurl: BASE/x\nbody: {item: \"{id}\", count: \"{n}\", all: [\"{tags}\"], text: \"no. {n} of {id}\", on: true, none: ~}",
			`{"id":"<a>","n":3}`, `PATCH /x  {"all":[null],"count":3,"item":"<a>","none":null,"on":true,"text":"no. 3 of <a>"}`,
		},
		"missing in a body": {"method: POST\nurl: BASE/x\nbody: {item: \"{id}\", count: \"{n}\"}", `{"id":"a"}`, `POST /x  {"item":"a"}`},
		"headers":           {"url: BASE/x\nheaders: {Authorization: \"Bearer ${SECRET}\"}", `{"id":"a"}`, `GET /x?id=a Bearer s3cr3t-s3cr3t-s3cr3t`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveWeb(t, answerJSON(`{"ok":true}`))
			tool := builtTool(t, threeInputs+"\n"+strings.ReplaceAll(c.keys, "BASE", s.URL))
			got, err := callTool(t, tool, c.input)
			if err != nil || got != `{"ok":true}` {
				t.Fatalf("%s, %v", got, err)
			}
			if seen := s.asked(); len(seen) != 1 || seen[0] != c.want {
				t.Errorf("asked %q, want %q", seen, c.want)
			}
			if key := s.headers[0].Get(idempotencyKey); key != "s/c" {
				t.Errorf("idempotency key %q", key)
			}
		})
	}
}

func TestHTTPArgumentsDoNotLeaveTheirPlace(t *testing.T) {
	t.Parallel()
	s := serveWeb(t, answerJSON(`1`))
	tool := builtTool(t, threeInputs+"\nurl: "+s.URL+"/items/{id}/x")
	for _, input := range []string{`{"id":".."}`, `{"id":"."}`, `{"id":""}`} {
		if _, err := callTool(t, tool, input); !errors.Is(err, &session.Error{Code: session.CodeToolInput}) {
			t.Errorf("%s: %v", input, err)
		}
	}
	if seen := s.asked(); len(seen) > 0 {
		t.Errorf("asked %q", seen)
	}
}

func TestHTTPResults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ kind, body, want string }{
		"JSON":               {"application/json", " [1, 2]\n", "[1, 2]"},
		"a kind of JSON":     {"application/problem+json", `{"a":1}`, `{"a":1}`},
		"text":               {"text/plain", "a <b>\n", `"a <b>"`},
		"JSON that is none":  {"application/json", "{", `"{"`},
		"nothing":            {"application/json", "", "null"},
		"neither":            {"image/png", "\xff\xfe", "ERROR neither JSON nor text"},
		"more than allowed":  {"text/plain", strings.Repeat("x", 101), "ERROR more than 100 bytes"},
		"as much as allowed": {"text/plain", strings.Repeat("x", 100), `"` + strings.Repeat("x", 100) + `"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveWeb(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.kind)
				_, _ = io.WriteString(w, c.body)
			})
			got, err := callTool(t, builtTool(t, "maxResponse: 100\nurl: "+s.URL), `{}`)
			if want, fails := strings.CutPrefix(c.want, "ERROR "); fails {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s, %v", got, err)
				}
			} else if err != nil || got != want {
				t.Errorf("%s, %v; want %s", got, err, want)
			}
		})
	}
}

// A response of 1 GB is given up at the limit, before it is in memory. Not parallel, because it
// counts what the process allocates.
func TestHTTPHugeResult(t *testing.T) {
	var sent atomic.Int64
	piece := []byte(strings.Repeat("x", 1<<16))
	s := serveWeb(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		for sent.Load() < 1<<30 {
			n, err := w.Write(piece)
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	})
	tool := builtTool(t, "url: "+s.URL)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, err := callTool(t, tool, `{}`)
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "the response has more than") {
		t.Errorf("%.40s, %v", got, err)
	}
	if n := sent.Load(); n > 64<<20 {
		t.Errorf("%d bytes were sent", n)
	}
	if made := after.TotalAlloc - before.TotalAlloc; made > 16*defaultMaxResponse {
		t.Errorf("%d bytes were allocated", made)
	}
}

// A service that echoes what it was sent does not get it into an error.
func TestHTTPErrorsHideSecrets(t *testing.T) {
	t.Parallel()
	s := serveWeb(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, "no: %s %s %s", r.Header.Get("Authorization"), r.URL.RawQuery, strings.Repeat("x", 5000))
	})
	keys := "headers: {Authorization: \"Bearer ${SECRET}\", X-Key: another-secret}\nurl: "
	_, err := callTool(t, builtTool(t, keys+s.URL+"/?key=${SECRET}"), `{}`)
	failure, ok := errors.AsType[*session.Error](err)
	if !ok || failure.Code != session.CodeToolFailed || failure.StatusCode != http.StatusForbidden {
		t.Fatalf("%v", err)
	}
	if text := err.Error(); !strings.Contains(text, "the service answered 403 Forbidden: no: ***") || strings.Contains(text, "s3cr3t") || len(text) > 3000 {
		t.Errorf("%s", text)
	}
	s.Close()
	_, err = callTool(t, builtTool(t, keys+s.URL+"/?key=${SECRET}"), `{}`)
	if err == nil || strings.Contains(err.Error(), "s3cr3t") || !strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("%v", err)
	}
}

// A service that repeats what it was sent does not get it into a result, in whatever
// form; what is no secret, and data that only looks like one, stays.
func TestHTTPResultsHideSecrets(t *testing.T) {
	t.Parallel()
	const secret = `pa"ss/wörd+123`
	inBase64 := base64.StdEncoding.EncodeToString([]byte("user:" + secret + "!"))
	for name, c := range map[string]struct{ kind, body, want string }{
		"text":               {"text/plain", "you sent Bearer " + secret + ".", `"you sent ***."`},
		"JSON":               {"application/json", `{"a":["x","Bearer pa\"ss\/w\u00f6rd+123"],"n":1.50}`, `{"a":["x","***"],"n":1.50}`},
		"a key":              {"application/json", `{"pa\"ss/wörd+123":1}`, `{"***":1}`},
		"JSON in JSON":       {"application/json", `"{\"k\":\"pa\\\"ss\\/wörd+123\"}"`, `"{\"k\":\"***\"}"`},
		"a URL":              {"application/json", `"/?key=` + url.QueryEscape(secret) + `&k=` + url.PathEscape(secret) + `"`, `"/?key=***&k=***"`},
		"base64":             {"application/json", `"` + base64.StdEncoding.EncodeToString([]byte(secret)) + `"`, `"***"`},
		"inside of base64":   {"application/json", `"` + inBase64 + `"`, `"` + inBase64[:7] + `***` + inBase64[26:] + `"`},
		"a number":           {"application/json", `[123456789012,-1234567890123.5,12]`, `["***","***",12]`},
		"another header":     {"application/json", `"key is literal-key-1"`, `"key is ***"`},
		"what is no secret":  {"application/json", `{"type":"application/json","at":"https://127.0.0.1/v1","Bearer":"short"}`, `{"type":"application/json","at":"https://127.0.0.1/v1","Bearer":"short"}`},
		"JSON as it is":      {"application/json", "{ \"a\" : \"\\u0041\",\n\"b\":-1.0e+2 }", "{ \"a\" : \"\\u0041\",\n\"b\":-1.0e+2 }"},
		"JSON that is none":  {"application/json", `{"` + secret, `"{\"***"`},
		"secrets of another": {"application/json", `"other-tools-secret"`, `"other-tools-secret"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveWeb(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.kind)
				_, _ = io.WriteString(w, c.body)
			})
			text := "version: 1\nagents:\n  a: {model: demo, tools: [t]}\ntools:\n  t:\n    type: http\n    allowPrivate: true\n" +
				"    url: \"" + s.URL + "/v1?n=${NUMBER}&short=${SHORT}\"\n    headers: {Authorization: \"Bearer ${SECRET}\", X-Api-Key: literal-key-1, Accept: application/json}\n" +
				"  other: {type: http, url: \"https://x.example.com/?k=${OTHER}\"}\n"
			file, err := parse("helix.yaml", []byte(text), func(name string) (string, bool) {
				value, ok := map[string]string{"SECRET": secret, "NUMBER": "123456789012", "SHORT": "short", "OTHER": "other-tools-secret"}[name]
				return value, ok
			})
			if err != nil {
				t.Fatal(err)
			}
			agents, err := file.Build(BuildOptions{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := callTool(t, agents[0].Tools[0], `{}`)
			if err != nil || got != c.want || !json.Valid([]byte(got)) {
				t.Errorf("%s, %v; want %s", got, err, c.want)
			}
		})
	}
}

// What was approved for one server is not done at another.
func TestHTTPRedirectsOfEffects(t *testing.T) {
	t.Parallel()
	other := serveWeb(t, answerJSON(`"other"`))
	var s *web
	s = serveWeb(t, func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.URL.Query().Get("status"))
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, other.URL+"/x", status)
		case "/here":
			http.Redirect(w, r, s.URL+"/there", status)
		default:
			answerJSON(`"there"`)(w, r)
		}
	})
	for _, c := range []struct {
		method, path string
		status       int
		want         string // what follows, or an error
	}{
		{"POST", "/away", 307, "ERROR"},
		{"POST", "/away", 308, "ERROR"},
		{"POST", "/away", 302, "ERROR"},
		{"POST", "/away", 303, "ERROR"},
		{"DELETE", "/away", 307, "ERROR"},
		{"PUT", "/away", 301, "ERROR"},
		{"PATCH", "/away", 308, "ERROR"},
		{"POST", "/here", 307, `POST /there  {"n":1}`},
		{"PUT", "/here", 308, `PUT /there  {"n":1}`},
		{"POST", "/here", 302, "ERROR"},
		{"POST", "/here", 303, "ERROR"},
		{"GET", "/here", 302, "GET /there"},
		{"GET", "/away", 307, "GET /x"},
	} {
		before, beforeOther := len(s.asked()), len(other.asked())
		tool := builtTool(t, fmt.Sprintf("input: {type: object, properties: {n: {type: integer}}}\nmethod: %s\nurl: %s%s?status=%d", c.method, s.URL, c.path, c.status))
		got, err := callTool(t, tool, `{"n":1}`)
		seen := slices.Concat(s.asked()[before+1:], other.asked()[beforeOther:])
		if c.want == "ERROR" {
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("answered %d", c.status)) || !strings.Contains(err.Error(), "is not redirected there") || len(seen) > 0 {
				t.Errorf("%s %s %d: %s, %v, then %q", c.method, c.path, c.status, got, err, seen)
			}
		} else if err != nil || !slices.Equal(seen, []string{c.want}) {
			t.Errorf("%s %s %d: %v, then %q", c.method, c.path, c.status, err, seen)
		}
	}
	for address, want := range map[string]bool{
		"https://A.example:443/x": true, "https://a.example/y": true, "https://a.example:444": false, "http://a.example": false, "https://b.example": false,
	} {
		a, _ := url.Parse("https://a.example/")
		b, _ := url.Parse(address)
		if sameServer(a, b) != want {
			t.Errorf("%s is the same server: %t", address, !want)
		}
	}
}

// The model is not told what is where in the network; the log is.
func TestHTTPErrorsHideAddresses(t *testing.T) {
	t.Parallel()
	s := serveWeb(t, answerJSON(`1`))
	port := strings.TrimPrefix(s.URL, "http://127.0.0.1:")
	closed := serveWeb(t, answerJSON(`1`))
	closed.Close()
	for _, c := range []struct{ keys, want, logged string }{
		{"url: http://localhost:" + port, "an address of a private network or of this machine", "private network"},
		{"allowPrivate: true\nurl: " + closed.URL, "connection refused", "127.0.0.1:"},
	} {
		var log strings.Builder
		text := "version: 1\nagents:\n  a: {model: demo, tools: [t]}\ntools:\n  t:\n    type: http\n    retries: 0\n    " + strings.ReplaceAll(c.keys, "\n", "\n    ") + "\n"
		agents, err := mustParse(t, text).Build(BuildOptions{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
		if err != nil {
			t.Fatal(err)
		}
		_, err = callTool(t, agents[0].Tools[0], `{}`)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "127.0.0.1") || strings.Contains(err.Error(), "::1") {
			t.Errorf("%s: %v", c.keys, err)
		}
		if !strings.Contains(log.String(), "tool.request_failed") || !strings.Contains(log.String(), c.logged) {
			t.Errorf("%s: logged %s", c.keys, log.String())
		}
	}
	for _, found := range []bool{true, false} {
		got := reason(&net.OpError{Op: "dial", Err: &net.DNSError{Name: "x.example", Server: "10.0.0.2:53", IsNotFound: !found}})
		if strings.Contains(got, "10.0.0.2") || !strings.Contains(got, "name") {
			t.Errorf("a name that cannot be looked up: %s", got)
		}
	}
	for text, want := range map[string]string{
		"read tcp 10.1.2.3:4567->192.168.7.8:80: i/o timeout":   "read tcp an address->an address: i/o timeout",
		"dial tcp [fd00::1%eth0]:80: i/o timeout":               "dial tcp an address: i/o timeout",
		"http: server gave HTTP response to HTTPS client 1.2.3": "http: server gave HTTP response to HTTPS client 1.2.3",
	} {
		if got := reason(errors.New(text)); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}

// The machine's own addresses are not public, however they look.
func TestOwnAddresses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		listed := 0
		addresses := []net.Addr{&net.IPNet{IP: net.ParseIP("8.8.4.4"), Mask: net.CIDRMask(24, 32)}, &net.IPNet{IP: net.ParseIP("2606:4700::7"), Mask: net.CIDRMask(64, 128)}}
		g := &guard{list: func() ([]net.Addr, error) {
			listed++
			if addresses == nil {
				return nil, errors.New("no")
			}
			return addresses, nil
		}}
		for address, want := range map[string]bool{
			"8.8.4.4:80": false, "[::ffff:8.8.4.4]:80": false, "[2606:4700::7]:443": false, "[2606:4700::7%eth0]:443": false,
			"8.8.4.5:80": true, "[2606:4700::8]:443": true, "10.0.0.1:80": false, "nonsense": false,
		} {
			if err := g.control("tcp", address, nil); (err == nil) != want || err != nil && !permanent(err) {
				t.Errorf("%s: %v", address, err)
			}
		}
		if listed != 1 {
			t.Errorf("the addresses were listed %d times", listed)
		}
		time.Sleep(keepOwn)
		addresses = []net.Addr{&net.IPNet{IP: net.ParseIP("8.8.4.5"), Mask: net.CIDRMask(24, 32)}}
		if g.control("tcp", "8.8.4.5:80", nil) == nil || g.control("tcp", "8.8.4.4:80", nil) != nil || listed != 2 {
			t.Errorf("a change was not seen; listed %d times", listed)
		}
		time.Sleep(keepOwn)
		addresses = nil
		if g.control("tcp", "8.8.4.5:80", nil) == nil {
			t.Error("what was known was forgotten")
		}
	})
}

func TestHTTPRetries(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		keys   string
		status int
		want   int // requests
	}{
		"read-only":            {"", http.StatusServiceUnavailable, 3},
		"idempotent":           {"method: POST\nidempotent: true\n", http.StatusBadGateway, 3},
		"neither":              {"method: POST\n", http.StatusServiceUnavailable, 1},
		"an effect of a GET":   {"readOnly: false\n", http.StatusServiceUnavailable, 1},
		"as the file says":     {"retries: 1\n", http.StatusTooManyRequests, 2},
		"never":                {"retries: 0\n", http.StatusTooManyRequests, 1},
		"what will not change": {"", http.StatusNotFound, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveWeb(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(c.status) })
			tool := builtTool(t, c.keys+"url: "+s.URL)
			if _, err := callTool(t, tool, `{}`); err == nil || !strings.Contains(err.Error(), fmt.Sprint(c.status)) {
				t.Errorf("%v", err)
			}
			if seen := s.asked(); len(seen) != c.want {
				t.Errorf("asked %d times, want %d", len(seen), c.want)
			}
			for _, sent := range s.headers {
				if key := sent.Get(idempotencyKey); key != "s/c" {
					t.Errorf("an attempt had the key %q", key)
				}
			}
		})
	}
}

func TestHTTPRetrySucceeds(t *testing.T) {
	t.Parallel()
	var once sync.Once
	s := serveWeb(t, func(w http.ResponseWriter, r *http.Request) {
		failed := false
		once.Do(func() { failed = true; w.WriteHeader(http.StatusBadGateway) })
		if !failed {
			answerJSON(`"at last"`)(w, r)
		}
	})
	if got, err := callTool(t, builtTool(t, "url: "+s.URL), `{}`); err != nil || got != `"at last"` {
		t.Errorf("%s, %v", got, err)
	}
}

func TestPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for attempt, longest := range []time.Duration{firstPause, 2 * firstPause, 4 * firstPause} {
			begin := time.Now()
			if err := pause(t.Context(), attempt, 0); err != nil || time.Since(begin) > longest || time.Since(begin) < longest/2 {
				t.Errorf("attempt %d: %s, %v", attempt, time.Since(begin), err)
			}
		}
		begin := time.Now()
		if err := pause(t.Context(), 0, 3*time.Second); err != nil || time.Since(begin) != 3*time.Second {
			t.Errorf("asked for: %s, %v", time.Since(begin), err)
		}
		if err := pause(t.Context(), 0, time.Hour); err == nil {
			t.Error("it would wait an hour")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := pause(ctx, 5, 0); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	})
}

func TestHTTPTimeout(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := serveWeb(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)
	_, err := callTool(t, builtTool(t, "retries: 0\ntimeout: 20ms\nurl: "+s.URL), `{}`)
	if err == nil || !strings.Contains(err.Error(), "deadline exceeded") {
		t.Errorf("%v", err)
	}
}

// A request with an effect that was sent and not answered may have had it: the model is
// told so. One that never left, or that only reads, cannot have.
func TestHTTPOutcomeUnknown(t *testing.T) {
	t.Parallel()
	hang := serveWeb(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else the server does not notice that the client is gone
		<-r.Context().Done()
	})
	reset := serveWeb(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			err = conn.(*net.TCPConn).SetLinger(0)
		}
		if err != nil || conn.Close() != nil {
			t.Error("the connection cannot be reset", err)
		}
	})
	cut := serveWeb(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "{")
		panic(http.ErrAbortHandler)
	})
	gone := serveWeb(t, func(http.ResponseWriter, *http.Request) {})
	gone.Close()
	const unknown = "whether it took effect is unknown"
	for name, c := range map[string]struct {
		keys, url string
		code      session.Code
	}{
		"timed out":                 {"method: POST\ntimeout: 200ms\n", hang.URL, session.CodeToolOutcome},
		"reset":                     {"method: POST\n", reset.URL, session.CodeToolOutcome},
		"cut off":                   {"method: POST\n", cut.URL, session.CodeToolOutcome},
		"no connection":             {"method: POST\n", gone.URL, session.CodeToolFailed},
		"idempotent and timed out":  {"method: POST\nidempotent: true\nretries: 0\ntimeout: 200ms\n", hang.URL, session.CodeToolFailed},
		"only reading, and cut off": {"retries: 0\n", cut.URL, session.CodeToolFailed},
	} {
		before := len(hang.asked())
		_, err := callTool(t, builtTool(t, c.keys+"url: "+c.url), `{}`)
		for c.url == hang.URL && len(hang.asked()) == before { // its time was over before the request had left
			_, err = callTool(t, builtTool(t, c.keys+"url: "+c.url), `{}`)
		}
		failure := session.AsError(err)
		if err == nil || failure.Code != c.code || strings.Contains(failure.Message, unknown) != (c.code == session.CodeToolOutcome) {
			t.Errorf("%s: %+v", name, failure)
		}
	}
}

// Without allowPrivate nothing of this machine is reached, under whatever name, and
// it is not tried again.
func TestHTTPRefusesPrivateAddresses(t *testing.T) {
	t.Parallel()
	s := serveWeb(t, answerJSON(`"secret"`))
	_, port, _ := strings.Cut(strings.TrimPrefix(s.URL, "http://"), ":")
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0"} {
		attempts := 0
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GetConn: func(string) { attempts++ }})
		got, err := callToolIn(ctx, builtTool(t, "allowPrivate: false\nretries: 10\nurl: http://"+host+":"+port), `{}`)
		if err == nil || got != "" {
			t.Fatalf("%s: %s", host, got)
		}
		if !strings.Contains(err.Error(), "allowPrivate") || attempts != 1 {
			t.Errorf("%s: %v after %d attempts", host, err, attempts)
		}
	}
	if seen := s.asked(); len(seen) > 0 {
		t.Errorf("asked %q", seen)
	}
}

func TestPublicAddresses(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"8.8.8.8": true, "2606:4700::1111": true, "172.15.0.1": true, "172.32.0.1": true, "100.128.0.1": true,
		"127.0.0.1": false, "10.1.2.3": false, "172.16.0.1": false, "192.168.1.1": false, "169.254.169.254": false, "0.0.0.0": false,
		"100.64.0.1": false, "100.100.100.200": false, "192.0.0.192": false, "198.18.0.1": false, "224.0.0.1": false, "255.255.255.255": false,
		"::1": false, "::": false, "fe80::1": false, "fe80::1%eth0": false, "fd00:ec2::254": false, "ff02::1": false, "::ffff:10.0.0.1": false,
		"::ffff:8.8.8.8": true, "64:ff9b::a00:1": false, "2002:7f00:1::": false, "2001::1": false, "::127.0.0.1": false, "fec0::1": false,
		"168.63.129.16": false, "168.63.129.17": true, "::ffff:0:8.8.8.8": false, "::ffff:0:a00:1": false, "192.88.99.1": false, "5f00::1": false,
		"2606:4700::5efe:a00:1": false, "2606:4700::200:5efe:808:808": false, "2606:4700::1:5efe:a00:1": true, "2606:4700::5eff:a00:1": true,
	} {
		if got := public(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: public is %t", address, got)
		}
	}
}

// A redirection is followed within bounds, and takes no headers elsewhere.
func TestHTTPRedirects(t *testing.T) {
	t.Parallel()
	var s *web
	other := serveWeb(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/back" {
			http.Redirect(w, r, s.URL+"/there", http.StatusFound)
			return
		}
		answerJSON(`"other"`)(w, r)
	})
	s = serveWeb(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/here":
			http.Redirect(w, r, s.URL+"/there", http.StatusFound)
		case "/away":
			http.Redirect(w, r, other.URL+"/x", http.StatusFound)
		case "/away-and-back":
			http.Redirect(w, r, other.URL+"/back", http.StatusFound)
		case "/round":
			http.Redirect(w, r, s.URL+"/round", http.StatusFound)
		default:
			answerJSON(`"there"`)(w, r)
		}
	})
	headers := "retries: 2\nheaders: {Authorization: Bearer abcdefgh, X-Key: abcdefgh}\nurl: "
	if got, err := callTool(t, builtTool(t, headers+s.URL+"/here"), `{}`); err != nil || got != `"there"` {
		t.Errorf("%s, %v", got, err)
	}
	if seen := s.asked(); len(seen) != 2 || seen[1] != "GET /there Bearer abcdefgh" {
		t.Errorf("asked %q", seen)
	}
	if got := s.headers[1]; got.Get("X-Key") == "" || got.Get(idempotencyKey) == "" || got.Get("Referer") != "" {
		t.Errorf("the same server was sent %v", got)
	}
	if got, err := callTool(t, builtTool(t, headers+s.URL+"/away?key=s3cr3t"), `{}`); err != nil || got != `"other"` {
		t.Errorf("%s, %v", got, err)
	}
	if seen := other.asked(); len(seen) != 1 || seen[0] != "GET /x" {
		t.Errorf("the other server was sent %q", seen)
	}
	if _, err := callTool(t, builtTool(t, headers+s.URL+"/away-and-back?key=s3cr3t"), `{}`); err != nil {
		t.Error(err)
	}
	for _, sent := range append(other.headers, s.headers[len(s.headers)-1]) {
		for _, name := range []string{"Referer", idempotencyKey, "X-Key", "Authorization"} {
			if value := sent.Get(name); value != "" {
				t.Errorf("another server, or one that it led to, was sent %s: %s", name, value)
			}
		}
	}
	before := len(s.asked())
	if _, err := callTool(t, builtTool(t, headers+s.URL+"/round"), `{}`); err == nil || !strings.Contains(err.Error(), "more than 5 redirections") {
		t.Errorf("%v", err)
	}
	if made := len(s.asked()) - before; made != maxRedirects {
		t.Errorf("%d requests", made)
	}
	tool := &service{tool: &Tool{}}
	from, _ := http.NewRequest(http.MethodGet, "https://a.example", nil)
	to, _ := http.NewRequest(http.MethodGet, "http://a.example", nil)
	if err := tool.redirect(to, []*http.Request{from}); !permanent(err) {
		t.Errorf("from https to http: %v", err)
	}
}
