package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/helixagents/helix/internal/gitserver"
	"github.com/helixagents/helix/skill/bake"
)

// helixSkills runs helix skills and returns the exit code and the output, without the
// directory.
func helixSkills(dir string, args ...string) (code int, out, complaints string) {
	var o, c bytes.Buffer
	code = run(append([]string{"skills"}, args...), nil, &o, &c)
	short := func(b *bytes.Buffer) string {
		return strings.ReplaceAll(b.String(), dir+string(filepath.Separator), "")
	}
	return code, short(&o), short(&c)
}

func writeSkill(t *testing.T, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestSkillsOfADirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeSkill(t, dir, "pdf/SKILL.md", "---\nname: pdf\ndescription: Work with PDF files. Use it for forms.\n---\n# PDF\n\x1b[31mred\n\tza\u200bp\u009b\U000e0041\n")
	writeSkill(t, dir, "pdf/references/forms.md", "Forms.\n")
	if code, out, _ := helixSkills(dir, "ls", dir); code != 0 || out != "SKILL  DESCRIPTION\npdf    Work with PDF files.\n" {
		t.Errorf("%d, %s", code, out)
	}
	code, out, _ := helixSkills(dir, "ls", dir, "--json")
	var listed shownSkills
	if err := json.Unmarshal([]byte(out), &listed); err != nil || code != 0 || !listed.OK || len(listed.Skills) != 1 || listed.Skills[0].Digest == "" {
		t.Errorf("%d, %s, %v", code, out, err)
	}
	code, out, _ = helixSkills(dir, "show", "pdf", "--dir", dir)
	if code != 0 || !strings.HasPrefix(out, "name: pdf\ndescription: Work with PDF files. Use it for forms.\ndigest: sha256:") ||
		!strings.HasSuffix(out, "\nfile: references/forms.md (7 bytes)\n\n# PDF\n\\u001b[31mred\n\tza\\u200bp\\u009b\\udb40\\udc41\n") {
		t.Errorf("%d, %q", code, out)
	}
	if code, out, _ := helixSkills(dir, "show", "pdf", "--dir", dir, "--file", "references/forms.md"); code != 0 || out != "Forms.\n" {
		t.Errorf("%d, %s", code, out)
	}
	code, out, _ = helixSkills(dir, "show", "pdf", "--dir", dir, "--json")
	var shown shownSkill
	if err := json.Unmarshal([]byte(out), &shown); err != nil || code != 0 || shown.Name != "pdf" || len(shown.Files) != 1 ||
		shown.Body != "# PDF\n\x1b[31mred\n\tza\u200bp\u009b\U000e0041" {
		t.Errorf("%d, %s, %v", code, out, err)
	}
	if hidden := strings.ContainsAny(out, "\x1b\u200b\u009b\U000e0041"); hidden { // also in JSON, everything is seen
		t.Errorf("%q", out)
	}
	if code, out, _ := helixSkills(dir, "check", dir); code != 0 || !strings.Contains(out, "warning: pdf/SKILL.md:7:4: contains the character U+200B") || !strings.HasSuffix(out, "1 skill can be used\n") {
		t.Errorf("%d, %s", code, out)
	}

	writeSkill(t, dir, "z/pdf/SKILL.md", "---\nname: pdf\ndescription: Hidden.\n---\n")
	if code, out, _ := helixSkills(dir, "check", dir); code != 0 || !strings.Contains(out, "warning: z/pdf/SKILL.md: the skill pdf is hidden by another one of its name") || !strings.HasSuffix(out, "1 skill can be used\n") {
		t.Errorf("%d, %s", code, out)
	}
	if err := os.RemoveAll(filepath.Join(dir, "z")); err != nil {
		t.Fatal(err)
	}

	writeSkill(t, dir, "bad/SKILL.md", "---\nname: bad\n---\n")
	code, out, _ = helixSkills(dir, "check", dir)
	if code != exitFailure || !strings.HasPrefix(out, "bad/SKILL.md:") || !strings.Contains(out, "description") || !strings.HasSuffix(out, "1 skill can be used; 1 problem\n") {
		t.Errorf("%d, %s", code, out)
	}
	code, out, _ = helixSkills(dir, "check", dir, "--json")
	if code != exitFailure || !strings.Contains(out, `"ok": false`) || !strings.Contains(out, `"refused": true`) {
		t.Errorf("%d, %s", code, out)
	}
	if code, out, complaints := helixSkills(dir, "ls", dir); code != 0 || strings.Contains(out, "bad") || !strings.Contains(complaints, "warning: bad/SKILL.md:") {
		t.Errorf("%d, %s, %s", code, out, complaints)
	}
	if code, _, complaints := helixSkills(dir, "show", "bad", "--dir", dir); code != exitFailure || !strings.Contains(complaints, "description") {
		t.Errorf("%d, %s", code, complaints)
	}
	if code, _, complaints := helixSkills(dir, "show", "none", "--dir", dir); code != exitFailure || !strings.Contains(complaints, "helix skills ls lists them") {
		t.Errorf("%d, %s", code, complaints)
	}
	if code, _, complaints := helixSkills(dir, "check", filepath.Join(dir, "none")); code != exitFailure || !strings.Contains(complaints, "none") {
		t.Errorf("%d, %s", code, complaints)
	}
	for _, args := range [][]string{{"show"}, {"show", "a", "b"}, {"lst"}, {"sync", "x"}, {"sync", "--remote"}, {"sync", "--chek"}, {"show", "pdf", "--json", "--file", "x"}} {
		if code, _, complaints := helixSkills(dir, args...); code != exitUsage {
			t.Errorf("%v: %d, %s", args, code, complaints)
		}
	}
}

