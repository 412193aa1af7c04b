package bake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/gitserver"
	"github.com/helixagents/helix/internal/testshare"
)

// Every way to name a commit finds it.
func TestPins(t *testing.T) {
	t.Parallel()
	p := setup(t)
	repo := p.server.Repository(t, "skills")
	text := func(n int) gitserver.Files {
		return gitserver.Files{"skills/pdf/SKILL.md": skillText("pdf", fmt.Sprintf("Number %d", n))}
	}
	first := repo.Commit("main", text(1))
	repo.Git("tag", "v1.0.0", first)
	second := repo.Commit("main", text(2))
	repo.Git("tag", "-a", "-m", "annotated", "2.0.0", second)
	repo.Git("tag", "v3", second)
	third := repo.Commit("main", text(3))
	branch := repo.Commit("dev/next", text(4))
	// A branch with the name of a tag, and one that only ends like another.
	repo.Git("update-ref", "refs/heads/v1.0.0", third)
	repo.Git("update-ref", "refs/heads/other/main", branch)
	for _, test := range []struct {
		name   string
		source Source
		want   string
	}{
		{"nothing", Source{}, third},
		{"branch", Source{Ref: "main"}, third},
		{"branch with a slash", Source{Ref: "dev/next"}, branch},
		{"full name", Source{Ref: "refs/heads/v1.0.0"}, third},
		{"tag before branch", Source{Ref: "v1.0.0"}, first},
		{"annotated tag", Source{Ref: "2.0.0"}, second},
		{"version with v", Source{Version: "1.0.0"}, first},
		{"version without v", Source{Version: "2.0.0"}, second},
		{"version that says v", Source{Version: "v3"}, second},
		{"commit", Source{SHA: first}, first},
		{"commit and ref", Source{SHA: second, Ref: "main"}, second},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := *p
			p.t = t
			test.source.Type, test.source.URL = TypeGit, repo.URL
			p.manifest(map[string]Source{"a": test.source})
			if report := p.sync(); report.Entries[0].Commit != test.want {
				t.Errorf("got %s, want %s", report.Entries[0].Commit, test.want)
			}
			if problems := p.checkRemote(); problems != "" {
				t.Error(problems)
			}
		})
	}
	for name, test := range map[string]struct {
		source Source
		want   string
	}{
		"no branch":  {Source{Ref: "none"}, "has no tag or branch none"},
		"no version": {Source{Version: "9"}, "has no tag for version 9; there is neither refs/tags/v9 nor refs/tags/9"},
		"no commit":  {Source{SHA: strings.Repeat("a", 40)}, strings.Repeat("a", 40)},
		"a tag's id": {Source{SHA: repo.Git("rev-parse", "2.0.0")}, "is not a commit"},
		"no dir":     {Source{SkillsDir: "none"}, "none of " + repo.URL + " at " + third[:12] + " is not a directory"},
		"a file":     {Source{SkillsDir: "skills/pdf/SKILL.md"}, "is not a directory"},
		"no skill":   {Source{Include: []string{"docx"}}, "has no skill docx; it has pdf"},
	} {
		t.Run(name, func(t *testing.T) {
			p := *p
			p.t = t
			test.source.Type, test.source.URL = TypeGit, repo.URL
			p.manifest(map[string]Source{"a": test.source})
			contains(t, p.refused(), "a: ", test.want)
		})
	}
}

// A repository whose ids are SHA-256 is read like any other.
func TestSHA256(t *testing.T) {
	t.Parallel()
	p := setup(t)
	repo := p.server.Repository(t, "skills", "--object-format=sha256")
	commit := repo.Commit("main", pdf())
	for _, source := range []Source{{}, {SHA: commit}} {
		source.Type, source.URL = TypeGit, repo.URL
		p.manifest(map[string]Source{"a": source})
		if report := p.sync(); len(commit) != 64 || report.Entries[0].Commit != commit {
			t.Errorf("%+v", report)
		}
		if problems := p.checkRemote(); problems != "" {
			t.Error(problems)
		}
	}
}

