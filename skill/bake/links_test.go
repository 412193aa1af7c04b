package bake

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/helixagents/helix/internal/gitserver"
	"github.com/helixagents/helix/internal/testshare"
)

// A project may come from somebody else, with links in it. A sync neither writes to where they
// lead, nor shows what is there.
func TestLinksInTheProject(t *testing.T) {
	t.Parallel()
	testshare.SkipUnless(t, 2, 4)
	server := gitserver.Start(t)
	repo := server.Repository(t, "skills")
	repo.Commit("main", pdf())
	const secret = "---\nname: pdf\ndescription: Secret\n---\n"
	for _, test := range []struct {
		link   string
		synced bool   // before
		want   string // the error; otherwise the link is gone
	}{
		{DefaultLock + ".next", false, ""},
		{DefaultLock + ".next", true, ""},
		{DefaultLock, false, "is not a lock of this program: it is not a regular file"},
		{DefaultOut, false, "is a symbolic link; name the directory itself with --out"},
		{".skills.helix-new", false, ""},
		{".skills.helix-swap", true, ""},
		{".skills.helix-old", false, ""},
		{".skills.helix-old", true, ""},
		{".skills.helix-copy", true, ""},
		{DefaultOut + "/pdf/SKILL.md", true, "pdf/SKILL.md; move them"},
		{DefaultOut + "/pdf", true, "has files or links that are not in "},
		{DefaultOut + "/index.json", true, "index.json; move them"},
		{DefaultOut + "/skills.go", true, "skills.go; move them"},
	} {
		for _, target := range []string{"file", "pdf", "none"} {
			p := projectOn(t, server)
			p.manifest(map[string]Source{"office": {Type: TypeGit, URL: repo.URL}})
			if test.synced {
				p.sync()
			}
			victim := &project{t: t, dir: t.TempDir()}
			victim.write("file", secret)
			victim.write("pdf/SKILL.md", secret)
			before := victim.snapshot()
			link := filepath.Join(p.dir, test.link)
			if err := os.RemoveAll(link); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(filepath.Join(victim.dir, target), link); err != nil {
				t.Fatal(err)
			}
			var said string
			report, err := Sync(t.Context(), p.cfg)
			switch info, gone := os.Lstat(link); {
			case test.want == "" && err != nil, test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("%s to %s: %v", test.link, target, err)
			case test.want == "" && gone == nil:
				t.Errorf("%s to %s is still there: %v", test.link, target, info.Mode())
			}
			if err != nil {
				said = err.Error()
			} else {
				for _, c := range report.Changes {
					said += c.Diff
				}
				if problems := p.check(); problems != "" {
					t.Errorf("%s to %s: %s", test.link, target, problems)
				}
			}
			if strings.Contains(said, "Secret") {
				t.Errorf("%s to %s: it shows %s", test.link, target, said)
			}
			if after := victim.snapshot(); after != before {
				t.Errorf("%s to %s: %s\nbecame\n%s", test.link, target, before, after)
			}
		}
	}
}

// A file that becomes a link while a sync runs is not read through it.
func TestTextThroughLink(t *testing.T) {
	t.Parallel()
	p := &project{t: t, dir: t.TempDir()}
	p.write("out/pdf/SKILL.md", "text")
	out := filepath.Join(p.dir, "out")
	d, err := readDisk(out)
	if err != nil {
		t.Fatal(err)
	}
	if got := d.text(out, "pdf/SKILL.md"); got != "text" {
		t.Errorf("%q", got)
	}
	p.write("secret", "secret")
	file := filepath.Join(out, "pdf", "SKILL.md")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../secret", file); err != nil {
		t.Fatal(err)
	}
	if got := d.text(out, "pdf/SKILL.md"); got != "" {
		t.Errorf("%q", got)
	}
}