// syncDir is a directory with a manifest for a repository.
func syncDir(t *testing.T, repo *gitserver.Repository) (dir string, flags []string) {
	t.Helper()
	dir = t.TempDir()
	writeSkill(t, dir, bake.DefaultManifest, `{"skills": {"office": {"type": "git", "url": "`+repo.URL+`", "ref": "v1"}}}`)
	return dir, []string{
		"--manifest", filepath.Join(dir, bake.DefaultManifest), "--lock", filepath.Join(dir, bake.DefaultLock), "--out", filepath.Join(dir, bake.DefaultOut),
	}
}

func officeSkills(text string) gitserver.Files {
	return gitserver.Files{
		"skills/pdf/SKILL.md": gitserver.Text("---\nname: pdf\ndescription: PDF\n---\n" + text + "\n"), "skills/pdf/fill.sh": gitserver.Script("#!/bin/sh\n"),
	}
}

// sync, --check and --remote end with 0, 1 and 2 as documented.
func TestSkillsSync(t *testing.T) {
	t.Parallel()
	repo := gitserver.Start(t).Repository(t, "skills")
	first := repo.Commit("main", officeSkills("First."))
	repo.Git("tag", "v1", first)
	dir, flags := syncDir(t, repo)
	do := func(wantCode int, want string, args ...string) {
		t.Helper()
		code, out, complaints := helixSkills(dir, append(append([]string{"sync"}, args...), flags...)...)
		if code != wantCode || !strings.Contains(out+complaints, want) {
			t.Errorf("%v: exit code %d, want %d; output\n%s%swant %q", args, code, wantCode, out, complaints, want)
		}
	}
	do(1, "helix.skills.lock: does not exist\n\nRun helix skills sync to fetch the skills again", "--check")
	do(0, "office: "+repo.URL+" at "+first[:12]+": pdf\n+ pdf (2 files)\n    + SKILL.md\n    + fill.sh\n    @@ -1 +1 @@\n    +---\n    +name: pdf\n    +description: PDF\n    +---\n    +First.\n1 change written to skills.\n")
	do(0, "Everything is up to date.")
	do(0, "skills and helix.skills.lock are as fetched.\n", "--check")
	do(0, `"ok": true`, "--check", "--json")
	do(0, "skills and helix.skills.lock are as fetched.\n", "--check", "--remote")

	second := repo.Commit("main", officeSkills("Second\x1b[2J\u202e."))
	repo.Git("tag", "--force", "v1", second)
	do(0, "are as fetched", "--check")
	do(1, "helix.skills.lock: office: v1 of "+repo.URL+" has moved from "+first[:12]+" to "+second[:12], "--check", "--remote")
	do(1, `"ok": false`, "--check", "--remote", "--json")
	do(0, "~ pdf (1 file)\n    ~ SKILL.md\n    @@ -2 +2 @@\n     name: pdf\n     description: PDF\n     ---\n    -First.\n    +Second\\u001b[2J\\u202e.\n1 change written to skills.\n")
	do(0, "", "--check", "--remote")

	writeSkill(t, dir, "skills/pdf/SKILL.md", "tampered")
	do(1, "skills/pdf/SKILL.md: has been changed\n", "--check")
	do(0, `"written": true`, "--json")

	writeSkill(t, dir, bake.DefaultManifest, "{\"skills\": {\n  \"office\": {\"type\": \"svn\"}\n}}")
	do(2, "helix: helix.skills.json:2:22: skills.office.type: unknown type \"svn\"", "--check")
	do(2, "helix: helix.skills.json:2:22: skills.office.type: unknown type \"svn\"")
	writeSkill(t, dir, bake.DefaultManifest, `{"skills": {"office": {"type": "git", "url": "`+repo.URL+`", "ref": "none"}}}`)
	do(1, "helix: office: "+repo.URL+" has no tag or branch none")
	do(1, "has another source for office", "--check")
	if err := os.Remove(filepath.Join(dir, bake.DefaultManifest)); err != nil {
		t.Fatal(err)
	}
	do(2, "helix.skills.json: does not exist; choose another manifest with --manifest")
}

