package config

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
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
	call := &helix.Call{Scope: helix.Scope{SessionID: "s"}, ID: "c", Tool: tool.Name}
	raw, err := tool.Execute.Call(t.Context(), call, json.RawMessage(input))
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
		"body":              {"method: POST\nurl: BASE/items/{id}", `{"id":"x","n":3}`, `POST /items/x  {"n":3}`},
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

// Without allowPrivate nothing of this machine is reached, under whatever name, and
// it is not tried again.
func TestHTTPRefusesPrivateAddresses(t *testing.T) {
	t.Parallel()
	s := serveWeb(t, answerJSON(`"secret"`))
	_, port, _ := strings.Cut(strings.TrimPrefix(s.URL, "http://"), ":")
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0"} {
		begin := time.Now()
		got, err := callTool(t, builtTool(t, "allowPrivate: false\nretries: 10\nurl: http://"+host+":"+port), `{}`)
		if err == nil || got != "" {
			t.Fatalf("%s: %s", host, got)
		}
		if !strings.Contains(err.Error(), "allowPrivate") || time.Since(begin) > 20*time.Second {
			t.Errorf("%s: %v after %s", host, err, time.Since(begin))
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
