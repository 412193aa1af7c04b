package models_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/anthropic"
	"github.com/helixagents/helix/llm/gemini"
	"github.com/helixagents/helix/llm/openai"
	"github.com/helixagents/helix/session"
)

// clientVariable makes the test binary a client: it asks the model that the variable names and prints the answer.
const clientVariable = "HELIX_TEST_MODEL_CLIENT"

func TestMain(m *testing.M) {
	if name := os.Getenv(clientVariable); name != "" {
		if err := runClient(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(testserver.Main(m).Run())
}

// provider is an adapter with everything that a gateway may need.
type provider struct {
	open func(baseURL string, headers map[string]string, client *http.Client) llm.Model
	// base is the path of the base URL, path that of a request below it.
	base, path string
	variable   string // of the base URL
}

var adapters = map[string]provider{
	"openai": {
		func(baseURL string, headers map[string]string, client *http.Client) llm.Model {
			return openai.New(openai.Config{Model: "m", APIKey: "sk-test-0123456789", BaseURL: baseURL, Headers: headers, HTTPClient: client, Organization: "o1"})
		}, "/gateway/v1", "/gateway/v1/responses", "OPENAI_BASE_URL",
	},
	"openai-chat": {
		func(baseURL string, headers map[string]string, client *http.Client) llm.Model {
			return openai.New(openai.Config{Model: "m", APIKey: "sk-test-0123456789", BaseURL: baseURL, Headers: headers, HTTPClient: client, API: openai.ChatCompletions})
		}, "/gateway/v1/", "/gateway/v1/chat/completions", "OPENAI_BASE_URL",
	},
	"anthropic": {
		func(baseURL string, headers map[string]string, client *http.Client) llm.Model {
			return anthropic.New(anthropic.Config{Model: "m", APIKey: "sk-test-0123456789", BaseURL: baseURL, Headers: headers, HTTPClient: client})
		}, "/gateway", "/gateway/v1/messages", "ANTHROPIC_BASE_URL",
	},
	"gemini": {
		func(baseURL string, headers map[string]string, client *http.Client) llm.Model {
			return gemini.New(gemini.Config{Model: "m", APIKey: "sk-test-0123456789", BaseURL: baseURL, Headers: headers, HTTPClient: client})
		}, "/gateway/", "/gateway/v1beta/models/m:streamGenerateContent?alt=sse", "GOOGLE_GEMINI_BASE_URL",
	},
}

func hello() *llm.Request {
	return &llm.Request{Messages: []session.Message{session.UserText("Hello?")}}
}

// runClient is the client process.
func runClient(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), eventually.Patience)
	defer cancel()
	answer, err := adapters[name].open("", nil, nil).Generate(ctx, hello(), nil)
	if err != nil {
		return err
	}
	fmt.Println(answer.Parts[0].Text)
	return nil
}

// process is a server in a process of its own that plays the providers and a proxy.
type process struct {
	HTTP, Proxy, Certificate string
	lines                    *bufio.Scanner
}

// seen is a request that the server answered.
type seen struct {
	Via, Method, Host, URI, Body string
	Header                       http.Header
}

func startProcess(t *testing.T) *process {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "server")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", binary, "github.com/helixagents/helix/llm/internal/wiretest/server")
	build.Env = append(build.Environ(), "CGO_ENABLED=0") // shares what the linter has compiled
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command(binary)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close() // ends it
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	s := &process{lines: bufio.NewScanner(stdout)}
	s.lines.Buffer(nil, 1<<20)
	s.next(t, s)
	file := filepath.Join(dir, "certificate.pem")
	if err := os.WriteFile(file, []byte(s.Certificate), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Certificate = file
	return s
}

// next reads the server's next line.
func (s *process) next(t *testing.T, into any) {
	t.Helper()
	if !s.lines.Scan() {
		t.Fatal("the server has ended", s.lines.Err())
	}
	if err := json.Unmarshal(s.lines.Bytes(), into); err != nil {
		t.Fatal(err)
	}
}