// The directory of the skills may be a skill itself, and may be the whole repository.
func TestSkillsDir(t *testing.T) {
	t.Parallel()
	p := setup(t)
	repo := p.server.Repository(t, "skills")
	repo.Commit("main", gitserver.Files{"SKILL.md": skillText("whole", "A repository"), "a/b/c.md": gitserver.Text("c"), ".gitignore": gitserver.Text("*")})
	p.manifest(map[string]Source{"a": {Type: TypeGit, URL: repo.URL, SkillsDir: "."}})
	report := p.sync()
	if p.read("skills/whole/a/b/c.md") != "c" {
		t.Error("a file is missing")
	}
	if exists(filepath.Join(p.cfg.Out, "whole", ".gitignore")) || len(report.Notes) != 1 || !strings.Contains(report.Notes[0], "1 of its files are for git") {
		t.Errorf("%q", report.Notes)
	}
	repo.Commit("main", gitserver.Files{"deep/er/one/SKILL.md": skillText("one", "One"), "deep/er/two/SKILL.md": skillText("three", "Another name")})
	p.manifest(map[string]Source{"a": {Type: TypeGit, URL: repo.URL, SkillsDir: "deep/er"}})
	report = p.sync()
	if !exists(filepath.Join(p.cfg.Out, "three", "SKILL.md")) || len(report.Notes) != 1 || !strings.Contains(report.Notes[0], "is not that of the directory") {
		t.Errorf("%q", report.Notes)
	}
	if problems := p.check(); problems != "" {
		t.Error(problems)
	}
}

// A server that gives only what a ref points to is asked for the ref, with its history.
func TestServerWithoutSHA(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.server.OnlyTips()
	repo := p.server.Repository(t, "skills")
	first := repo.Commit("main", gitserver.Files{"skills/pdf/SKILL.md": skillText("pdf", "First")})
	repo.Commit("main", gitserver.Files{"skills/pdf/SKILL.md": skillText("pdf", "Second")})
	dev := repo.Commit("dev", gitserver.Files{"skills/pdf/SKILL.md": skillText("pdf", "Third")})
	repo.Commit("dev", gitserver.Files{"skills/pdf/SKILL.md": skillText("pdf", "Fourth")})
	p.manifest(map[string]Source{"a": {Type: TypeGit, URL: repo.URL, SHA: first}})
	p.sync()
	contains(t, p.read("skills/pdf/SKILL.md"), "First")
	p.manifest(map[string]Source{"a": {Type: TypeGit, URL: repo.URL, SHA: dev}})
	contains(t, p.refused(), "gives no commit by its id", dev+" is not in the history of the default branch: name the branch that has it as ref")
	p.manifest(map[string]Source{"a": {Type: TypeGit, URL: repo.URL, SHA: dev, Ref: "dev"}})
	p.sync()
	contains(t, p.read("skills/pdf/SKILL.md"), "Third")
}

