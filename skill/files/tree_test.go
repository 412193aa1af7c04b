package files_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/skill"
	"github.com/helixagents/helix/skill/files"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// write writes files below a new directory.
func write(t *testing.T, all map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range all {
		put(t, filepath.Join(dir, filepath.FromSlash(name)), text)
	}
	return dir
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	mode := os.FileMode(0o600)
	if strings.HasSuffix(path, ".sh") {
		mode = 0o700
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func text(name, description, body string) string {
	return "---\nname: " + name + "\ndescription: " + description + "\n---\n" + body + "\n"
}

func names(t *testing.T, p skill.Provider) string {
	t.Helper()
	list, err := p.List(t.Context(), skill.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range list {
		out = append(out, m.Name)
	}
	return strings.Join(out, " ")
}

// problems returns what a provider reports, with paths relative to dir.
func problems(t *testing.T, p skill.Provider, dir string) []string {
	t.Helper()
	var out []string
	for _, one := range skill.Problems(t.Context(), p, skill.Scope{}) {
		out = append(out, strings.ReplaceAll(one.Error(), filepath.ToSlash(dir)+"/", ""))
	}
	return out
}

func load(t *testing.T, p skill.Provider, name string) *skill.Skill {
	t.Helper()
	s, err := p.Load(t.Context(), skill.Scope{}, name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func content(t *testing.T, p skill.Provider, name, path string) (string, error) {
	t.Helper()
	f, err := p.Open(t.Context(), skill.Scope{}, name, path)
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(f)
	return string(data), errors.Join(err, f.Close())
}

func TestDir(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{
		"pdf/SKILL.md":                text("pdf", "Reads PDFs.", "Read it."),
		"pdf/references/a.md":         "A",
		"pdf/scripts/run.sh":          "#!/bin/sh",
		"pdf/.git/config":             "no",
		"pdf/sub/SKILL.md":            text("sub", "Belongs to pdf.", ""),
		"team/deep/csv/SKILL.md":      text("csv", "Reads CSV.", "Count it."),
		".git/hooks/SKILL.md":         text("hook", "Not read.", ""),
		"node_modules/x/SKILL.md":     text("module", "Not read.", ""),
		"README.md":                   "not a skill",
		"1/2/3/4/5/six/SKILL.md":      text("six", "Just within.", ""),
		"1/2/3/4/5/6/seven/SKILL.md":  text("seven", "Too deep.", ""),
		"broken/SKILL.md":             "---\nname: broken\n---\n",
		"lower/skill.md":              text("lower", "Not its name.", ""),
		"other/SKILL.md":              text("another", "Another name.", ""),
		"zz-again/SKILL.md":           text("pdf", "Hidden.", ""),
		"empty/nothing/here/file.txt": "",
	})
	p := files.Dir(dir)
	if got := names(t, p); got != "another csv pdf six" {
		t.Errorf("%s", got)
	}
	want := []string{
		"broken/SKILL.md:1:1: description is missing; it says what the skill does and when to use it",
		"other/SKILL.md:2:7: the name another is not that of the directory, other",
		"zz-again/SKILL.md:2:7: the name pdf is not that of the directory, zz-again",
		"zz-again/SKILL.md: the skill pdf is hidden by another one of its name (in " + filepath.ToSlash(dir) + "/pdf)",
	}
	if got := problems(t, p, dir+"/none"); len(got) != len(want) {
		t.Errorf("%s", strings.Join(got, "\n"))
	} else {
		for i := range got {
			if !strings.HasSuffix(got[i], want[i]) {
				t.Errorf("%s", got[i])
			}
		}
	}
	s := load(t, p, "pdf")
	if s.Body != "Read it." || fmt.Sprint(s.Files) != "[{references/a.md 1 false []} {scripts/run.sh 9 true []} {sub/SKILL.md 48 false []}]" {
		t.Errorf("%+v", s)
	}
	if got, err := content(t, p, "pdf", "references/a.md"); got != "A" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for _, path := range []string{"none.md", ".git/config", "references"} {
		if got, err := content(t, p, "pdf", path); err == nil {
			t.Errorf("%s: %q", path, got)
		}
	}
	for _, path := range []string{"../other/SKILL.md", "/etc/passwd", "references/../../other/SKILL.md", ""} {
		if _, err := content(t, p, "pdf", path); !errors.Is(err, session.ErrInvalid) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := p.Load(t.Context(), skill.Scope{}, "seven"); !errors.Is(err, session.ErrNotFound) {
		t.Error(err)
	}
	if _, err := content(t, p, "seven", "SKILL.md"); !errors.Is(err, session.ErrNotFound) {
		t.Error(err)
	}
}

func TestRoots(t *testing.T) {
	t.Parallel()
	first := write(t, map[string]string{"b/SKILL.md": text("b", "First.", "1")})
	second := write(t, map[string]string{"b/SKILL.md": text("b", "Second.", "2"), "a/SKILL.md": text("a", "A.", "A")})
	p := files.Dir(first, second)
	if got := names(t, p); got != "a b" {
		t.Error(got)
	}
	if got := load(t, p, "b").Body; got != "1" {
		t.Error(got)
	}
	if got := problems(t, p, second); len(got) != 1 || !strings.Contains(got[0], "b/SKILL.md: the skill b is hidden by another one of its name (in "+filepath.ToSlash(first)) {
		t.Errorf("%q", got)
	}
	for _, one := range skill.Problems(t.Context(), p, skill.Scope{}) {
		if one.Refused || one.Public() != "b/SKILL.md: the skill b is hidden by another one of its name" {
			t.Errorf("refused: %v, %s", one.Refused, one.Public())
		}
	}
	one := files.Dir(filepath.Join(second, "a"))
	if got := names(t, one); got != "a" {
		t.Errorf("a root that is a skill has %q", got)
	}
	gone := files.Dir(first, filepath.Join(second, "none"))
	if _, err := gone.List(t.Context(), skill.Scope{}); !errors.Is(err, session.ErrUnavailable) || !strings.Contains(err.Error(), "none") {
		t.Errorf("a root that does not exist: %v", err)
	}
	if got := skill.Problems(t.Context(), gone, skill.Scope{}); len(got) != 1 || got[0].Public() != "the skills cannot be listed" || !strings.Contains(got[0].Error(), "none") {
		t.Errorf("a root that does not exist: %v", got)
	}
}

func TestFS(t *testing.T) {
	t.Parallel()
	p := files.FS(fstest.MapFS{
		"pdf/SKILL.md": {Data: []byte(text("pdf", "Reads PDFs.", "Read it."))}, "pdf/a.md": {Data: []byte("A")}, "bad/SKILL.md": {Data: []byte("x")},
	})
	if got := names(t, p); got != "pdf" {
		t.Error(got)
	}
	if got, err := content(t, p, "pdf", "a.md"); got != "A" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if got := problems(t, p, "."); len(got) != 1 || !strings.HasPrefix(got[0], "bad/SKILL.md:1:1: ") {
		t.Errorf("%q", got)
	}
}

// A file that a link leads to is read only if it is one of the same skill.
func TestLinks(t *testing.T) {
	t.Parallel()
	outside := write(t, map[string]string{"secret.txt": "secret", "stranger/SKILL.md": text("stranger", "Not ours.", "")})
	dir := write(t, map[string]string{
		"pdf/SKILL.md": text("pdf", "Reads PDFs.", ""), "pdf/shared/a.md": "shared", "pdf/.git/config": "password", "pdf/.GIT/upper": "password",
		"internal/SKILL.md": text("internal", "Not for all.", ""), "internal/secret.md": "secret", ".git/config": "password",
	})
	for name, target := range map[string]string{
		"pdf/out.txt":          filepath.Join(outside, "secret.txt"),
		"pdf/up.txt":           "../../" + filepath.Base(outside) + "/secret.txt",
		"pdf/in.md":            "shared/a.md",
		"pdf/in-2.md":          "shared/../in.md",
		"pdf/dir":              "shared",
		"pdf/loop":             "loop",
		"pdf/other.md":         "../internal/secret.md",
		"pdf/back.md":          "../pdf/shared/a.md",
		"pdf/git.md":           "../.git/config",
		"pdf/own-git.md":       ".git/config",
		"pdf/own-git-2.md":     "own-git.md",
		"pdf/hidden":           ".git",
		"pdf/upper.md":         ".GIT/upper",
		"stranger":             filepath.Join(outside, "stranger"),
		"evil/SKILL.md":        filepath.Join(outside, "stranger", "SKILL.md"),
		"thief/SKILL.md":       "../internal/SKILL.md",
		"again":                "pdf",
		"evil-etc.txt":         "/etc/passwd",
		"pdf/shared/README.md": "a.md",
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, path); err != nil {
			t.Skipf("SKIPPED, this system makes no symbolic links: %v", err)
		}
	}
	for name, p := range map[string]*files.Tree{"Dir": files.Dir(dir), "FS": files.FS(os.DirFS(dir))} {
		if got := names(t, p); got != "internal pdf" {
			t.Errorf("%s: %s", name, got)
		}
		s := load(t, p, "pdf")
		if got := fmt.Sprint(s.Files); got != "[{in-2.md 6 false []} {in.md 6 false []} {shared/README.md 6 false []} {shared/a.md 6 false []}]" {
			t.Errorf("%s: %+v", name, got)
		}
		for _, path := range []string{"in.md", "in-2.md", "dir/a.md"} {
			if got, err := content(t, p, "pdf", path); got != "shared" || err != nil {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		}
		for _, path := range []string{
			"out.txt", "up.txt", "loop", "dir", "other.md", "back.md", "git.md", "own-git.md", "own-git-2.md", "hidden/config", "upper.md", ".GIT/upper", ".git/config",
		} {
			if got, err := content(t, p, "pdf", path); err == nil {
				t.Errorf("%s: %s: %q", name, path, got)
			}
		}
		told := strings.Join(problems(t, p, dir), "\n")
		for _, want := range []string{
			"pdf/out.txt: is left out: it leads out", "pdf/other.md: is left out: it leads out", "pdf/dir: is left out", "pdf/loop: is left out",
			"pdf: has further files that are left out", "evil/SKILL.md: cannot be read: it leads out", "thief/SKILL.md: cannot be read: it leads out",
			"again: is a link to a directory",
		} {
			if !strings.Contains(told, want) {
				t.Errorf("%s: no %q in\n%s", name, want, told)
			}
		}
	}
	if told := strings.Join(problems(t, files.Dir(dir), dir), "\n"); !strings.Contains(told, "stranger: is a link that cannot be followed") {
		t.Errorf("%s", told)
	}
}

func TestManyDirectories(t *testing.T) {
	t.Parallel()
	fsys := fstest.MapFS{}
	for i := range 3000 {
		name := fmt.Sprintf("skill-%04d", i)
		fsys[name+"/SKILL.md"] = &fstest.MapFile{Data: []byte(text(name, "One of many.", ""))}
	}
	p := files.FS(fsys)
	list, err := p.List(t.Context(), skill.Scope{})
	if err != nil || len(list) != files.MaxDirectories-1 { // the root counts
		t.Errorf("%d skills, %v", len(list), err)
	}
	if got := problems(t, p, "none"); len(got) != 1 || got[0] != ".: has 3001 directories or more; only the first 2000 were searched for skills" {
		t.Errorf("%q", got)
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	many, large, odd := fstest.MapFS{}, fstest.MapFS{}, fstest.MapFS{}
	odd["odd/SKILL.md"] = &fstest.MapFile{Data: []byte(text("odd", "Odd files.", ""))}
	for i := range 1001 {
		for j := range 4 {
			odd[fmt.Sprintf("odd/%d/a\\b%d", j, i)] = &fstest.MapFile{} // files that are left out count, too
		}
	}
	many["many/SKILL.md"] = &fstest.MapFile{Data: []byte(text("many", "Many files.", ""))}
	for i := range skill.MaxFiles + 1 {
		many[fmt.Sprintf("many/f%05d", i)] = &fstest.MapFile{}
	}
	large["large/SKILL.md"] = &fstest.MapFile{Data: []byte(text("large", "Large files.", ""))}
	for i := range 5 {
		large[fmt.Sprintf("large/f%d", i)] = &fstest.MapFile{Data: make([]byte, 8<<20)}
	}
	wide := fstest.MapFS{"ok/SKILL.md": {Data: []byte(text("ok", "Fine.", ""))}}
	for i := range files.MaxEntries + 1 {
		wide[fmt.Sprintf("wide/f%05d", i)] = &fstest.MapFile{}
	}
	body := fstest.MapFS{"body/SKILL.md": {Data: []byte(text("body", "Long.", strings.Repeat("x", 1<<20)))}}
	for want, fsys := range map[string]fstest.MapFS{
		"odd: has more than 4000 files and directories": odd, "many: has more than 2000 files": many, "large: has more than 33554432 bytes": large, "wide: cannot be read: it has more than 10000 entries": wide,
		"body/SKILL.md: cannot be read: it has 1048615 bytes; at most 524288": body,
	} {
		if got := problems(t, files.FS(fsys), "none"); len(got) != 1 || !strings.HasPrefix(got[0], want) {
			t.Errorf("%q", got)
		}
	}
}

// An edit that keeps the size and the time of a file is seen: at once by Load, and by List
// when the last scan is old enough.
func TestEdit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := write(t, map[string]string{"pdf/SKILL.md": text("pdf", "Reads PDFs.", "Read it."), "pdf/a.md": "1"})
		p := files.Dir(dir)
		digest := func() string {
			list, err := p.List(t.Context(), skill.Scope{})
			if err != nil || len(list) != 1 {
				t.Fatalf("%v, %v", list, err)
			}
			return list[0].Digest
		}
		before := digest()
		path := filepath.Join(dir, "pdf", "a.md")
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		put(t, path, "2")
		if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
			t.Fatal(err)
		}
		loaded := load(t, p, "pdf").Digest
		if loaded == before {
			t.Error("Load does not see the edit")
		}
		if digest() != before {
			t.Error("the directory was scanned twice within two seconds")
		}
		time.Sleep(files.ScanInterval)
		if got := digest(); got != loaded {
			t.Errorf("List does not see the edit: %s, %s", got, loaded)
		}
		put(t, filepath.Join(dir, "pdf", "SKILL.md"), text("renamed", "Another name.", "New."))
		if _, err := p.Load(t.Context(), skill.Scope{}, "pdf"); !errors.Is(err, session.ErrNotFound) {
			t.Errorf("a skill that was renamed: %v", err)
		}
		if got := load(t, p, "renamed").Body; got != "New." {
			t.Error(got)
		}
		put(t, filepath.Join(dir, "pdf", "SKILL.md"), "broken")
		if _, err := p.Load(t.Context(), skill.Scope{}, "renamed"); err == nil {
			t.Error("a skill that was broken is loaded")
		}
		put(t, filepath.Join(dir, "new", "SKILL.md"), text("new", "New.", ""))
		time.Sleep(files.ScanInterval)
		if got := names(t, p); got != "new" {
			t.Error(got)
		}
	})
}

func TestCancelled(t *testing.T) {
	t.Parallel()
	p := files.Dir(write(t, map[string]string{"pdf/SKILL.md": text("pdf", "Reads PDFs.", "")}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.List(ctx, skill.Scope{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got := names(t, p); got != "pdf" {
		t.Errorf("after a scan that was cut off: %q", got)
	}
}

// slow is a file system that takes its time to open the root, and counts how often it is
// opened.
type slow struct {
	fstest.MapFS
	takes time.Duration
	opens atomic.Int64
}

func (s *slow) Open(name string) (fs.File, error) {
	if name == "." {
		s.opens.Add(1)
		time.Sleep(s.takes) // waits: in the bubble of TestSlowScan
	}
	return s.MapFS.Open(name)
}

// A scan that takes longer than a turn waits is there for the next turn, and what took long
// to find is used longer.
func TestSlowScan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fsys := &slow{MapFS: fstest.MapFS{"pdf/SKILL.md": {Data: []byte(text("pdf", "Reads PDFs.", ""))}}, takes: 12 * time.Second}
		p := files.FS(fsys)
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			if _, err := p.List(ctx, skill.Scope{}); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			cancel()
		}
		if got := names(t, p); got != "pdf" || fsys.opens.Load() != 1 {
			t.Errorf("%q after %d scans", got, fsys.opens.Load())
		}
		time.Sleep(time.Minute)
		if names(t, p); fsys.opens.Load() != 1 {
			t.Errorf("%d scans in a minute", fsys.opens.Load())
		}
		time.Sleep(time.Minute)
		fsys.MapFS["csv/SKILL.md"] = &fstest.MapFile{Data: []byte(text("csv", "Reads CSV.", ""))}
		if got := names(t, p); got != "csv pdf" || fsys.opens.Load() != 2 {
			t.Errorf("%q after %d scans", got, fsys.opens.Load())
		}
	})
}

// broken is a file system that panics.
type broken struct{ fs.FS }

func (broken) Open(string) (fs.File, error) { panic("boom") }

func TestBrokenFS(t *testing.T) {
	t.Parallel()
	if _, err := files.FS(broken{}).List(t.Context(), skill.Scope{}); err == nil || !strings.Contains(err.Error(), "boom") {
		t.Error(err)
	}
}

// Who asks for skills that do not exist does not make the directories be scanned.
func TestUnknownNames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fsys := &slow{MapFS: fstest.MapFS{"pdf/SKILL.md": {Data: []byte(text("pdf", "Reads PDFs.", ""))}}}
		p := files.FS(fsys)
		for range 10 {
			if _, err := p.Load(t.Context(), skill.Scope{}, "none"); !errors.Is(err, session.ErrNotFound) {
				t.Error(err)
			}
		}
		if n := fsys.opens.Load(); n != 1 {
			t.Errorf("%d scans", n)
		}
		time.Sleep(files.ScanInterval)
		fsys.MapFS["none/SKILL.md"] = &fstest.MapFile{Data: []byte(text("none", "New.", ""))}
		if load(t, p, "none"); fsys.opens.Load() != 2 {
			t.Errorf("%d scans", fsys.opens.Load())
		}
	})
}
