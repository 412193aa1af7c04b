package page_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/helixagents/helix/server/page"
)

// api says which request it was asked.
var api = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, "api "+r.Method+" "+r.URL.Path)
})

// ask sends a request to a handler.
func ask(t *testing.T, h http.Handler, method, target string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, http.NoBody)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestPage(t *testing.T) {
	t.Parallel()
	root := page.New(page.Config{API: api})
	below := http.StripPrefix("/support", root)
	for _, c := range []struct {
		handler      http.Handler
		method, path string
		status       int
		media, text  string
	}{
		{root, "GET", "/", http.StatusOK, "text/html; charset=utf-8", `src="page/app.js"`},
		{root, "HEAD", "/", http.StatusOK, "text/html; charset=utf-8", ""},
		{root, "GET", "/page/app.js", http.StatusOK, "text/javascript; charset=utf-8", "'../helix.js'"},
		{root, "GET", "/page/style.css", http.StatusOK, "text/css; charset=utf-8", "color-scheme"},
		{root, "GET", "/page/", http.StatusNotFound, "text/plain; charset=utf-8", "not found"},
		{root, "GET", "/page/index.html", http.StatusNotFound, "text/plain; charset=utf-8", "not found"},
		{root, "GET", "/page/../page.go", http.StatusNotFound, "text/plain; charset=utf-8", "not found"},
		{root, "POST", "/", http.StatusOK, "", "api POST /"},
		{root, "POST", "/page/app.js", http.StatusOK, "", "api POST /page/app.js"},
		{root, "GET", "/helix.js", http.StatusOK, "", "api GET /helix.js"},
		{root, "GET", "/page", http.StatusOK, "", "api GET /page"},
		{below, "GET", "/support/", http.StatusOK, "text/html; charset=utf-8", `src="page/app.js"`},
		{below, "GET", "/support/page/app.js", http.StatusOK, "text/javascript; charset=utf-8", "'../helix.js'"},
		{below, "GET", "/support/agents", http.StatusOK, "", "api GET /agents"},
	} {
		answer := ask(t, c.handler, c.method, c.path)
		body := answer.Body.String()
		if answer.Code != c.status || !strings.Contains(body, c.text) || (c.media != "" && answer.Header().Get("Content-Type") != c.media) {
			t.Errorf("%s %s: %d %s\n%.200s", c.method, c.path, answer.Code, answer.Header(), body)
		}
		policy := answer.Header().Get("Content-Security-Policy")
		if guarded := strings.Contains(policy, "default-src 'none'") && strings.Contains(policy, "script-src 'self';"); guarded != (c.media != "") {
			t.Errorf("%s %s: the policy is %q", c.method, c.path, policy)
		}
	}
}

func TestPageIsAskedForOnce(t *testing.T) {
	t.Parallel()
	h := page.New(page.Config{API: api})
	first := ask(t, h, "GET", "/page/app.js")
	again := ask(t, h, "GET", "/page/app.js", "If-None-Match", first.Header().Get("Etag"))
	if first.Header().Get("Cache-Control") != "no-cache" || again.Code != http.StatusNotModified {
		t.Errorf("%v, then %d", first.Header(), again.Code)
	}
	other := ask(t, page.New(page.Config{API: api, Title: "Shop"}), "GET", "/", "If-None-Match", ask(t, h, "GET", "/").Header().Get("Etag"))
	if other.Code != http.StatusOK {
		t.Errorf("with another title: %d", other.Code)
	}
}

// TestPageWithoutItsSlash checks that relative addresses are right at whatever address the
// page was opened.
func TestPageWithoutItsSlash(t *testing.T) {
	t.Parallel()
	h := http.StripPrefix("/a/support", page.New(page.Config{API: api}))
	for target, want := range map[string]string{"/a/support": "./support/", "/a/support?x=1": "./support/?x=1"} {
		answer := ask(t, h, "GET", target)
		if to := answer.Header().Get("Location"); answer.Code != http.StatusTemporaryRedirect || to != want {
			t.Errorf("%s: %d %q, want %q", target, answer.Code, to, want)
		}
	}
}

func TestPageConfig(t *testing.T) {
	t.Parallel()
	body := ask(t, page.New(page.Config{API: api, Title: "<b>&", SignIn: `/in?"a`, SignOut: "/out"}), "GET", "/").Body.String()
	for _, want := range []string{
		"<title>&lt;b&gt;&amp;</title>", "<h1>&lt;b&gt;&amp;</h1>", `<html lang="en" data-sign-in="/in?&#34;a" data-sign-out="/out">`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("it does not contain %s:\n%.600s", want, body)
		}
	}
	plain := ask(t, page.New(page.Config{API: api}), "GET", "/").Body.String()
	if !strings.Contains(plain, `<html lang="en">`) || !strings.Contains(plain, "<title>Helix</title>") || strings.Contains(plain, "{{") {
		t.Errorf("without settings:\n%.600s", plain)
	}
	defer func() {
		if recover() == nil {
			t.Error("a page without an API is accepted")
		}
	}()
	page.New(page.Config{})
}