// What could do harm on the disk, in git or in Go is refused by name.
func TestHostileTrees(t *testing.T) {
	t.Parallel()
	server := gitserver.Start(t)
	doc := skillText("bad", "Bad")
	for _, test := range []struct {
		name  string
		files gitserver.Files // of the skill
		want  string
	}{
		{"link", gitserver.Files{"passwd": gitserver.Link("/etc/passwd")}, `"passwd": it is a symbolic link`},
		{"link inside", gitserver.Files{"copy.md": gitserver.Link("SKILL.md")}, `"copy.md": it is a symbolic link`},
		{"submodule", gitserver.Files{"sub": gitserver.Submodule()}, `"sub": it is a submodule`},
		{"up", gitserver.Files{"..": gitserver.Text("x")}, `"..": its path does not lie within the skill`},
		{"here", gitserver.Files{".": gitserver.Text("x")}, "its path does not lie within the skill"},
		{"slash", gitserver.Files{"a/../../x": gitserver.Text("x")}, "its path does not lie within the skill"},
		{"absolute", gitserver.Files{"/etc/x": gitserver.Text("x")}, "its path does not lie within the skill"},
		{"backslash", gitserver.Files{`..\x`: gitserver.Text("x")}, "its path does not lie within the skill"},
		{"drive", gitserver.Files{"C:x": gitserver.Text("x")}, `has ':', which is not allowed`},
		{"stream", gitserver.Files{"a.txt:b": gitserver.Text("x")}, `has ':', which is not allowed`},
		{"line end", gitserver.Files{"a\nb": gitserver.Text("x")}, `"a\nb": its path does not lie within the skill`},
		{"escape", gitserver.Files{"a\x1b[2J": gitserver.Text("x")}, `"a\x1b[2J": its path`},
		{"not text", gitserver.Files{"a\xff": gitserver.Text("x")}, `"a\xff": its path`},
		{"invisible", gitserver.Files{"a\u200db": gitserver.Text("x")}, `has '\u200d', which is not allowed`},
		{"quotes", gitserver.Files{`a"b`: gitserver.Text("x")}, `which is not allowed`},
		{"git", gitserver.Files{".git": gitserver.Text("gitdir: /x")}, `".git" is a name that a version control system uses`},
		{"git in capitals", gitserver.Files{".GIT": gitserver.Text("x")}, "version control system"},
		{"short git", gitserver.Files{"GIT~1": gitserver.Text("x")}, "version control system"},
		{"device", gitserver.Files{"con": gitserver.Text("x")}, `"con" is the name of a device on Windows`},
		{"device with an end", gitserver.Files{"Aux.md": gitserver.Text("x")}, "is the name of a device on Windows"},
		{"dot at the end", gitserver.Files{"a.": gitserver.Text("x")}, "ends with a dot"},
		{"space at the end", gitserver.Files{"a ": gitserver.Text("x")}, "ends with a space"},
		{"case", gitserver.Files{"A.md": gitserver.Text("x"), "a.md": gitserver.Text("y")}, `"A.md" and "a.md" differ only in case`},
		{"case of SKILL.md", gitserver.Files{"skill.md": gitserver.Text("x")}, `differ only in case`},
		{"another letter for one", gitserver.Files{"\u017fKILL.md": gitserver.Text("x")}, "differ only in case"},
		{"encoding", gitserver.Files{"\u00e9": gitserver.Text("x"), "\u00c9": gitserver.Text("y")}, "differ only in case or in how letters are encoded"},
		{"Go code", gitserver.Files{"x_test.go": gitserver.Text("package x")}, `"x_test.go": it is Go code, which would become a part of your module`},
		{"module", gitserver.Files{"go.mod": gitserver.Text("module x")}, "would make its directory a module of its own"},
		{"long name", gitserver.Files{strings.Repeat("a", 201): gitserver.Text("x")}, "has 201 bytes; at most 200 are allowed"},
		{"description", gitserver.Files{"SKILL.md": gitserver.Text("---\nname: bad\n---\n")}, "skills/bad/SKILL.md:1:1: "},
		{"name", gitserver.Files{"SKILL.md": gitserver.Text("---\nname: ../bad\ndescription: x\n---\n")}, "skills/bad/SKILL.md:2:7: "},
		{"name of a device", gitserver.Files{"SKILL.md": skillText("con", "Bad")}, `cannot be taken: "con" is the name of a device on Windows; name the skills`},
		{"zero byte", gitserver.Files{"SKILL.md": gitserver.Text("---\nname: bad\ndescription: x\n---\n\x00")}, "contains a zero byte"},
		{"long body", gitserver.Files{"SKILL.md": gitserver.Text(doc.Content + strings.Repeat("x", 1<<20))}, "SKILL.md has 1048"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := projectOn(t, server)
			repo := server.Repository(t, strings.ReplaceAll(t.Name(), "/", "-"))
			own := gitserver.Files{"SKILL.md": doc}
			maps.Copy(own, test.files)
			tree := repo.Tree(gitserver.Files{"skills": gitserver.Below(repo.Tree(gitserver.Files{
				"bad": gitserver.Below(repo.Tree(own)), "good": gitserver.Below(repo.Tree(gitserver.Files{"SKILL.md": skillText("good", "Good")})),
			}))})
			repo.CommitTree("main", tree)
			p.manifest(map[string]Source{"a": {Type: TypeGit, URL: repo.URL}})
			text := p.refused()
			contains(t, text, "a: skills/bad of "+repo.URL, "cannot be taken", test.want)
			if strings.ContainsAny(text, "\x1b\n\x00") {
				t.Errorf("the message has control characters: %q", text)
			}
			// The others can be taken.
			p.manifest(map[string]Source{"a": {Type: TypeGit, URL: repo.URL, Include: []string{"good"}}})
			p.sync()
			if problems := p.check(); problems != "" {
				t.Error(problems)
			}
		})
	}
}

// projectOn is setup with a server that others use, too.
func projectOn(t *testing.T, server *gitserver.Server) *project {
	t.Helper()
	dir := t.TempDir()
	return &project{t, server, dir, Config{
		Manifest: filepath.Join(dir, DefaultManifest), Lock: filepath.Join(dir, DefaultLock), Out: filepath.Join(dir, DefaultOut),
	}}
}

