package bake

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/helixagents/helix/internal/gitserver"
)

// A host that only the marketplace names gets none of the user's credentials.
func TestStrangerGetsNoCredentials(t *testing.T) {
	m := setupMarket(t)
	strange := gitserver.Start(t)
	other := strange.Repository(t, "other")
	sha := other.Commit("main", pdf())
	m.publish(plugins(
		fields{"name": "pinned", "source": fields{"source": "url", "url": other.URL, "sha": sha}},
		fields{"name": "moving", "source": fields{"source": "url", "url": other.URL}},
	))
	home := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(home, name)
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	helper := write("helper", "#!/bin/sh\n[ \"$1\" = get ] && printf 'username=me\\npassword=secret\\n'\n")
	ask := write("ask", "#!/bin/sh\necho secret\n")
	t.Setenv("GIT_CONFIG_GLOBAL", write("config", "[credential]\n\thelper = "+helper+"\n[credential \""+strange.URL+"\"]\n\thelper = "+helper+
		"\n[core]\n\taskPass = "+ask+"\n[http]\n\textraHeader = \"X-Secret: secret\"\n"))
	t.Setenv("GIT_ASKPASS", ask)
	t.Setenv("SSH_ASKPASS", ask)
	var open atomic.Bool
	open.Store(true)
	strange.Gate(func(w http.ResponseWriter, req *http.Request) bool {
		if req.Header.Get("Authorization") != "" || req.Header.Get("X-Secret") != "" {
			t.Errorf("a stranger was sent %v", req.Header)
		}
		return open.Load() || basicAuth("me", "secret")(w, req)
	})
	m.server.Gate(basicAuth("me", "secret")) // the marketplace gets them
	for _, plugin := range []string{"pinned", "moving"} {
		m.use(plugin)
		if got := m.skills(); got != "docx pdf" { // also asks whether it has moved
			t.Error(got)
		}
	}
	open.Store(false)
	for _, plugin := range []string{"pinned", "moving"} {
		m.use(plugin)
		contains(t, m.refused(), "your credentials are not for a host that only the marketplace names: add the repository to the manifest with the type git")
	}
	strange.Gate(basicAuth("me", "secret"))
	m.manifest(map[string]Source{"a": {Type: TypeGit, URL: other.URL}}) // the user names it
	m.sync()
}

// A marketplace elsewhere does not lead into the user's network.
func TestMarketplaceMayNotReachInside(t *testing.T) {
	t.Parallel()
	locate := func(url, market string) (*location, error) {
		own, err := parseRemote(market, true)
		if err != nil {
			t.Fatal(err)
		}
		source, err := json.Marshal(fields{"source": "url", "url": url})
		if err != nil {
			t.Fatal(err)
		}
		return (&marketplace{}).locate(&plugin{Source: source}, own, true)
	}
	for _, url := range []string{
		"https://localhost/a", "https://LOCALHOST./a", "https://git.localhost:8443/a", "https://127.0.0.1/a", "https://127.1/a", "https://0x7f000001/a", "https://2130706433/a",
		"https://[::1]/a", "https://[::ffff:127.0.0.1]/a", "https://0.0.0.0/a", "https://10.1.2.3/a", "https://192.168.0.1:8443/a", "https://169.254.169.254/a", "https://[fe80::1]/a",
		"https://[fd00::1]/a", "ssh://git@localhost/a", "git@localhost:a/b", "git@10.0.0.1:a/b",
	} {
		if _, err := locate(url, "https://github.com/a/market"); err == nil || !strings.Contains(err.Error(), "private network, but the marketplace is not") {
			t.Errorf("%s: %v", url, err)
		}
		if _, err := locate(url, "https://git.localhost/a/market"); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	for _, test := range []struct {
		plugin, market string
		stranger       bool
	}{
		{"https://github.com/a/b", "https://github.com/c/d", false},
		{"https://GitHub.com:443/a/b", "https://github.com/c/d", false},
		{"git@github.com:a/b", "https://github.com/c/d", false},
		{"ssh://git@github.com:22/a/b", "git@github.com:c/d", false},
		{"https://github.com:8443/a/b", "https://github.com/c/d", true},
		{"https://github.com.example.com/a/b", "https://github.com/c/d", true},
		{"https://example.com/a@github.com:b", "git@github.com:c/d", true},
		{"git@example.com:a/b", "https://github.com/c/d", true},
		{"https://example.com/a", "/srv/market", true},
		{"https://8.8.8.8/a", "https://github.com/c/d", true},
		{"file:///srv/a", "/srv/market", false},
	} {
		place, err := locate(test.plugin, test.market)
		if err != nil || place.remote.stranger != test.stranger {
			t.Errorf("%s of %s: %+v, %v", test.plugin, test.market, place, err)
		}
	}
}