func (s *process) request(t *testing.T) seen {
	t.Helper()
	var r seen
	s.next(t, &r)
	return r
}

// TestAgainstAProcess asks a server in another process directly, through proxies, as a gateway with headers of its own, and
// while it is overloaded.
func TestAgainstAProcess(t *testing.T) {
	t.Parallel()
	s := startProcess(t)
	for name, p := range adapters {
		t.Run(name, func(t *testing.T) {
			t.Run("gateway", func(t *testing.T) { s.gateway(t, &p) })
			t.Run("overloaded", func(t *testing.T) { s.overloaded(t, &p) })
			t.Run("proxy of the client", func(t *testing.T) { s.proxied(t, &p) })
			t.Run("HTTP_PROXY", func(t *testing.T) { s.fromEnvironment(t, name, "http", "proxy") })
			t.Run("HTTPS_PROXY", func(t *testing.T) { s.fromEnvironment(t, name, "https", "tunnel") })
		})
	}
}

func (s *process) gateway(t *testing.T, p *provider) {
	m := p.open("http://"+s.HTTP+p.base, map[string]string{"X-Gateway-Tenant": "t1", "cf-aig-authorization": "Bearer x"}, nil)
	answer, err := m.Generate(t.Context(), hello(), nil)
	if err != nil || answer.Parts[0].Text != "Yes." {
		t.Fatal(answer, err)
	}
	got := s.request(t)
	if got.Via != "direct" || got.Method != http.MethodPost || got.URI != p.path || got.Host != s.HTTP {
		t.Errorf("it was asked %+v", got)
	}
	if got.Header.Get("X-Gateway-Tenant") != "t1" || got.Header.Get("Cf-Aig-Authorization") != "Bearer x" || !strings.Contains(got.Body, "Hello?") {
		t.Errorf("it was sent %v and %s", got.Header, got.Body)
	}
}

func (s *process) overloaded(t *testing.T, p *provider) {
	_, err := p.open("http://"+s.HTTP+p.base, map[string]string{"X-Overloaded": "1"}, nil).Generate(t.Context(), hello(), nil)
	s.request(t)
	e, ok := errors.AsType[*session.Error](err)
	if !ok || e.Code != session.CodeOverloaded || !e.Retryable || e.StatusCode != 529 || !strings.Contains(e.Message, "req_529") {
		t.Errorf("got %v", err)
	}
	if after, ok := errors.AsType[*llm.RetryAfterError](err); !ok || after.After != 3*time.Second {
		t.Errorf("got %v, want three seconds to wait", err)
	}
}

func (s *process) proxied(t *testing.T, p *provider) {
	transport := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: s.Proxy})}
	defer transport.CloseIdleConnections()
	answer, err := p.open("http://model.example"+p.base, nil, &http.Client{Transport: transport}).Generate(t.Context(), hello(), nil)
	if err != nil || answer.Parts[0].Text != "Yes." {
		t.Fatal(answer, err)
	}
	if got := s.request(t); got.Via != "proxy" || got.URI != "http://model.example"+p.path {
		t.Errorf("it was asked %+v", got)
	}
}

// fromEnvironment asks from a process of its own, as proxies are read from the environment once.
func (s *process) fromEnvironment(t *testing.T, name, scheme, via string) {
	p := adapters[name]
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), clientVariable+"="+name, p.variable+"="+scheme+"://model.example"+p.base,
		strings.ToUpper(scheme)+"_PROXY=http://"+s.Proxy, "NO_PROXY=", "no_proxy=", "SSL_CERT_FILE="+s.Certificate)
	out, err := cmd.CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "Yes." {
		t.Fatalf("%v: %s", err, out)
	}
	got := s.request(t)
	if got.Via != via || got.Host != "model.example" || !strings.HasSuffix(got.URI, p.path) {
		t.Errorf("it was asked %+v", got)
	}
}
