package bake

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/helixagents/helix/internal/gitserver"
	"github.com/helixagents/helix/internal/testshare"
)

// market is a marketplace with its own repository.
type market struct {
	*project
	repo  *gitserver.Repository
	files gitserver.Files
}

func setupMarket(t *testing.T) *market {
	t.Helper()
	p := setup(t)
	return &market{p, p.server.Repository(t, "market"), gitserver.Files{}}
}

// publish commits a marketplace.json beside the files.
func (m *market) publish(content map[string]any) string {
	m.t.Helper()
	data, err := json.Marshal(content)
	if err != nil {
		m.t.Fatal(err)
	}
	files := gitserver.Files{marketplaceFile: gitserver.Text(string(data))}
	maps.Copy(files, m.files)
	return m.repo.Commit("main", files)
}

// use writes a manifest with one plugin.
func (m *market) use(plugin string, include ...string) {
	m.t.Helper()
	m.manifest(map[string]Source{"a": {Type: TypeMarketplace, URL: m.repo.URL, Plugin: plugin, Include: include}})
}

// skills returns the names of the skills that were written, and checks the rest.
func (m *market) skills() string {
	m.t.Helper()
	report := m.sync()
	if problems := m.check(); problems != "" {
		m.t.Error(problems)
	}
	if problems := m.checkRemote(); problems != "" {
		m.t.Error(problems)
	}
	return strings.Join(report.Entries[0].Skills, " ")
}

type fields = map[string]any

func plugins(all ...fields) fields { return fields{"name": "market", "plugins": all} }

// Plugins in the marketplace's own repository.
func TestMarketplacePaths(t *testing.T) {
	t.Parallel()
	testshare.SkipUnless(t, 1, 4)
	m := setupMarket(t)
	m.files = gitserver.Files{
		"plugins/deck/skills/slides/SKILL.md":    skillText("slides", "Slides"),
		"plugins/deck/skills/charts/SKILL.md":    skillText("charts", "Charts"),
		"plugins/deck/hooks/hooks.json":          gitserver.Text("{}"),
		"plugins/own/.claude-plugin/plugin.json": gitserver.Text(`{"name": "own", "skills": "./more/"}`),
		"plugins/own/more/notes/SKILL.md":        skillText("notes", "Notes"),
		"plugins/own/extra/todo/SKILL.md":        skillText("todo", "Todo"),
		"plugins/own/skills/unlisted/SKILL.md":   skillText("unlisted", "Unlisted"),
		"plugins/alone/SKILL.md":                 skillText("alone", "Alone"),
		"plugins/alone/a.md":                     gitserver.Text("a"),
		"plugins/empty/README.md":                gitserver.Text("nothing"),
		"skills/pdf/SKILL.md":                    skillText("pdf", "PDF"),
		"skills/docx/SKILL.md":                   skillText("docx", "DOCX"),
		"skills/xlsx/SKILL.md":                   skillText("xlsx", "XLSX"),
	}
	market := plugins(
		fields{"name": "deck", "source": "./plugins/deck"},
		fields{"name": "rooted", "source": "deck"},
		fields{"name": "own", "source": "./plugins/own"},
		fields{"name": "both", "source": "./plugins/own", "skills": []string{"./extra/todo"}},
		fields{"name": "loose", "source": "./plugins/own", "strict": false},
		fields{"name": "alone", "source": "./plugins/alone"},
		fields{"name": "alone-listed", "source": "./plugins/alone", "skills": []string{"./"}},
		fields{"name": "empty", "source": "./plugins/empty"},
		fields{"name": "office", "source": "./", "strict": false, "skills": []string{"./skills/pdf", "./skills/docx", "./skills/pdf/"}},
		fields{"name": "gone", "source": "./plugins/none"},
		fields{"name": "up", "source": "./../secret"},
		fields{"name": "up-skills", "source": "./plugins/deck", "skills": []string{"../own/more"}},
		fields{"name": "absolute", "source": "/etc"},
		fields{"name": "npm", "source": fields{"source": "npm", "package": "x"}},
		fields{"name": "number", "source": 1},
		fields{"name": "none"},
	)
	market["metadata"] = fields{"pluginRoot": "./plugins"}
	market["renames"] = fields{"old": "older", "older": "deck", "removed": nil, "loop": "loop2", "loop2": "loop"}
	commit := m.publish(market)
	for plugin, want := range map[string]string{
		"deck": "charts slides", "rooted": "charts slides", "own": "notes", "both": "notes todo", "alone": "alone", "alone-listed": "alone",
		"office": "docx pdf", "old": "charts slides",
	} {
		m.use(plugin)
		if got := m.skills(); got != want {
			t.Errorf("%s: got %s, want %s", plugin, got, want)
		}
		if r := m.lock().Skills["a"].Resolved; r.Commit != commit || r.URL != "" || r.Marketplace != "" {
			t.Errorf("%+v", r)
		}
	}
	m.use("deck", "charts")
	if got := m.skills(); got != "charts" {
		t.Error(got)
	}
	for plugin, want := range map[string]string{
		"loose":     "plugin loose: it is not strict, but plugins/own/.claude-plugin/plugin.json of " + m.repo.URL,
		"empty":     "has neither a directory skills nor a SKILL.md",
		"gone":      "plugins/none of " + m.repo.URL + " at " + commit[:12] + " is not a directory",
		"up":        `its path "./../secret" does not lie within the plugin`,
		"up-skills": `its path "../own/more" does not lie within the plugin`,
		"absolute":  "does not lie within the plugin",
		"npm":       `its source is of the type "npm"; skills come from a path, url, git-subdir or github`,
		"number":    "its source is neither a path nor an object",
		"none":      "it has no source",
		"removed":   "plugin removed was removed from .claude-plugin/marketplace.json",
		"loop":      "renames plugin loop more than 8 times",
		"missing":   "has no plugin missing; it has absolute, alone, ",
	} {
		m.use(plugin)
		contains(t, m.refused(), "a: ", want)
	}
}

