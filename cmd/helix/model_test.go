package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	goodKey = "AIza-good-0123456789"
	badKey  = "AIza-bad-0123456789"
)

// fakeGemini calls the calculator, and then repeats its result. Keys that it does
// not know it repeats, too, as some servers do.
func fakeGemini(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if key := r.Header.Get("X-Goog-Api-Key"); key != goodKey {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"error":{"code":400,"message":"API key not valid: %s","status":"INVALID_ARGUMENT"}}`, key)
			return
		}
		part := `{"functionCall":{"name":"calculate","args":{"expression":"6*7"}}}`
		if strings.Contains(string(body), `{"output":42}`) {
			part = `{"text":"It is 42."}`
		}
		fmt.Fprintf(w, `data: {"candidates":[{"content":{"role":"model","parts":[%s]},"finishReason":"STOP"}]}`+"\n\n", part)
	}))
	t.Cleanup(server.Close)
	return "GOOGLE_GEMINI_BASE_URL=" + server.URL
}

func TestTrueModel(t *testing.T) {
	t.Parallel()
	server, dir := fakeGemini(t), t.TempDir()
	p := startIn(t, dir, []string{server, "GEMINI_API_KEY=" + goodKey}, "chat", "--model", "gemini/gemini-2.5-pro", "--verbose")
	p.enter("what is six times seven?")
	const want = "→ calculate {\"expression\":\"6*7\"}\n← 42\nIt is 42.\n"
	if got := p.finish(); got != want {
		t.Errorf("it said\n%s, want\n%s", got, want)
	}
	if notes := p.err.String(); !strings.Contains(notes, "The model is gemini/gemini-2.5-pro.") {
		t.Errorf("notes:\n%s", notes)
	}
	noSecret(t, p, dir)

	// The variable names the model, and the flag one that is asked instead.
	env := []string{server, "GEMINI_API_KEY=" + badKey, "HELIX_MODEL=gemini/gemini-2.5-pro"}
	p = startIn(t, dir, env, "chat", "--verbose", "--session", "refused")
	p.enter("what is six times seven?")
	p.finishWith(exitFailure)
	if notes := p.err.String(); !strings.Contains(notes, "API key not valid: [redacted]") {
		t.Errorf("notes:\n%s", notes)
	}
	noSecret(t, p, dir)
	p = startIn(t, dir, env, "chat", "--model", "demo", "--pace", "0", "--session", "demo")
	p.enter("what is 6*7")
	if got := p.finish(); !strings.HasSuffix(got, "6*7 = 42\n") {
		t.Errorf("it said\n%s", got)
	}
}

// noSecret looks for keys in what the program wrote and stored.
func noSecret(t *testing.T, p *program, dir string) {
	t.Helper()
	texts := map[string]string{"the output": p.out.String(), "the errors": p.err.String()}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		texts[path] = string(raw)
		return err
	})
	if err != nil || len(texts) < 3 {
		t.Fatalf("nothing was stored: %v", err)
	}
	for where, text := range texts {
		for _, key := range []string{goodKey, badKey} {
			if strings.Contains(text, key) {
				t.Errorf("a key is in %s", where)
			}
		}
	}
}

func TestModelsThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	for reference, want := range map[string]struct {
		code int
		says string
	}{
		"openai/gpt-5":       {exitFailure, "helix: model openai/gpt-5: no API key: set the environment variable OPENAI_API_KEY\n"},
		"demo,openai/gpt-5":  {exitUsage, "is not of the form provider/model; the providers are openai, openai-chat, anthropic, gemini (see helix chat --help)\n"},
		"mistral/large":      {exitUsage, `there is no provider "mistral"`},
		"gemini/x@http://[/": {exitUsage, "not a web address"},
	} {
		dir := t.TempDir()
		p := startIn(t, dir, nil, "chat", "--model", reference)
		if out := p.finishWith(want.code); out != "" || !strings.Contains(p.err.String(), want.says) || strings.Count(p.err.String(), "\n") != 1 {
			t.Errorf("%s: it said %q and %q, want %q", reference, out, p.err, want.says)
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
			t.Errorf("%s: it left %v, %v", reference, files, err)
		}
	}
}
