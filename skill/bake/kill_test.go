package bake

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/helixagents/helix/internal/gitserver"
	"github.com/helixagents/helix/internal/testshare"
)

// Variables of the process that kills itself in the middle of a sync.
const (
	killedAt  = "HELIX_TEST_KILLED_AT"
	killedIn  = "HELIX_TEST_KILLED_IN"
	swapFails = "HELIX_TEST_SWAP_FAILS"
	completed = "the sync ended before the point"
)

// swapErrors are what file systems say to an exchange of directories.
var swapErrors = map[string]error{"": nil, "unsupported": errors.ErrUnsupported, "immovable": syscall.EXDEV}

// syncAndDie syncs the project in the directory, and kills this process at a point.
func syncAndDie(point string) {
	dir := os.Getenv(killedIn)
	cfg := Config{Manifest: filepath.Join(dir, DefaultManifest), Lock: filepath.Join(dir, DefaultLock), Out: filepath.Join(dir, DefaultOut)}
	p, err := cfg.places()
	if err != nil {
		panic(err)
	}
	s := &syncer{places: p, exchange: exchange, reached: func(at string) {
		if at == point {
			self, err := os.FindProcess(os.Getpid())
			if err == nil {
				err = self.Kill()
			}
			if err != nil {
				panic(err)
			}
			select {}
		}
	}}
	if err := swapErrors[os.Getenv(swapFails)]; err != nil {
		s.exchange = func(string, string) error { return err }
	}
	if _, err := s.sync(context.Background()); err != nil {
		panic(err)
	}
	_, _ = os.Stderr.WriteString(completed)
	os.Exit(3)
}

// A sync that is killed leaves the old skills or the new ones, never a mixture, and the next
// sync completes the work, whatever was left. A commit does half of the points.
func TestKilled(t *testing.T) {
	t.Parallel()
	has := testshare.Has(t, 2)
	for i, test := range []struct {
		point, swap string
	}{
		{"built", ""},
		{"next lock written", ""},
		{"complete", ""},
		{"replaced", ""},
		{"removed", ""},
		{"locked", ""},
		{"complete", "unsupported"},
		{"moved away", "unsupported"},
		{"replaced", "unsupported"},
		{"removed", "unsupported"},
		{"locked", "unsupported"},
		{"complete", "immovable"},
		{"copying", "immovable"},
		{"emptied", "immovable"},
		{"replaced", "immovable"},
		{"removed", "immovable"},
		{"locked", "immovable"},
	} {
		if !has(i) {
			continue
		}
		name := strings.TrimSuffix(strings.ReplaceAll(test.point, " ", "-")+"-"+test.swap, "-")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := setup(t)
			repo := p.server.Repository(t, "skills")
			repo.Commit("main", pdf())
			p.manifest(map[string]Source{"office": {Type: TypeGit, URL: repo.URL}})
			p.sync()
			before := directory(t, p.cfg.Out)
			repo.Commit("main", with(pdf(), gitserver.Files{
				"skills/pdf/SKILL.md":  skillText("pdf", "Changed"),
				"skills/docx/SKILL.md": {},
				"skills/xlsx/SKILL.md": skillText("xlsx", "Work with tables"),
			}))
			killSync(t, p, test.point, test.swap)
			now := directory(t, p.cfg.Out)
			missing := now == ""
			if missing != (test.point == "moved away" || test.point == "emptied") {
				t.Fatalf("the directory is missing or empty: %v", missing)
			}
			isOld := now == before
			if problems := p.check(); (problems == "") != (isOld || test.point == "locked") {
				t.Errorf("old: %v, problems: %s", isOld, problems)
			}
			var restored string
			if missing { // the next sync brings the old or the new one back, also if it cannot do more
				p.server.Gate(func(w http.ResponseWriter, _ *http.Request) bool {
					w.WriteHeader(http.StatusServiceUnavailable)
					return false
				})
				if _, err := Sync(t.Context(), p.cfg); err == nil {
					t.Error("a sync without a server did not fail")
				}
				restored = directory(t, p.cfg.Out)
				p.server.Gate(nil)
			}
			p.sync()
			if problems := p.check(); problems != "" {
				t.Error(problems)
			}
			after := directory(t, p.cfg.Out)
			if missing && (restored != before || test.point == "emptied") && restored != after {
				t.Errorf("the next sync restored\n%s\nwant\n%s\nor\n%s", restored, before, after)
			}
			if !isOld && !missing && now != after {
				t.Errorf("the killed sync left\n%s\nwant\n%s\nor\n%s", now, before, after)
			}
			left, err := os.ReadDir(p.dir)
			if err != nil || len(left) != 3 {
				t.Errorf("the project has %v, %v", left, err)
			}
		})
	}
}