// A skill that is a link or a submodule is refused, or left out by include. Other links
// beside the skills do not matter.
func TestSkillsThatAreLinks(t *testing.T) {
	t.Parallel()
	p := setup(t)
	repo := p.server.Repository(t, "skills")
	for _, f := range []gitserver.File{gitserver.Link("../other/bad"), gitserver.Submodule()} {
		repo.Commit("main", gitserver.Files{
			"skills/good/SKILL.md": skillText("good", "Good"), "skills/bad": f, "other/bad/SKILL.md": skillText("bad", "Bad"),
			"skills/README.md": gitserver.Link("../README.md"), "README.md": gitserver.Text("x"),
		})
		p.manifest(map[string]Source{"a": {Type: TypeGit, URL: repo.URL}})
		contains(t, p.refused(), "skills/bad of ", "cannot be taken: it is a s", "; name the skills that you want in include")
		p.manifest(map[string]Source{"a": {Type: TypeGit, URL: repo.URL, Include: []string{"good"}}})
		p.sync()
	}
	// A directory in the way is not followed either.
	repo.Commit("main", gitserver.Files{"skills": gitserver.Link("other"), "other/bad/SKILL.md": skillText("bad", "Bad")})
	p.manifest(map[string]Source{"a": {Type: TypeGit, URL: repo.URL}})
	contains(t, p.refused(), "is not a directory")
}

// A source is limited in files, bytes and depth.
func TestLimits(t *testing.T) {
	t.Parallel()
	testshare.SkipUnless(t, 1, 4)
	p := setup(t)
	repo := p.server.Repository(t, "skills")
	p.manifest(map[string]Source{"a": {Type: TypeGit, URL: repo.URL}})
	many := gitserver.Files{"skills/a/SKILL.md": skillText("a", "A")}
	for i := range MaxFiles {
		many[fmt.Sprintf("skills/a/%04d", i)] = gitserver.Text("x")
	}
	repo.Commit("main", many)
	contains(t, p.refused(), "have at most 2000 files")
	delete(many, "skills/a/0000")
	repo.Commit("main", many)
	p.sync()
	if problems := p.check(); problems != "" {
		t.Error(problems)
	}
	big := gitserver.Text(strings.Repeat("x", MaxBytes/2))
	repo.Commit("main", gitserver.Files{"skills/a/SKILL.md": skillText("a", "A"), "skills/a/1": big, "skills/b/SKILL.md": skillText("b", "B"), "skills/b/2": big})
	contains(t, p.refused(), "have at most 33554432 bytes")
	repo.Commit("main", gitserver.Files{"skills/a/SKILL.md": skillText("a", "A"), "skills/a/" + strings.Repeat("d/", 13) + "x": gitserver.Text("x")})
	contains(t, p.refused(), "lies more than 12 directories deep")
}

