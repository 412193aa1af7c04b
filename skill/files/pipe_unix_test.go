//go:build unix

package files_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/skill"
	"github.com/helixagents/helix/skill/files"
)

// A pipe that nobody writes to is left out, and does not stop the scan.
func TestPipes(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{"pdf/SKILL.md": text("pdf", "Reads PDFs.", ""), "csv/a.md": ""})
	for _, name := range []string{"pdf/pipe", "csv/SKILL.md"} {
		if err := syscall.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx := eventually.Context(t)
	p := files.Dir(dir)
	if list, err := p.List(ctx, skill.Scope{}); err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	if told := strings.Join(problems(t, p, dir), "\n"); !strings.Contains(told, "pdf/pipe: is left out: it is not a regular file") || !strings.Contains(told, "csv/SKILL.md: cannot be read: it is not a regular file") {
		t.Error(told)
	}
	if _, err := p.Open(ctx, skill.Scope{}, "pdf", "pipe"); err == nil {
		t.Error("a pipe is opened")
	}
}