// A file that somebody adds while a sync replaces the directory is not removed.
func TestAddedWhileReplacing(t *testing.T) {
	t.Parallel()
	p := setup(t)
	repo := p.server.Repository(t, "skills")
	repo.Commit("main", pdf())
	p.manifest(map[string]Source{"office": {Type: TypeGit, URL: repo.URL}})
	p.sync()
	repo.Commit("main", with(pdf(), gitserver.Files{"skills/pdf/SKILL.md": skillText("pdf", "Changed")}))
	places, err := p.cfg.places()
	if err != nil {
		t.Fatal(err)
	}
	s := &syncer{places: places, exchange: exchange, reached: func(at string) {
		if at == "complete" {
			p.write("skills/pdf/mine.md", "mine")
		}
	}}
	_, err = s.sync(t.Context())
	if err == nil || !strings.Contains(err.Error(), "pdf/mine.md") {
		t.Fatalf("%v", err)
	}
	if content, err := os.ReadFile(filepath.Join(s.beside(swapping), "pdf", "mine.md")); err != nil || string(content) != "mine" {
		t.Errorf("%q, %v", content, err)
	}
	if problems := p.check(); problems != "" { // the sync itself is complete
		t.Error(problems)
	}
}

// A directory that cannot be moved is filled with the new skills; files of others stay.
func TestImmovable(t *testing.T) {
	t.Parallel()
	p := setup(t)
	repo := p.server.Repository(t, "skills")
	repo.Commit("main", pdf())
	p.manifest(map[string]Source{"office": {Type: TypeGit, URL: repo.URL}})
	p.sync()
	repo.Commit("main", with(pdf(), gitserver.Files{"skills/pdf/SKILL.md": skillText("pdf", "Changed"), "skills/docx/SKILL.md": {}}))
	places, err := p.cfg.places()
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(p.cfg.Out)
	if err != nil {
		t.Fatal(err)
	}
	add := true
	s := &syncer{places: places, exchange: func(string, string) error { return syscall.EXDEV }, reached: func(at string) {
		if at == "copying" && add {
			p.write("skills/docx/mine.md", "mine")
		}
	}}
	for range 2 { // the second tries to complete the first
		_, err = s.sync(t.Context())
		if err == nil || !strings.Contains(err.Error(), "docx/mine.md; move them") || p.read("skills/docx/mine.md") != "mine" {
			t.Fatalf("%v", err)
		}
		contains(t, p.read("skills/docx/SKILL.md"), "name: docx") // nothing is removed
	}
	if err := os.Remove(filepath.Join(p.cfg.Out, "docx", "mine.md")); err != nil {
		t.Fatal(err)
	}
	add = false
	for _, text := range []string{"Changed", "Again"} {
		repo.Commit("main", gitserver.Files{"skills/pdf/SKILL.md": skillText("pdf", text), "skills/pdf/fill.sh": gitserver.Script("x")})
		if _, err := s.sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		contains(t, p.read("skills/pdf/SKILL.md"), text)
		if problems := p.check(); problems != "" {
			t.Error(problems)
		}
		if left, err := os.ReadDir(p.dir); err != nil || len(left) != 3 {
			t.Errorf("the project has %v, %v", left, err)
		}
	}
	if after, err := os.Stat(p.cfg.Out); err != nil || !os.SameFile(before, after) {
		t.Errorf("the directory is another one: %v", err)
	}
}

// A replacement that fails leaves what was there, and nothing beside it.
func TestReplacementFails(t *testing.T) {
	t.Parallel()
	p := setup(t)
	repo := p.server.Repository(t, "skills")
	repo.Commit("main", pdf())
	p.manifest(map[string]Source{"office": {Type: TypeGit, URL: repo.URL}})
	p.sync()
	before := p.snapshot()
	repo.Commit("main", with(pdf(), gitserver.Files{"skills/pdf/SKILL.md": skillText("pdf", "Changed")}))
	places, err := p.cfg.places()
	if err != nil {
		t.Fatal(err)
	}
	for _, refusal := range []error{syscall.EPERM, errors.ErrUnsupported} {
		s := &syncer{places: places, exchange: func(string, string) error { return refusal }}
		s.reached = func(at string) {
			if at == "moved away" { // the second of two steps fails
				if err := os.RemoveAll(s.beside(swapping)); err != nil {
					t.Error(err)
				}
			}
		}
		if _, err := s.sync(t.Context()); err == nil || !strings.Contains(err.Error(), "replace ") {
			t.Errorf("%v", err)
		}
		if after := p.snapshot(); after != before {
			t.Errorf("%v: got\n%s\nwant\n%s", refusal, after, before)
		}
	}
}

func killSync(t *testing.T, p *project, point, swap string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), killedAt+"="+point, killedIn+"="+p.dir, swapFails+"="+swap, "TMPDIR="+t.TempDir())
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	err = cmd.Run()
	killed := -1 // not an exit, but a signal
	if runtime.GOOS == "windows" {
		killed = 1
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != killed {
		t.Fatalf("%v\n%s", err, complaints.Bytes())
	}
}

// directory lists the files of a directory with their contents; it is empty if there is no
// directory.
func directory(t *testing.T, dir string) string {
	t.Helper()
	if !exists(dir) {
		return ""
	}
	return (&project{t: t, dir: dir}).snapshot()
}
