package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const first = "# Changelog\n\nIntroduction.\n\n## Unreleased\n\nThe first one.\n\n### Added\n\n- **A thing** that does something.\n"

var day = time.Date(2026, 11, 19, 23, 30, 0, 0, time.UTC)

// TestMain keeps git from the settings of whoever runs the tests.
func TestMain(m *testing.M) {
	for _, name := range []string{"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"} {
		if err := os.Setenv(name, os.DevNull); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// repo is a repository with one commit.
type repo struct {
	t   *testing.T
	dir string
}

func newRepo(t *testing.T) *repo {
	t.Helper()
	r := &repo{t, t.TempDir()}
	r.git("init", "-q", "-b", branch)
	r.git("config", "user.name", "Tester")
	r.git("config", "user.email", "tester@example.com")
	r.commit(first)
	return r
}

func (r *repo) git(args ...string) string {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "git", args...)
	cmd.Dir = r.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func (r *repo) put(text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, changelog), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *repo) commit(text string) {
	r.t.Helper()
	r.put(text)
	r.git("add", "-A")
	r.git("commit", "-q", "-m", "a change")
}

func (r *repo) text() string {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, changelog))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}

func TestRelease(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	var out strings.Builder
	if err := release(t.Context(), &out, r.dir, "v0.1.0", day); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "git push origin main v0.1.0\n") {
		t.Errorf("it says\n%s", out.String())
	}
	want := "# Changelog\n\nIntroduction.\n\n## Unreleased\n\n## v0.1.0 - 2026-11-19\n\nThe first one.\n\n### Added\n\n- **A thing** that does something.\n"
	if got := r.text(); got != want {
		t.Errorf("the changelog is\n%s", got)
	}
	if got := r.git("for-each-ref", "--format=%(objecttype) %(*subject)%(contents)", "refs/tags/v0.1.0"); !strings.HasPrefix(got, "tag Release v0.1.0Helix v0.1.0\n\nThe first one.\n\n### Added\n") {
		t.Errorf("the tag is\n%s", got)
	}
	if got := r.git("status", "--porcelain"); got != "" {
		t.Errorf("left behind: %s", got)
	}

	r.commit(strings.Replace(want, unreleased, unreleased+"\n### Fixed\n\n- Another thing.\n", 1))
	if err := release(t.Context(), io.Discard, r.dir, "v0.1.1", day); err != nil {
		t.Fatal(err)
	}
	if got := r.text(); !strings.Contains(got, "## Unreleased\n\n## v0.1.1 - 2026-11-19\n\n### Fixed\n\n- Another thing.\n\n## v0.1.0 - 2026-11-19\n\nThe first one.\n") {
		t.Errorf("the changelog is\n%s", got)
	}
}

func TestNoRelease(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		prepare func(r *repo)
		version string
		want    string
	}{
		"no version":                {func(*repo) {}, "0.1.0", "is not a version such as v0.1.0"},
		"a pre-release":             {func(*repo) {}, "v0.1.0-rc1", "is not a version"},
		"an option":                 {func(*repo) {}, "--delete", "is not a version"},
		"an earlier version":        {func(r *repo) { r.git("tag", "v0.10.0") }, "v0.9.0", "v0.9.0 is not after v0.10.0"},
		"the same version":          {func(r *repo) { r.git("tag", "v0.1.0") }, "v0.1.0", "is not after"},
		"another branch":            {func(r *repo) { r.git("checkout", "-q", "-b", "mine") }, "v0.1.0", "but mine is checked out"},
		"uncommitted changes":       {func(r *repo) { r.put(first + "\n") }, "v0.1.0", "not committed:\nM CHANGELOG.md"},
		"nothing to tell":           {func(r *repo) { r.commit("# Changelog\n\n## Unreleased\n\n## v0.0.1\n\nThings.\n") }, "v0.1.0", "says of nothing"},
		"no section":                {func(r *repo) { r.commit("# Changelog\n") }, "v0.1.0", "has no section"},
		"a tag that cannot be made": {func(r *repo) { r.git("config", "tag.gpgSign", "true"); r.git("config", "gpg.program", "/none") }, "v0.1.0", "git tag"},
		"a commit that is refused": {func(r *repo) {
			if err := os.WriteFile(filepath.Join(r.dir, ".git", "hooks", "pre-commit"), []byte("#!/bin/sh\nexit 1\n"), 0o700); err != nil {
				r.t.Fatal(err)
			}
		}, "v0.1.0", "git commit"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := newRepo(t)
			c.prepare(r)
			before := r.git("log", "--format=%H") + r.git("tag") + r.text()
			if err := release(t.Context(), io.Discard, r.dir, c.version, day); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
			if after := r.git("log", "--format=%H") + r.git("tag") + r.text(); after != before {
				t.Errorf("it changed the repository:\n%s", after)
			}
		})
	}
}
