package layering

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// maxFile is the size in bytes of the largest file that may be in the repository.
const maxFile = 1 << 20

// A program that was built in the wrong place is easily committed, and stays in the
// history for good.
func TestNoLargeFiles(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		t.Skip("not a checkout: the module's source has no list of files")
	}
	out, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-z").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join(root, name))
		if err == nil && info.Size() > maxFile {
			t.Errorf("%s has %d bytes; files of the repository have at most %d", name, info.Size(), maxFile)
		}
	}
}
