package skill_test

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/skill"
)

// bake writes skills as `helix skills sync` does.
func bake(t *testing.T) fstest.MapFS {
	t.Helper()
	fsys := fstest.MapFS{}
	var index skill.Index
	for name, files := range map[string]map[string]string{
		"pdf": {"SKILL.md": "---\r\nname: pdf\r\n---\r\n\r\nRead it.\r\n", "scripts/run.sh": "#!/bin/sh\n"},
		"csv": {"SKILL.md": "---\nname: csv\n---\nCount it.\n"},
	} {
		one := skill.Indexed{Metadata: skill.Metadata{Name: name, Description: "About " + name + "."}}
		for path, text := range files {
			fsys[name+"/"+path] = &fstest.MapFile{Data: []byte(text)}
			one.Files = append(one.Files, skill.Sum(path, strings.HasSuffix(path, ".sh"), []byte(text)))
		}
		one.Digest = skill.Digest(one.Files)
		index.Skills = append(index.Skills, one)
	}
	data, err := index.Encode()
	if err != nil {
		t.Fatal(err)
	}
	fsys[skill.IndexName] = &fstest.MapFile{Data: data}
	return fsys
}

func TestBaked(t *testing.T) {
	t.Parallel()
	fsys := bake(t)
	p, err := skill.Baked(fsys)
	if err != nil {
		t.Fatal(err)
	}
	if got := names(listed(t, p)); got != "csv pdf" {
		t.Error(got)
	}
	s, err := p.Load(t.Context(), skill.Scope{}, "pdf")
	if err != nil || s.Body != "Read it." || len(s.Files) != 1 || s.Files[0].Path != "scripts/run.sh" || !s.Files[0].Executable {
		t.Errorf("%+v, %v", s, err)
	}
	if got, err := content(t, p, "pdf", "scripts/run.sh"); got != "#!/bin/sh\n" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for _, path := range []string{"none", "../csv/SKILL.md", "/etc/passwd"} {
		if _, err := content(t, p, "pdf", path); !errors.Is(err, session.ErrNotFound) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := p.Load(t.Context(), skill.Scope{}, "xls"); !errors.Is(err, session.ErrNotFound) {
		t.Error(err)
	}
	fsys["pdf/scripts/run.sh"].Data = []byte("#!/bin/no\n")
	if _, err := content(t, p, "pdf", "scripts/run.sh"); !errors.Is(err, session.ErrCorrupt) {
		t.Errorf("a file that was changed: %v", err)
	}
	fsys["pdf/SKILL.md"].Data = append(fsys["pdf/SKILL.md"].Data, "More."...)
	if _, err := p.Load(t.Context(), skill.Scope{}, "pdf"); !errors.Is(err, session.ErrCorrupt) {
		t.Errorf("a body that was changed: %v", err)
	}
	delete(fsys, "csv/SKILL.md")
	if _, err := p.Load(t.Context(), skill.Scope{}, "csv"); !errors.Is(err, session.ErrCorrupt) {
		t.Errorf("a body that is gone: %v", err)
	}
}

func TestBadIndex(t *testing.T) {
	t.Parallel()
	if _, err := skill.Baked(fstest.MapFS{}); !errors.Is(err, session.ErrNotFound) || !strings.Contains(err.Error(), skill.IndexName) {
		t.Error(err)
	}
	good := string(bake(t)[skill.IndexName].Data)
	for name, change := range map[string]struct{ old, new, want string }{
		"not JSON":    {"{", "", "cannot be decoded"},
		"version":     {`"version": 1`, `"version": 2`, "version"},
		"digest":      {`"digest": "sha256:`, `"digest": "sha256:0`, "digest"},
		"path":        {"scripts/run.sh", "../run.sh", "does not lie within the skill"},
		"size":        {`"size": `, `"size": 99999999`, "bytes together"},
		"name":        {`"name": "pdf"`, `"name": "p/df"`, `'/'`},
		"twice":       {`"name": "pdf"`, `"name": "csv"`, "csv twice"},
		"no SKILL.md": {`"path": "SKILL.md"`, `"path": "OTHER.md"`, "lack SKILL.md"},
		"description": {`"description": "About csv."`, `"description": ""`, "description is missing"},
	} {
		data := strings.Replace(good, change.old, change.new, 1)
		if data == good {
			t.Fatalf("%s: nothing changed in %s", name, good)
		}
		_, err := skill.Baked(fstest.MapFS{skill.IndexName: {Data: []byte(data)}})
		if err == nil || !strings.Contains(err.Error(), change.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := (&skill.Index{Skills: []skill.Indexed{{}}}).Encode(); err == nil {
		t.Error("an invalid index was encoded")
	}
}
