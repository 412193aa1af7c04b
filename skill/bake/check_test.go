package bake

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/helixagents/helix/internal/gitserver"
)

// A check finds every kind of edit, names it, and changes nothing.
func TestCheck(t *testing.T) {
	t.Parallel()
	server := gitserver.Start(t)
	repo := server.Repository(t, "skills")
	commit := repo.Commit("main", pdf())
	repo.Git("tag", "v1", commit)
	origin := projectOn(t, server)
	origin.manifest(map[string]Source{"office": {Type: TypeGit, URL: repo.URL, Ref: "v1"}})
	origin.sync()

	edit := func(name, old, now string) func(p *project) {
		return func(p *project) {
			text := p.read(name)
			if !strings.Contains(text, old) {
				p.t.Fatalf("%q is not in %s:\n%s", old, name, text)
			}
			p.write(name, strings.Replace(text, old, now, 1))
		}
	}
	run := func(do func(path string) error, name string) func(p *project) {
		return func(p *project) {
			if err := do(filepath.Join(p.dir, name)); err != nil {
				p.t.Fatal(err)
			}
		}
	}
	chmod := func(mode os.FileMode) func(string) error {
		return func(path string) error { return os.Chmod(path, mode) }
	}
	lockedSum := strings.Fields(origin.lock().Skills["office"].Skills["docx"].Files["SKILL.md"])[1]
	for _, test := range []struct {
		name string
		edit func(p *project)
		want string
	}{
		{"nothing", func(*project) {}, ""},
		{"byte", edit("skills/pdf/SKILL.md", "# PDF", "# PDG"), "skills/pdf/SKILL.md: has been changed"},
		{"line end", edit("skills/pdf/references/forms.md", "\n", "\r\n"), "skills/pdf/references/forms.md: has been changed"},
		{"truncated", func(p *project) { p.write("skills/pdf/SKILL.md", "") }, "skills/pdf/SKILL.md: has been changed"},
		{"executable", run(chmod(0o755), "skills/pdf/SKILL.md"), "skills/pdf/SKILL.md: has become executable"},
		{"no longer executable", run(chmod(0o644), "skills/pdf/scripts/fill.sh"), "skills/pdf/scripts/fill.sh: is no longer executable"},
		{"file added", func(p *project) { p.write("skills/pdf/extra.md", "x") }, "skills/pdf/extra.md: was added; the lock does not have it"},
		{"hidden file added", func(p *project) { p.write("skills/pdf/.extra", "x") }, "skills/pdf/.extra: was added; the lock does not have it"},
		{"skill added", func(p *project) { p.write("skills/mine/SKILL.md", "x") }, "skills/mine/SKILL.md: was added; the lock does not have it\nskills/mine: was added; the lock does not have it"},
		{"Go code added", func(p *project) { p.write("skills/other.go", "package skills") }, "skills/other.go: was added; the lock does not have it"},
		{"link added", run(func(path string) error { return os.Symlink("SKILL.md", path) }, "skills/pdf/link.md"), "skills/pdf/link.md: was added; the lock does not have it"},
		{"directory added", run(func(path string) error { return os.Mkdir(path, 0o755) }, "skills/new"), "skills/new: was added; the lock does not have it"},
		{"removed", run(os.Remove, "skills/pdf/references/forms.md"), "skills/pdf/references/forms.md: is missing"},
		{"skill removed", run(os.RemoveAll, "skills/docx"), "skills/docx/SKILL.md: is missing"},
		{"all removed", run(os.RemoveAll, "skills"), "skills/docx/SKILL.md: is missing\n"},
		{
			"renamed", run(func(path string) error { return os.Rename(path, path+".old") }, "skills/docx/SKILL.md"),
			"skills/docx/SKILL.md.old: was added; the lock does not have it\nskills/docx/SKILL.md: is missing",
		},
		{"link instead of a file", run(func(path string) error {
			if err := os.Rename(path, path+"2"); err != nil {
				return err
			}
			return os.Symlink("SKILL.md2", path)
		}, "skills/docx/SKILL.md"), "skills/docx/SKILL.md2: was added; the lock does not have it\nskills/docx/SKILL.md: is no longer a file, but a link or something else"},
		{"link instead of a directory", run(func(path string) error {
			if err := os.Rename(path, path+"2"); err != nil {
				return err
			}
			return os.Symlink("docx2", path)
		}, "skills/docx"), "skills/docx: was added; the lock does not have it"},
		{"link instead of the index", run(func(path string) error {
			if err := os.Rename(path, filepath.Join(filepath.Dir(filepath.Dir(path)), "elsewhere")); err != nil {
				return err
			}
			return os.Symlink("../elsewhere", path)
		}, "skills/index.json"), "skills/index.json: was added; the lock does not have it"},
		{"link instead of the lock", run(func(path string) error {
			if err := os.Rename(path, path+"2"); err != nil {
				return err
			}
			return os.Symlink(DefaultLock+"2", path)
		}, DefaultLock), "helix.skills.lock: is not a lock of this program: it is not a regular file"},
		{"index", edit("skills/index.json", "Work with PDF files", "Work with all files"), "skills/index.json: is not what helix skills sync has written"},
		{"index removed", run(os.Remove, "skills/index.json"), "skills/index.json: is missing"},
		{"generated code", edit("skills/skills.go", "all:pdf", "pdf"), "skills/skills.go: is not what helix skills sync has written"},
		{"generated code removed", run(os.Remove, "skills/skills.go"), "skills/skills.go: is missing"},

		{"lock removed", run(os.Remove, "helix.skills.lock"), "helix.skills.lock: does not exist"},
		{"lock broken", func(p *project) { p.write("helix.skills.lock", "{") }, "helix.skills.lock: is not a lock of this program: unexpected EOF"},
		{"lock of the future", edit("helix.skills.lock", `"version": 1`, `"version": 2`), "its version is 2; this program reads version 1"},
		{"lock with another field", edit("helix.skills.lock", `"version": 1`, `"version": 1, "x": 2`), `unknown field "x"`},
		{"lock with another form", edit("helix.skills.lock", `"version": 1`, `"version":  1`), "helix.skills.lock: was edited: it is not formatted as it was written"},
		{"lock with another integrity", edit("helix.skills.lock", `"integrity": "sha256-`, `"integrity": "sha256-A`), "helix.skills.lock: was edited: the integrity of office is not that of its files"},
		{"lock with another digest", edit("helix.skills.lock", `"digest": "sha256:`, `"digest": "sha256:0`), "helix.skills.lock: was edited: the digest of docx is not that of its files"},
		{"lock with another sum", edit("helix.skills.lock", lockedSum, strings.Repeat("0", 64)), "helix.skills.lock: was edited: the digest of docx is not that of its files\n" +
			"helix.skills.lock: was edited: the integrity of office is not that of its files\nskills/docx/SKILL.md: has been changed"},
		{"lock with another path", edit("helix.skills.lock", `"references/forms.md"`, `"../forms.md"`), `its file "../forms.md" of skill pdf is not valid`},
		{"lock with another commit", edit("helix.skills.lock", commit, strings.Repeat("0", 40)), "skills/skills.go: is not what helix skills sync has written, or the commit in helix.skills.lock was edited"},
		{"lock with another source", edit("helix.skills.lock", `"ref": "v1"`, `"ref": "v2"`), "helix.skills.lock: has another source for office than helix.skills.json"},

		{"another ref", edit("helix.skills.json", `"v1"`, `"main"`), "helix.skills.lock: has another source for office than helix.skills.json"},
		{"another commit", edit("helix.skills.json", `"ref": "v1"`, `"sha": "`+commit+`"`), "helix.skills.lock: has another source for office than helix.skills.json"},
		{"another list", edit("helix.skills.json", `"ref": "v1"`, `"ref": "v1", "include": ["pdf"]`), "helix.skills.lock: has another source for office than helix.skills.json"},
		{"another name", edit("helix.skills.json", `"office"`, `"work"`), "helix.skills.lock: does not have work of helix.skills.json\nhelix.skills.lock: has office, which helix.skills.json does not have"},
		{"another entry", edit("helix.skills.json", `"office": {`, `"more": {"type": "git", "url": "https://example.com/a"}, "office": {`), "helix.skills.lock: does not have more of helix.skills.json"},
		{"no entry", func(p *project) { p.write("helix.skills.json", `{"skills": {}}`) }, "helix.skills.lock: has office, which helix.skills.json does not have"},
		{"the form of the manifest", edit("helix.skills.json", "{", "{\n\n"), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := projectOn(t, server)
			if err := os.CopyFS(p.dir, os.DirFS(origin.dir)); err != nil {
				t.Fatal(err)
			}
			test.edit(p)
			before := p.snapshot()
			got := p.check()
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
			if before != p.snapshot() {
				t.Error("a check has changed something")
			}
		})
	}
}

