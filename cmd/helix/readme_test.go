package main

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/helixagents/helix/session"
)

// block is the content of README.md's first code block in a language.
func block(t *testing.T, language string) string {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(readme), "\n```"+language+"\n")
	text, _, ends := strings.Cut(after, "\n```\n")
	if !ok || !ends {
		t.Fatalf("README.md has no block of %s", language)
	}
	return text + "\n"
}

var (
	curlURL  = regexp.MustCompile(`http://` + regexp.QuoteMeta(defaultAddr) + `([^' ]+)`)
	curlBody = regexp.MustCompile(`-d '([^']+)'`)
)

// What the README tells to try with curl works.
func TestReadmeRequests(t *testing.T) {
	t.Parallel()
	d := serveDemo(t, writeDemo(t, "1ms", ""))
	commands := strings.Split(strings.TrimSpace(strings.ReplaceAll(block(t, "sh"), "\\\n", "")), "\n")
	if len(commands) < 4 {
		t.Fatalf("the README shows only %q", commands)
	}
	for _, command := range commands {
		where := curlURL.FindStringSubmatch(command)
		if where == nil || !strings.HasPrefix(command, "curl ") {
			t.Fatalf("no request can be seen in %q", command)
		}
		method, content := http.MethodGet, ""
		if body := curlBody.FindStringSubmatch(command); body != nil {
			method, content = http.MethodPost, body[1]
		}
		request, err := http.NewRequestWithContext(t.Context(), method, d.url()+where[1], strings.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(command, "-H 'Content-Type: application/json'") {
			request.Header.Set("Content-Type", "application/json")
		}
		if status, _, text := do(t, request); status != http.StatusOK || !strings.Contains(text, "s-1") {
			t.Errorf("%s: %d\n%s", command, status, text)
		}
	}
	tellsStory(t, d.Client, "s-1")
}

// The README's helix.yaml can be served, and does what it says.
func TestReadmeFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, filepath.Join(dir, defaultConfig), block(t, "yaml"))
	d := serveDemo(t, dir)
	k := &talkOver{t, d.Client, "s-1"}
	_, status := k.say("shop", "Order ten pencils.")
	_, status = k.answer(status, "order", granting(true, ""))
	k.completes(status, "It is ordered.")
	if status.Status != session.Completed {
		t.Errorf("%+v", status)
	}
}