// A fetch that writes too much is stopped.
func TestFetchedSize(t *testing.T) {
	t.Parallel()
	server := gitserver.Start(t)
	repo := server.Repository(t, "big")
	noise := make([]byte, 1<<20)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	repo.Commit("main", gitserver.Files{"noise": gitserver.Text(string(noise))})
	r, err := newRepository(t.Context(), t.TempDir(), remote{url: repo.URL, scheme: "http"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.get(t.Context(), pin{}); err != nil {
		t.Fatal(err)
	}
	if size := r.size(); size < 1<<20 {
		t.Fatalf("the repository has %d bytes", size)
	}
	r.maxSize = 1 << 19
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	r.watchSize(ctx, cancel)
	if err := context.Cause(ctx); err == nil || !strings.Contains(err.Error(), "sends more than 524288 bytes") {
		t.Errorf("%v", err)
	}
}

// All sources together are limited, too, however fast they are.
func TestFetchedSizeOfAll(t *testing.T) {
	t.Parallel()
	p := setup(t)
	repo := p.server.Repository(t, "skills")
	repo.Commit("main", pdf())
	places, err := p.cfg.places()
	if err != nil {
		t.Fatal(err)
	}
	r, err := newReader(places)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	from := remote{url: repo.URL, scheme: "http"}
	if _, err := r.get(t.Context(), from, pin{}); err != nil || r.left >= MaxFetchedAll {
		t.Fatalf("%d bytes are left: %v", r.left, err)
	}
	r.left = (MaxFetchedAll - r.left) / 2
	if _, err := r.get(t.Context(), from, pin{ref: "main"}); err == nil || !strings.Contains(err.Error(), "all sources together") {
		t.Errorf("%v", err)
	}
	if _, err := r.get(t.Context(), from, pin{}); err != nil { // it is there already
		t.Error(err)
	}
}

// A pointer of Git LFS is not the file that the author meant.
func TestLFS(t *testing.T) {
	t.Parallel()
	p := setup(t)
	repo := p.server.Repository(t, "skills")
	repo.Commit("main", gitserver.Files{
		"skills/a/SKILL.md": skillText("a", "A"), "skills/a/logo.png": gitserver.Text(lfsPointer + "v1\noid sha256:00\nsize 1\n"),
	})
	p.manifest(map[string]Source{"a": {Type: TypeGit, URL: repo.URL}})
	if report := p.sync(); len(report.Notes) != 1 || !strings.Contains(report.Notes[0], "a/logo.png is a pointer to a file in Git LFS") {
		t.Errorf("%q", report.Notes)
	}
}

// A repository on this machine is read if that is allowed, relative to the manifest.
func TestLocal(t *testing.T) {
	t.Parallel()
	p := setup(t)
	repo := p.server.Repository(t, "skills")
	repo.Commit("main", pdf())
	relative, err := filepath.Rel(p.dir, repo.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{"file://" + repo.Dir, repo.Dir, relative} {
		p.manifest(map[string]Source{"a": {Type: TypeGit, URL: url}})
		contains(t, p.refused(), "--allow-local")
		allowed := *p
		allowed.cfg.AllowLocal = true
		allowed.sync()
		if problems := allowed.checkRemote(); problems != "" {
			t.Error(problems)
		}
	}
}

// The user's configuration is used for credentials; its hooks and templates do not run, its
// protocols are not allowed, and variables for another repository are ignored.
func TestConfiguration(t *testing.T) {
	p := setup(t)
	repo := p.server.Repository(t, "skills")
	repo.Commit("main", pdf())
	p.server.Gate(basicAuth("me", "secret"))
	home := t.TempDir()
	ran := filepath.Join(home, "ran")
	script := func(name, text string) string {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, hook := range []string{"reference-transaction", "post-checkout", "pre-auto-gc", "post-rewrite"} {
		script("hooks/"+hook, "touch "+ran)
		script("template/hooks/"+hook, "touch "+ran)
	}
	helper := script("helper", `[ "$1" = get ] && printf 'username=me\npassword=secret\n'`)
	config := script("config", "")
	text := fmt.Sprintf("[core]\n\thooksPath = %s\n\tfsmonitor = %s\n[init]\n\ttemplateDir = %s\n[credential]\n\thelper = %s\n"+
		"[protocol \"ext\"]\n\tallow = always\n[url \"ext::touch %s \"]\n\tinsteadOf = https://evil.example.com/\n[transfer]\n\tbundleURI = true\n",
		filepath.Join(home, "hooks"), filepath.Join(home, "hooks", "post-checkout"), filepath.Join(home, "template"), helper, ran)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p.manifest(map[string]Source{"a": {Type: TypeGit, URL: repo.URL}})
	contains(t, p.refused(), "git may not ask for a password here: set up a credential helper")

	t.Setenv("GIT_CONFIG_GLOBAL", config)
	t.Setenv("GIT_DIR", filepath.Join(home, "none"))
	t.Setenv("GIT_ALLOW_PROTOCOL", "ext")
	t.Setenv("GIT_TEMPLATE_DIR", filepath.Join(home, "template"))
	p.sync()
	p.manifest(map[string]Source{"a": {Type: TypeGit, URL: "https://evil.example.com/x"}})
	contains(t, p.refused(), "transport 'ext' not allowed")
	if exists(ran) {
		t.Error("a hook or a command of the configuration has run")
	}
}

// Cancelling kills what git has started, too.
func TestCancelKillsSSH(t *testing.T) {
	p := setup(t)
	started := filepath.Join(t.TempDir(), "started")
	ssh := filepath.Join(t.TempDir(), "ssh")
	if err := os.WriteFile(ssh, []byte("#!/bin/sh\necho $$ > "+started+".tmp\nmv "+started+".tmp "+started+"\nsleep 600\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GIT_SSH", ssh)
	t.Setenv("GIT_SSH_VARIANT", "simple")
	p.manifest(map[string]Source{"a": {Type: TypeGit, URL: "git@example.com:a/b"}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := Sync(ctx, p.cfg)
		done <- err
	}()
	var pid string
	eventually.Poll(t, "the process writes its id", func() bool {
		if len(done) > 0 {
			t.Fatalf("it ended: %v", <-done)
		}
		data, _ := os.ReadFile(started)
		pid = strings.TrimSpace(string(data))
		return pid != ""
	})
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	awaitEnd(t, pid)
}