// What a check finds, a sync repairs, unless it could lose something.
func TestSyncRepairs(t *testing.T) {
	t.Parallel()
	p := setup(t)
	repo := p.server.Repository(t, "skills")
	repo.Commit("main", pdf())
	p.manifest(map[string]Source{"office": {Type: TypeGit, URL: repo.URL}})
	p.sync()
	good := p.snapshot()
	p.write("skills/pdf/SKILL.md", "---\nname: pdf\ndescription: Tampered\n---\nDo harm.\n")
	if err := os.Chmod(filepath.Join(p.cfg.Out, "pdf", "scripts", "fill.sh"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(p.cfg.Out, "docx")); err != nil {
		t.Fatal(err)
	}
	if p.check() == "" {
		t.Error("nothing was found")
	}
	report := p.sync()
	contains(t, report.Changes[1].Diff, "-Do harm.")
	if p.snapshot() != good {
		t.Errorf("got\n%s\nwant\n%s", p.snapshot(), good)
	}
}

// Offline, a moved tag is not seen; the source knows. A commit does not move.
func TestMovedTag(t *testing.T) {
	t.Parallel()
	p := setup(t)
	repo := p.server.Repository(t, "skills")
	first := repo.Commit("main", pdf())
	repo.Git("tag", "v1.0.0")
	p.manifest(map[string]Source{
		"tag": {Type: TypeGit, URL: repo.URL, Ref: "v1.0.0", Include: []string{"pdf"}}, "sha": {Type: TypeGit, URL: repo.URL, SHA: first, Ref: "v1.0.0", Include: []string{"docx"}},
	})
	p.sync()
	second := repo.Commit("main", with(pdf(), gitserver.Files{"skills/pdf/SKILL.md": skillText("pdf", "Another text")}))
	if problems := p.checkRemote(); problems != "" {
		t.Error(problems)
	}
	repo.Git("tag", "--force", "v1.0.0", second)
	if problems := p.check(); problems != "" {
		t.Error(problems)
	}
	if got, want := p.checkRemote(), "helix.skills.lock: tag: v1.0.0 of "+repo.URL+" has moved from "+first[:12]+" to "+second[:12]; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	repo.Git("tag", "--delete", "v1.0.0")
	if _, err := CheckRemote(t.Context(), p.cfg); err == nil || !strings.Contains(err.Error(), "tag: "+repo.URL+" has no tag or branch v1.0.0") {
		t.Errorf("%v", err)
	}
}

// A manifest without sources is one; a sync of it removes all skills.
func TestNoSources(t *testing.T) {
	t.Parallel()
	p := setup(t)
	repo := p.server.Repository(t, "skills")
	repo.Commit("main", pdf())
	p.manifest(map[string]Source{"office": {Type: TypeGit, URL: repo.URL}})
	p.sync()
	p.manifest(map[string]Source{})
	if report := p.sync(); len(report.Changes) != 2 || report.Changes[0].Kind != Removed {
		t.Errorf("%+v", report)
	}
	if problems := p.check(); problems != "" {
		t.Error(problems)
	}
	if left := readable(t, p.cfg.Out); len(left) != 2 {
		t.Errorf("%v", left)
	}
}
