package server_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/helixagents/helix/server"
	"github.com/helixagents/helix/store/memory"
)

// A page whose name points at this machine is of the server's origin for a browser,
// and would be served as anybody.
func TestHosts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		about string
		hosts []string
		open  bool // to everybody
		host  string
		want  int
	}{
		{"this machine", nil, true, "127.0.0.1:4170", http.StatusOK},
		{"this machine by name", nil, true, "localhost:4170", http.StatusOK},
		{"this machine, IPv6", nil, true, "[::1]:4170", http.StatusOK},
		{"without a port", nil, true, "[::1]", http.StatusOK},
		{"a rebound name", nil, true, "evil.example.com:4170", http.StatusMisdirectedRequest},
		{"no name", nil, true, "", http.StatusMisdirectedRequest},
		{"any name, told so", []string{server.AnyHost}, true, "agents.example.com", http.StatusOK},
		{"its own name", []string{"agents.example.com"}, true, "Agents.Example.com", http.StatusOK},
		{"another than its own", []string{"agents.example.com"}, false, "127.0.0.1", http.StatusMisdirectedRequest},
		{"any name, with tokens", nil, false, "agents.example.com", http.StatusOK},
	} {
		t.Run(c.about, func(t *testing.T) {
			t.Parallel()
			s := serve(t, memory.New(memory.Config{}), nil, func(cfg *server.Config) {
				cfg.Hosts = c.hosts
				if c.open {
					cfg.Authenticate, cfg.AllowUnauthenticated = nil, true
				}
			})
			r := httptest.NewRequest(http.MethodGet, "/healthz", nil)
			r.Host = c.host
			w := httptest.NewRecorder()
			s.server.ServeHTTP(w, r)
			if w.Code != c.want {
				t.Errorf("a request for %q is answered %d: %s", c.host, w.Code, w.Body)
			}
		})
	}
}