// Plugins in other repositories, by commit, by ref, and in a directory.
func TestMarketplaceOtherRepository(t *testing.T) {
	t.Parallel()
	testshare.SkipUnless(t, 3, 4)
	m := setupMarket(t)
	other := m.server.Repository(t, "other")
	first := other.Commit("main", gitserver.Files{"skills/pdf/SKILL.md": skillText("pdf", "First"), "in/side/skills/docx/SKILL.md": skillText("docx", "Docx")})
	second := other.Commit("main", gitserver.Files{"skills/pdf/SKILL.md": skillText("pdf", "Second")})
	market := plugins(
		fields{"name": "pinned", "source": fields{"source": "url", "url": other.URL, "sha": first}},
		fields{"name": "inside", "source": fields{"source": "git-subdir", "url": other.URL, "path": "in/side", "ref": "main", "sha": first}},
		fields{"name": "inside-url", "source": fields{"source": "url", "url": other.URL, "path": "./in/side/", "sha": first}},
		fields{"name": "moving", "source": fields{"source": "url", "url": other.URL, "ref": "main"}},
		fields{"name": "hostile-ref", "source": fields{"source": "url", "url": other.URL, "ref": "--upload-pack=touch /tmp/x"}},
		fields{"name": "hostile-sha", "source": fields{"source": "url", "url": other.URL, "sha": "--help"}},
		fields{"name": "hostile-url", "source": fields{"source": "url", "url": "--upload-pack=touch /tmp/x"}},
		fields{"name": "hostile-path", "source": fields{"source": "git-subdir", "url": other.URL, "path": "../x", "sha": first}},
		fields{"name": "hostile-repo", "source": fields{"source": "github", "repo": "a/b/../c"}},
		fields{"name": "file", "source": fields{"source": "url", "url": "file://" + other.Dir}},
	)
	commit := m.publish(market)
	for plugin, want := range map[string]struct{ skills, commit string }{
		"pinned": {"pdf", first}, "inside": {"docx", first}, "inside-url": {"docx", first}, "moving": {"pdf", second},
	} {
		m.use(plugin)
		if got := m.skills(); got != want.skills {
			t.Errorf("%s: %s", plugin, got)
		}
		if r := m.lock().Skills["a"].Resolved; r.Commit != want.commit || r.URL != other.URL || r.Marketplace != commit {
			t.Errorf("%s: %+v", plugin, r)
		}
	}
	for plugin, want := range map[string]string{
		"hostile-ref": "is not the name of a tag or a branch", "hostile-sha": "is not the id of a commit", "hostile-url": "has characters that are not allowed in a URL",
		"hostile-path": "does not lie within the plugin", "hostile-repo": "is not a repository of GitHub", "file": "--allow-local permits that",
	} {
		m.use(plugin)
		contains(t, m.refused(), "plugin "+plugin+" of "+m.repo.URL+": ", want)
	}

	// The marketplace moves on; what the plugin is has not changed.
	m.use("pinned")
	m.sync()
	market["description"] = "another one"
	m.publish(market)
	if problems := m.checkRemote(); problems != "" {
		t.Error(problems)
	}
	market["plugins"].([]fields)[0]["source"] = fields{"source": "url", "url": other.URL, "sha": second}
	m.publish(market)
	contains(t, m.checkRemote(), "helix.skills.lock: a: plugin pinned of "+m.repo.URL+" has moved from "+first[:12]+" to "+second[:12])
	market["plugins"].([]fields)[0]["source"] = fields{"source": "url", "url": m.repo.URL, "sha": second}
	m.publish(market)
	contains(t, m.checkRemote(), "has moved to "+m.repo.URL)
	market["plugins"].([]fields)[0]["source"] = "./"
	m.publish(market)
	contains(t, m.checkRemote(), "has moved from "+other.URL+" to the marketplace itself")
	m.use("moving")
	m.sync()
	other.Commit("main", gitserver.Files{"skills/pdf/SKILL.md": skillText("pdf", "Third")})
	contains(t, m.checkRemote(), "main of "+other.URL+" has moved from "+second[:12])
}

