package bake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/helixagents/helix/internal/gitserver"
	"github.com/helixagents/helix/skill"
)

func TestMain(m *testing.M) {
	// The configuration of whoever runs the tests must not matter.
	for name, value := range map[string]string{"GIT_CONFIG_GLOBAL": os.DevNull, "GIT_CONFIG_NOSYSTEM": "1"} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	if point := os.Getenv(killedAt); point != "" {
		syncAndDie(point)
	}
	goleak.VerifyTestMain(m)
}

// project is a directory with a manifest, beside a server with repositories.
type project struct {
	t      *testing.T
	server *gitserver.Server
	dir    string
	cfg    Config
}

func setup(t *testing.T) *project {
	t.Helper()
	dir := t.TempDir()
	return &project{t, gitserver.Start(t), dir, Config{
		Manifest: filepath.Join(dir, DefaultManifest), Lock: filepath.Join(dir, DefaultLock), Out: filepath.Join(dir, DefaultOut),
	}}
}

// manifest writes the manifest.
func (p *project) manifest(entries map[string]Source) {
	p.t.Helper()
	data, err := json.MarshalIndent(map[string]any{"skills": entries}, "", "  ")
	if err != nil {
		p.t.Fatal(err)
	}
	p.write(DefaultManifest, string(data))
}

// write writes a file of the project.
func (p *project) write(name, content string) {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

func (p *project) read(name string) string {
	p.t.Helper()
	data, err := os.ReadFile(filepath.Join(p.dir, name))
	if err != nil {
		p.t.Fatal(err)
	}
	return string(data)
}

func (p *project) sync() *Report {
	p.t.Helper()
	report, err := Sync(p.t.Context(), p.cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	return report
}

// refused syncs and returns the error, which must have changed nothing.
func (p *project) refused() string {
	p.t.Helper()
	before := p.snapshot()
	_, err := Sync(p.t.Context(), p.cfg)
	if err == nil {
		p.t.Fatal("the sync was not refused")
	}
	if after := p.snapshot(); after != before {
		p.t.Errorf("a refused sync changed\n%s\nto\n%s", before, after)
	}
	return err.Error()
}

// check returns the problems that a check finds, one per line.
func (p *project) check() string {
	p.t.Helper()
	problems, err := Check(p.cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	return p.shown(problems)
}

func (p *project) checkRemote() string {
	p.t.Helper()
	problems, err := CheckRemote(p.t.Context(), p.cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	return p.shown(problems)
}

func (p *project) shown(problems []*skill.Problem) string {
	var lines []string
	for _, problem := range problems {
		lines = append(lines, strings.ReplaceAll(problem.Error(), p.dir+"/", ""))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// lock returns the lock of the project.
func (p *project) lock() *Lock {
	p.t.Helper()
	l, _, err := loadLock(p.cfg.Lock, "lock")
	if err != nil {
		p.t.Fatal(err)
	}
	return l
}

// snapshot lists the files of the project with their modes and contents.
func (p *project) snapshot() string {
	p.t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(p.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(p.dir, path)
		if e.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(path)
			fmt.Fprintf(&out, "link %s %s\n", rel, target)
			return err
		}
		data, err := os.ReadFile(path)
		fmt.Fprintf(&out, "%v %s %q\n", info.Mode().Perm()&0o111 != 0, rel, data)
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return out.String()
}

// skillText is a SKILL.md.
func skillText(name, description string, body ...string) gitserver.File {
	return gitserver.Text("---\nname: " + name + "\ndescription: " + description + "\n---\n\n" + strings.Join(body, "\n") + "\n")
}

// pdf is a repository with a skill that has all kinds of files, and another skill.
func pdf() gitserver.Files {
	return gitserver.Files{
		"README.md":                      gitserver.Text("# Skills\n"),
		"skills/README.md":               gitserver.Text("These are skills.\n"),
		"skills/shared/notes.md":         gitserver.Text("Not a skill.\n"),
		"skills/pdf/SKILL.md":            skillText("pdf", "Work with PDF files", "# PDF", "Read references/forms.md."),
		"skills/pdf/references/forms.md": gitserver.Text("Forms.\n"),
		"skills/pdf/scripts/fill.sh":     gitserver.Script("#!/bin/sh\necho fill\n"),
		"skills/pdf/assets/logo.bin":     gitserver.Text("\x00\x01\xff\r\n"),
		"skills/pdf/assets/empty":        gitserver.Text(""),
		"skills/pdf/.hidden":             gitserver.Text("hidden\n"),
		"skills/pdf/_draft.md":           gitserver.Text("draft\n"),
		"skills/pdf/assets/größe 1.txt":  gitserver.Text("1\n"),
		"skills/docx/SKILL.md":           skillText("docx", "Work with Word files", "# Word"),
	}
}

// with returns the files with others added or replaced; one without a mode and content
// removes a file.
func with(files gitserver.Files, more gitserver.Files) gitserver.Files {
	for path, f := range more {
		files[path] = f
		if f == (gitserver.File{}) {
			delete(files, path)
		}
	}
	return files
}

// contains fails unless text has every part.
func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in:\n%s", part, text)
		}
	}
}

// invalid returns the problems of an [InputError].
func invalid(t *testing.T, err error) string {
	t.Helper()
	problem, ok := errors.AsType[*InputError](err)
	if !ok {
		t.Fatalf("want an InputError, got %v", err)
	}
	return problem.Error()
}

// canceled returns a context that has ended.
func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
