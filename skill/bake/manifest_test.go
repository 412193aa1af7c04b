package bake

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestManifest(t *testing.T) {
	t.Parallel()
	m, err := ParseManifest("m.json", []byte(`{
		"skills": {
			"pdf": {"type": "git", "url": "https://example.com/skills.git", "version": "1.2.0", "skillsDir": "a/b", "include": ["pdf", "docx"]},
			"Deck.2": {"type": "claude-marketplace", "url": "git@example.com:team/market.git", "plugin": "deck", "ref": "main",
				"sha": "0123456789012345678901234567890123456789"}
		}
	}`), false)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Entries) != 2 || m.Entries[0].Name != "Deck.2" || m.Entries[1].Source.SkillsDir != "a/b" ||
		strings.Join(m.Entries[1].Source.Include, " ") != "docx pdf" || m.Entries[0].Source.Plugin != "deck" {
		t.Errorf("%+v", m)
	}
}

// Everything that is wrong with a manifest is named with its line and column.
func TestManifestProblems(t *testing.T) {
	t.Parallel()
	source := func(fields string) string {
		return "{\"skills\": {\n\t\"x\": {\"type\": \"git\", \"url\": \"https://example.com/a\"" + fields + "}\n}}"
	}
	for _, test := range []struct{ name, manifest, want string }{
		{"empty", "", "m.json:1:1: is not valid JSON: it ends too early"},
		{"cut off", `{"skills": {`, "m.json:1:13: is not valid JSON"},
		{"not JSON", "{\n  skills: {}\n}", "m.json:2:3: is not valid JSON"},
		{"comma", "{\"skills\": {},\n}", "m.json:2:1: is not valid JSON"},
		{"two values", "{\"skills\": {}}\n{}", "m.json:2:1: has more than one JSON value"},
		{"not text", "\xff", "m.json:1:1: is not UTF-8 text"},
		{"array", "[]", "m.json:1:1: must be an object"},
		{"deep", strings.Repeat("[", 100), "m.json:1:9: is nested too deeply"},
		{"no skills", "{}", "m.json:1:1: skills: is missing"},
		{"other field", `{"skills": {}, "skill": {}}`, `m.json:1:16: unknown field "skill"; the manifest has the field "skills" only`},
		{"twice", "{\"skills\": {\n\"a\": {}, \"a\": {}}}", `m.json:2:10: "a" is given twice`},
		{"skills of another kind", `{"skills": []}`, "m.json:1:12: skills: must be an object"},
		{"name", "{\"skills\": {\n\"a/b\": {\"type\": \"git\"}}}", `m.json:2:1: skills: "a/b" is not a name for a source`},
		{"hidden name", `{"skills": {".a": {}}}`, `".a" is not a name for a source`},
		{"long name", `{"skills": {"` + strings.Repeat("a", 65) + `": {}}}`, "is not a name for a source"},
		{"no object", "{\"skills\": {\n\"a\": \"https://example.com\"}}", `m.json:2:6: skills.a: must be an object, such as`},
		{"no type", "{\"skills\": {\n\"a\": {}}}", `m.json:2:6: skills.a.type: is missing; it is "git" or "claude-marketplace"`},
		{"type", "{\"skills\": {\n\"a\": {\n\"type\": \"npm\"}}}", `m.json:3:9: skills.a.type: unknown type "npm"; it is "git" or "claude-marketplace"`},
		{"type of another kind", `{"skills": {"a": {"type": 1}}}`, "m.json:1:27: skills.a.type: must be a string"},
		{"no url", `{"skills": {"a": {"type": "git"}}}`, "m.json:1:18: skills.a.url: is missing"},
		{"no plugin", `{"skills": {"a": {"type": "claude-marketplace", "url": "https://example.com/a"}}}`, "skills.a.plugin: is missing"},
		{"field", source(",\n\"branch\": \"main\""), `m.json:3:1: skills.x: unknown field "branch"; a source of the type git has type, url, ref, sha, version, skillsDir, include`},
		{"field of another type", source(`, "plugin": "a"`), `unknown field "plugin"`},
		{"empty field", source(`, "ref": ""`), "skills.x.ref: is empty; leave it out instead"},
		{"sha", source(",\n\"sha\": \"main\""), `m.json:3:8: skills.x.sha: "main" is not the id of a commit`},
		{"short sha", source(`, "sha": "0123abc"`), "is not the id of a commit"},
		{"upper sha", source(`, "sha": "` + strings.Repeat("A", 40) + `"`), "in lower case"},
		{"ref that is a sha", source(`, "ref": "` + strings.Repeat("a", 40) + `"`), "skills.x.ref: is a commit; give it as sha"},
		{"version and ref", source(`, "version": "1", "ref": "main"`), "skills.x.version: cannot be combined with ref"},
		{"version", source(`, "version": "^1.2"`), `"^1.2" is not a version such as 1.2.0`},
		{"dir", source(`, "skillsDir": "../x"`), `skills.x.skillsDir: "../x" is not a directory of the repository`},
		{"absolute dir", source(`, "skillsDir": "/x"`), "is not a directory of the repository"},
		{"include", source(`, "include": "pdf"`), "skills.x.include: must be an array"},
		{"empty include", source(`, "include": []`), "leave it out to take all"},
		{"include of another kind", source(`, "include": [1]`), "skills.x.include[0]: must be a string"},
		{"included name", source(`, "include": ["a", "../x"]`), "skills.x.include[1]: "},
		{"included twice", source(`, "include": ["a", "a"]`), `skills.x.include[1]: "a" is given twice`},
		{"url", source(`, "url": "x"`), `"url" is given twice`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := ParseManifest("m.json", []byte(test.manifest), false)
			contains(t, invalid(t, err), test.want)
		})
	}
}