// A plugin in the marketplace's own repository has moved only if it has changed.
func TestMarketplaceMoved(t *testing.T) {
	t.Parallel()
	m := setupMarket(t)
	m.files["p/skills/pdf/SKILL.md"] = skillText("pdf", "PDF")
	m.publish(plugins(fields{"name": "p", "source": "./p"}))
	m.use("p")
	m.sync()
	m.files["README.md"] = gitserver.Text("news")
	m.publish(plugins(fields{"name": "p", "source": "./p"}))
	if problems := m.checkRemote(); problems != "" {
		t.Error(problems)
	}
	m.files["p/skills/pdf/new.md"] = gitserver.Text("new")
	m.publish(plugins(fields{"name": "p", "source": "./p"}))
	contains(t, m.checkRemote(), "plugin p of "+m.repo.URL+" has changed since")
}

// What the marketplace says of a plugin can change without another commit of the plugin.
func TestMarketplaceSaysOtherwise(t *testing.T) {
	t.Parallel()
	testshare.SkipUnless(t, 0, 4)
	m := setupMarket(t)
	other := m.server.Repository(t, "other")
	plugin := gitserver.Files{
		"a/skills/pdf/SKILL.md": skillText("pdf", "One"), "b/skills/pdf/SKILL.md": skillText("pdf", "Another"),
		"a/more/docx/SKILL.md": skillText("docx", "Docx"), "a/more/xlsx/SKILL.md": skillText("xlsx", "Xlsx"),
	}
	sha := other.Commit("main", plugin)
	m.files = plugin
	elsewhere := func(dir string) fields {
		return fields{"source": "git-subdir", "url": other.URL, "path": dir, "sha": sha}
	}
	for _, test := range []struct {
		name      string
		was, now  fields
		want      string
		wantAfter string // the skills after another sync
	}{
		{"another directory", fields{"source": elsewhere("a")}, fields{"source": elsewhere("b")}, " has moved from the directory a to b", "pdf"},
		{"a list", fields{"source": elsewhere("a")}, fields{"source": elsewhere("a"), "skills": []string{"./more"}}, " lists other skills now", "docx xlsx"},
		{"another list", fields{"source": elsewhere("a"), "skills": []string{"./more/docx"}}, fields{"source": elsewhere("a"), "skills": []string{"./more/xlsx"}}, " lists other skills now", "xlsx"},
		{"another order", fields{"source": elsewhere("a"), "skills": []string{"./more/docx", "more/xlsx/"}}, fields{"source": elsewhere("a"), "skills": []string{"./more/xlsx", "./more/docx", "./more/docx"}}, "", "docx xlsx"},
		{"strictness", fields{"source": elsewhere("a")}, fields{"source": elsewhere("a"), "strict": false}, " lists other skills now", "pdf"},
		{"another directory here", fields{"source": "./a"}, fields{"source": "./b"}, " has moved from the directory a to b", "pdf"},
		{"another list here", fields{"source": "./a"}, fields{"source": "./a", "skills": "./more"}, " lists other skills now", "docx xlsx"},
	} {
		test.was["name"], test.now["name"] = "p", "p"
		m.publish(plugins(test.was))
		m.use("p")
		m.skills()
		m.publish(plugins(test.now))
		got, want := m.checkRemote(), ""
		if test.want != "" {
			want = "helix.skills.lock: a: plugin p of " + m.repo.URL + test.want
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", test.name, got, want)
		}
		if got := m.skills(); got != test.wantAfter {
			t.Errorf("%s: got %s, want %s", test.name, got, test.wantAfter)
		}
	}
}

