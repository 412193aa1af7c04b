package layering

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// maxFile is the size in bytes of the largest file that may be in the repository.
const maxFile = 1 << 20

// maxLines is the length of the longest Go file of the product. Tests and the suites, whose
// files list cases, may be longer.
const maxLines = 600

var mayBeLong = regexp.MustCompile(`_test\.go$|test/[^/]+\.go$`)

// repositoryFiles returns the paths of the files in the repository, relative to its root.
func repositoryFiles(t *testing.T) (root string, names []string) {
	t.Helper()
	root = filepath.Join("..", "..")
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		t.Skip("not a checkout: the module's source has no list of files")
	}
	out, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-z").Output()
	if err != nil {
		t.Fatal(err)
	}
	return root, strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

// A program that was built in the wrong place is easily committed, and stays in the
// history for good.
func TestNoLargeFiles(t *testing.T) {
	t.Parallel()
	root, names := repositoryFiles(t)
	for _, name := range names {
		info, err := os.Lstat(filepath.Join(root, name))
		if err == nil && info.Size() > maxFile {
			t.Errorf("%s has %d bytes; files of the repository have at most %d", name, info.Size(), maxFile)
		}
	}
}

func TestNoLongFiles(t *testing.T) {
	t.Parallel()
	root, names := repositoryFiles(t)
	checked := 0
	for _, name := range names {
		if !strings.HasSuffix(name, ".go") || mayBeLong.MatchString(name) {
			continue
		}
		source, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			continue // deleted, and not committed yet
		}
		checked++
		if lines := bytes.Count(source, []byte("\n")); lines > maxLines {
			t.Errorf("%s has %d lines; a file of the product has at most %d", name, lines, maxLines)
		}
	}
	if checked < 100 {
		t.Errorf("only %d files were checked", checked)
	}
}