// Several problems are reported at once, but not without end.
func TestManifestAllProblems(t *testing.T) {
	t.Parallel()
	_, err := ParseManifest("m.json", []byte("{\"skills\": {\"a\": {},\n\"b\": {}}}"), false)
	contains(t, invalid(t, err), "m.json:1:18: ", "m.json:2:6: ")
	_, err = ParseManifest("m.json", []byte(`{"skills": {"a": {"type": "git", "url": "https://example.com/a", "include": [`+strings.Repeat("1, ", 500)+`1]}}}`), false)
	if n := strings.Count(invalid(t, err), "\n") + 1; n != maxProblems {
		t.Errorf("%d problems", n)
	}
}

func TestManifestFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "none.json")
	_, err := LoadManifest(path, false)
	contains(t, invalid(t, err), path+": does not exist; choose another manifest with --manifest")
	if err := os.WriteFile(path, make([]byte, maxManifest+1), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = LoadManifest(path, false)
	contains(t, invalid(t, err), "has more than 1048576 bytes")
	_, err = LoadManifest(t.TempDir(), false)
	contains(t, invalid(t, err), "cannot be read")
}

// What is no argument for git never reaches it.
func TestRemotes(t *testing.T) {
	t.Parallel()
	for _, good := range []string{
		"https://github.com/anthropics/skills.git", "https://example.com:8443/a", "https://[2001:db8::1]/a", "ssh://git@example.com/a", "ssh://example.com:22/a",
		"git@example.com:a/b.git", "git@example.com:~a/b.git", "http://127.0.0.1:80/a", "http://localhost/a", "http://[::1]:1/a",
	} {
		if _, err := parseRemote(good, false); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, local := range []string{"file:///srv/skills", "/srv/skills", "./skills", "../skills"} {
		if _, err := parseRemote(local, true); err != nil {
			t.Errorf("%s: %v", local, err)
		}
		if _, err := parseRemote(local, false); err == nil || !strings.Contains(err.Error(), "--allow-local permits that") {
			t.Errorf("%s: %v", local, err)
		}
	}
	for _, bad := range []string{
		"", "-", "--upload-pack=touch /tmp/x", "-oProxyCommand=x@host:a", "ext::sh -c touch% /tmp/x", "ext::sh", "fd::17", "skills", "example.com/a",
		"git://example.com/a", "ftp://example.com/a", "http://example.com/a", "http://127.0.0.1.example.com/a", "http://localhost.example.com/a",
		"https://", "https://example.com", "https://example.com/", "https:///a", "https://-x/a", "https://user:secret@example.com/a", "https://token@example.com/a",
		"https://example.com/a?b=c", "https://example.com/a#b", "https://example.com/a b", "https://example.com/a\nb", "https://example.com/\x00", "https://exämple.com/a",
		"ssh://-oProxyCommand=x/a", "ssh://user:secret@example.com/a", "ssh://-x@example.com/a", "git@-x:a", "git@example.com:-x", "git@example.com::a", "-x@example.com:a",
		"C:\\skills", "C:/skills", "host:a", "file://server/a", "FILE:///a/../b?x", "https://" + strings.Repeat("a", 2000) + "/a",
	} {
		if got, err := parseRemote(bad, true); err == nil {
			t.Errorf("%q is accepted: %+v", bad, got)
		}
	}
}

func TestRefs(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"main", "v1.2.0", "release/1.x", "refs/heads/main", "refs/tags/v1", "feature_a+b", "user@host", "HEAD"} {
		if err := checkRef(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{
		"", "-", "--upload-pack=touch /tmp/x", "-x", "+main", "main:refs/heads/x", "^main", "a..b", "main^{tree}", "HEAD~1", "@{u}", "a@{1}", "a b", "a\nb", "a\x00b", "a\tb",
		"/a", "a/", "a//b", "a/.b", ".a", "a.", "a.lock", "a.lock/b", "*", "a*", "a?", "a[b]", `a\b`, "$(x)", "`x`", ";x", "main;", "ä", strings.Repeat("a", 201),
	} {
		if checkRef(bad) == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	for _, bad := range []string{"", "-1", "--x", "1/2", "../1", "1 2", "1..2", "1~", "^1"} {
		if checkVersion(bad) == nil {
			t.Errorf("version %q is accepted", bad)
		}
	}
}

// The places of a sync must not be in each other's way.
func TestPlaces(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		cfg  Config
		want string
	}{
		{Config{Out: "."}, "contains the working directory"},
		{Config{Out: ".."}, "contains the working directory"},
		{Config{Out: "file"}, "is not a directory; choose another with --out"},
		{Config{Manifest: "a/m.json", Out: "a"}, "contains a/m.json"},
		{Config{Lock: "a/b/m.lock", Out: "a"}, "contains a/b/m.lock"},
		{Config{Lock: "x", Manifest: "./x"}, "is the manifest"},
	} {
		_, err := test.cfg.places()
		contains(t, invalid(t, err), test.want)
	}
	if _, err := (&Config{}).places(); err != nil {
		t.Error(err)
	}
}

// Whatever a manifest has, it is refused or can be used.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"skills": {"a": {"type": "git", "url": "https://example.com/a", "ref": "v1", "include": ["pdf"]}}}`))
	f.Add([]byte(`{"skills": {"a": {"type": "claude-marketplace", "url": "git@example.com:a", "plugin": "p", "version": "1.2"}}}`))
	f.Add([]byte("{\"skills\": {\"a\": [{}], \"\\u0000\": 1e9,,}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ParseManifest("m.json", data, true)
		if err != nil {
			if text := invalid(t, err); !strings.HasPrefix(text, "m.json:") {
				t.Errorf("%q", text)
			}
			return
		}
		for _, e := range m.Entries {
			from, err := parseRemote(e.Source.URL, true)
			if err != nil || strings.HasPrefix(from.url, "-") || strings.HasPrefix(e.Source.Ref, "-") || strings.HasPrefix(e.Source.Version, "-") || fieldsOf[e.Source.Type] == nil {
				t.Errorf("%+v, %v", e, err)
			}
		}
	})
}