func TestMarketplaceFiles(t *testing.T) {
	t.Parallel()
	m := setupMarket(t)
	m.use("p")
	m.repo.Commit("main", gitserver.Files{"README.md": gitserver.Text("x")})
	contains(t, m.refused(), ".claude-plugin/marketplace.json of ", "does not exist; a repository without a marketplace is a source of the type git")
	m.repo.Commit("main", gitserver.Files{marketplaceFile: gitserver.Text("{")})
	contains(t, m.refused(), "cannot be read: unexpected end of JSON input")
	m.repo.Commit("main", gitserver.Files{marketplaceFile: gitserver.Link("/etc/passwd")})
	contains(t, m.refused(), "cannot be read")
	m.repo.Commit("main", gitserver.Files{marketplaceFile + "/x": gitserver.Text("{")})
	contains(t, m.refused(), "is not a file of at most")
	m.repo.Commit("main", gitserver.Files{marketplaceFile: gitserver.Text(`{"plugins": [{"name": "p", "source": "./", "skills": [1]}]}`)})
	contains(t, m.refused(), "skills is neither a path nor a list of paths")
}

// A marketplace elsewhere must not lead to repositories on this machine.
func TestMarketplaceMayNotReachHere(t *testing.T) {
	t.Parallel()
	here := &plugin{Source: json.RawMessage(`{"source": "url", "url": "http://127.0.0.1:1/x"}`)}
	if _, err := (&marketplace{}).locate(here, remote{url: "https://example.com/m", scheme: "https"}, true); err == nil || !strings.Contains(err.Error(), "is on this machine, but the marketplace is not") {
		t.Errorf("%v", err)
	}
	file := &plugin{Source: json.RawMessage(`{"source": "url", "url": "file:///x"}`)}
	if _, err := (&marketplace{}).locate(file, remote{url: "git@example.com:m", scheme: "ssh"}, true); err == nil {
		t.Error("a file is reached")
	}
	relative := &plugin{Source: json.RawMessage(`{"source": "url", "url": "../x"}`)}
	if _, err := (&marketplace{}).locate(relative, remote{url: "/srv/m", scheme: "file"}, true); err == nil {
		t.Error("a relative path is reached")
	}
	for source, want := range map[string]string{
		`{"source": "github", "repo": "anthropics/skills"}`:                          "https://github.com/anthropics/skills.git",
		`{"source": "git-subdir", "url": "anthropics/skills", "path": "skills"}`:     "https://github.com/anthropics/skills.git",
		`{"source": "url", "url": "git@example.com:a/b.git", "ref": "refs/tags/v1"}`: "git@example.com:a/b.git",
	} {
		place, err := (&marketplace{}).locate(&plugin{Source: json.RawMessage(source)}, remote{url: "https://example.com/m", scheme: "https"}, false)
		if err != nil || place.remote.url != want {
			t.Errorf("%s: %+v, %v", source, place, err)
		}
	}
}

// A local marketplace may have plugins on the same machine.
func TestMarketplaceLocal(t *testing.T) {
	t.Parallel()
	m := setupMarket(t)
	other := m.server.Repository(t, "other")
	other.Commit("main", pdf())
	m.publish(plugins(fields{"name": "p", "source": fields{"source": "url", "url": "file://" + other.Dir}}))
	m.cfg.AllowLocal = true
	relative, err := filepath.Rel(m.dir, m.repo.Dir)
	if err != nil {
		t.Fatal(err)
	}
	m.manifest(map[string]Source{"a": {Type: TypeMarketplace, URL: relative, Plugin: "p"}})
	if got := m.skills(); got != "docx pdf" {
		t.Error(got)
	}
}
