// Package wiretest holds adapters of model providers to recordings of their wires: the requests that they send, byte for
// byte, and what they make of the answers. A change that alters a prompt's bytes costs users their provider's cache, so it
// has to show up in a diff.
package wiretest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/helixagents/helix/internal/testserver"
)

// Recording is a directory with recorded requests and outcomes.
type Recording struct {
	dir    string
	update *bool

	mu       sync.Mutex
	loaded   bool
	err      error
	requests map[string][]string // what a test may send, by its name
	outcomes map[string]outcome  // by name
	count    map[string]int      // of outcomes, by test
}

// New returns the recording in dir. When update is set, [Recording.Save] replaces what tests have recorded by name, and adds
// to the requests that a test's subtests share.
func New(dir string, update *bool) *Recording {
	return &Recording{
		dir: dir, update: update,
		requests: map[string][]string{}, outcomes: map[string]outcome{}, count: map[string]int{},
	}
}

const (
	requestsFile = "requests.txt"
	outcomesFile = "outcomes.json"
	// header begins the line with the name of a request. No body has it at the beginning of a line.
	header = "### "
)

// lock returns the recording to the caller, read from its files.
func (r *Recording) lock(t testing.TB) bool {
	t.Helper()
	r.mu.Lock()
	if !r.loaded {
		r.loaded, r.err = true, r.load()
	}
	if r.err != nil {
		t.Error(r.err)
	}
	return r.err == nil
}

func (r *Recording) load() error {
	raw, err := os.ReadFile(filepath.Join(r.dir, requestsFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for one := range strings.SplitSeq("\n"+string(raw), "\n"+header) {
		if name, content, ok := strings.Cut(one, "\n"); ok && name != "" {
			r.requests[name] = append(r.requests[name], content)
		}
	}
	raw, err = os.ReadFile(filepath.Join(r.dir, outcomesFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, &r.outcomes)
}

// Request fails the test unless the request is one of those that were recorded for its top-level test. Which of its
// subtests sent it does not matter, so that subtests that send the same share one recording.
func (r *Recording) Request(t testing.TB, request *http.Request, body []byte) {
	t.Helper()
	test, _, _ := strings.Cut(t.Name(), "/")
	r.check(t, test, request, body)
}

// forget drops what this very test has sent, which update replaces.
func (r *Recording) forget(t testing.TB) {
	t.Helper()
	defer r.mu.Unlock()
	if r.lock(t) && *r.update {
		delete(r.requests, t.Name())
	}
}

func (r *Recording) check(t testing.TB, test string, request *http.Request, body []byte) {
	t.Helper()
	content := render(request, body)
	defer r.mu.Unlock()
	switch {
	case !r.lock(t), slices.Contains(r.requests[test], content):
	case *r.update:
		r.requests[test] = append(r.requests[test], content)
	default:
		t.Errorf("this request of %s is not recorded (-update adds it):\n%.2000s\n%s", test, content, r.closest(test, content))
	}
}

// closest shows where a request leaves the recorded one of its test that it has most in common with.
func (r *Recording) closest(test, content string) string {
	best, at := "", -1
	for _, recorded := range r.requests[test] {
		n := 0
		for n < min(len(recorded), len(content)) && recorded[n] == content[n] {
			n++
		}
		if n > at {
			best, at = recorded, n
		}
	}
	if at < 0 {
		return "no request of this test is recorded"
	}
	return fmt.Sprintf("it differs from the closest at byte %d:\nwant …%.160q\ngot  …%.160q", at, best[max(0, at-40):], content[max(0, at-40):])
}

// Save writes what is new. TestMain calls it when all tests have run.
func (r *Recording) Save() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !*r.update || r.err != nil {
		return r.err
	}
	var requests []string
	for _, test := range slices.Sorted(maps.Keys(r.requests)) {
		for _, content := range slices.Sorted(slices.Values(r.requests[test])) {
			requests = append(requests, header+test+"\n"+content)
		}
	}
	outcomes, err := encodeOutcomes(r.outcomes)
	return errors.Join(err, os.MkdirAll(r.dir, 0o755),
		os.WriteFile(filepath.Join(r.dir, requestsFile), []byte(strings.Join(requests, "\n")), 0o644),
		os.WriteFile(filepath.Join(r.dir, outcomesFile), outcomes, 0o644))
}

// render returns a request as it is stored: the line, the headers in order, an empty line, and the body as it came.
func render(request *http.Request, body []byte) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s\n", request.Method, request.URL.RequestURI())
	if !address.MatchString(request.Host) {
		fmt.Fprintf(&b, "Host: %s\n", request.Host)
	}
	for _, name := range slices.Sorted(maps.Keys(request.Header)) {
		if ignored(name) {
			continue
		}
		for _, value := range request.Header[name] {
			if name != "User-Agent" || !ownAgent(value) {
				fmt.Fprintf(&b, "%s: %s\n", name, value)
			}
		}
	}
	b.WriteByte('\n')
	b.Write(body)
	return b.String()
}

// ignored reports whether a header is not part of what a provider is promised: net/http's own, and those in which SDKs
// count themselves.
func ignored(name string) bool {
	switch name {
	case "Accept-Encoding", "Content-Length", "X-Goog-Api-Client":
		return true
	}
	return strings.HasPrefix(name, "X-Stainless-")
}

// ownAgent reports whether a user agent is an adapter's own, which may change from version to version.
func ownAgent(value string) bool {
	for _, prefix := range []string{"OpenAI/Go", "Anthropic/Go", "google-genai-sdk/", "helix"} {
		if strings.HasPrefix(value, prefix) {
			return true
		}
	}
	return false
}

// Main runs a package's tests and then saves the recording.
func (r *Recording) Main(m *testing.M) Runner { return Runner{testserver.Main(m), r} }

// Runner runs tests.
type Runner struct {
	m testserver.Runner
	r *Recording
}

// Run runs the tests and returns the exit code.
func (r Runner) Run() int {
	code := r.m.Run()
	if err := r.r.Save(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