// Every kind of edit has its exit code.
func TestSkillsCheckExitCodes(t *testing.T) {
	t.Parallel()
	repo := gitserver.Start(t).Repository(t, "skills")
	repo.Git("tag", "v1", repo.Commit("main", officeSkills("First.")))
	dir, flags := syncDir(t, repo)
	if code, _, complaints := helixSkills(dir, append([]string{"sync"}, flags...)...); code != 0 {
		t.Fatal(complaints)
	}
	replace := func(name, old, now string) func(string) error {
		return func(dir string) error {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name), bytes.Replace(data, []byte(old), []byte(now), 1), 0o644)
			}
			return err
		}
	}
	at := func(do func(path string) error, name string) func(string) error {
		return func(dir string) error { return do(filepath.Join(dir, name)) }
	}
	for name, test := range map[string]struct {
		edit func(dir string) error
		code int
	}{
		"nothing":         {func(string) error { return nil }, 0},
		"manifest spaced": {replace(bake.DefaultManifest, "{", "{ \n "), 0},
		"byte":            {replace("skills/pdf/SKILL.md", "First", "first"), 1},
		"mode":            {at(func(path string) error { return os.Chmod(path, 0o755) }, "skills/pdf/SKILL.md"), 1},
		"added":           {at(func(path string) error { return os.WriteFile(path, nil, 0o644) }, "skills/pdf/more.md"), 1},
		"removed":         {at(os.Remove, "skills/pdf/fill.sh"), 1},
		"renamed":         {at(func(path string) error { return os.Rename(path, path+"2") }, "skills/pdf/fill.sh"), 1},
		"index":           {replace("skills/index.json", "PDF", "pdf"), 1},
		"generated code":  {replace("skills/skills.go", "FS", "Files"), 1},
		"lock":            {replace(bake.DefaultLock, "sha256-", "sha256-A"), 1},
		"lock removed":    {at(os.Remove, bake.DefaultLock), 1},
		"lock broken":     {replace(bake.DefaultLock, "{", "<<<<<<< HEAD\n{"), 1},
		"another ref":     {replace(bake.DefaultManifest, "v1", "main"), 1},
		"another source":  {replace(bake.DefaultManifest, "office", "work"), 1},
		"unknown type":    {replace(bake.DefaultManifest, `"git"`, `"svn"`), 2},
		"unknown field":   {replace(bake.DefaultManifest, `"ref"`, `"branch"`), 2},
		"hostile ref":     {replace(bake.DefaultManifest, `"v1"`, `"--upload-pack=touch x"`), 2},
		"no JSON":         {replace(bake.DefaultManifest, "}", ""), 2},
		"no manifest":     {at(os.Remove, bake.DefaultManifest), 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own := t.TempDir()
			if err := os.CopyFS(own, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			if err := test.edit(own); err != nil {
				t.Fatal(err)
			}
			args := []string{
				"sync", "--check", "--manifest", filepath.Join(own, bake.DefaultManifest), "--lock", filepath.Join(own, bake.DefaultLock), "--out", filepath.Join(own, bake.DefaultOut),
			}
			if code, out, complaints := helixSkills(own, args...); code != test.code {
				t.Errorf("exit code %d, want %d: %s%s", code, test.code, out, complaints)
			}
		})
	}
}

// A signal ends a sync, and leaves what was there.
func TestSkillsSyncInterrupted(t *testing.T) {
	t.Parallel()
	server := gitserver.Start(t)
	repo := server.Repository(t, "skills")
	repo.Git("tag", "v1", repo.Commit("main", officeSkills("First.")))
	dir, flags := syncDir(t, repo)
	fetching := make(chan struct{}, 8)
	server.Gate(func(_ http.ResponseWriter, req *http.Request) bool {
		fetching <- struct{}{}
		<-req.Context().Done()
		return false
	})
	p := startIn(t, dir, []string{"PATH=" + os.Getenv("PATH")}, append([]string{"skills", "sync"}, flags...)...)
	<-fetching
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-p.done
	if code := p.cmd.ProcessState.ExitCode(); code != exitTerminated {
		t.Errorf("exit code %d: %s", code, p.err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}
