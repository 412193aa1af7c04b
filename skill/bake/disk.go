package bake

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/helixagents/helix/skill"
)

// Limits of a directory that is read.
const (
	maxDiskEntries = 100_000
	maxDiskBytes   = 1 << 30
)

// disk is what a directory has.
type disk struct {
	// files has the sums of all files by their path.
	files map[string]skill.FileSum
	// dirs are the directories, with all above them.
	dirs map[string]bool
	// others are entries that are neither: links, pipes.
	others []string
}

// readDisk reads a directory; one that does not exist is empty.
func readDisk(dir string) (*disk, error) {
	d := &disk{files: map[string]skill.FileSum{}, dirs: map[string]bool{}}
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // it was only read
	entries, bytes := 0, int64(0)
	err = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		entries++
		switch {
		case err != nil:
			return err
		case entries > maxDiskEntries:
			return fmt.Errorf("%s has more than %d files", dir, maxDiskEntries)
		case name == ".":
		case e.IsDir():
			d.dirs[name] = true
		case !e.Type().IsRegular():
			d.others = append(d.others, name)
		default:
			sum, err := sumFile(root, name)
			if err != nil {
				return err
			}
			d.files[name] = sum
			if bytes += sum.Size; bytes > maxDiskBytes {
				return fmt.Errorf("%s has more than %d bytes", dir, maxDiskBytes)
			}
		}
		return nil
	})
	return d, err
}

// sumFile reads a file of the directory.
func sumFile(root *os.Root, name string) (skill.FileSum, error) {
	f, err := root.Open(name)
	if err != nil {
		return skill.FileSum{}, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return skill.SumFile(name, f, maxDiskBytes+1)
}

// foreign returns what in the directory is neither in owned nor a directory of such a file.
// The generated files are known if generated is set.
func (d *disk) foreign(owned map[string]string, generated bool) []string {
	known := map[string]bool{skill.IndexName: generated, goFile: generated}
	for name := range owned {
		for ; name != "."; name = path.Dir(name) {
			known[name] = true
		}
	}
	out := slices.Clone(d.others) // no sync writes any
	for _, all := range [][]string{sortedKeys(d.files), sortedKeys(d.dirs)} {
		for _, name := range all {
			if !known[name] {
				out = append(out, name)
			}
		}
	}
	return out
}

// makeDir makes a directory with its parents, and returns those that did not exist, the
// deepest first.
func makeDir(dir string) (made []string, err error) {
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Lstat(at); !errors.Is(err, fs.ErrNotExist) || at == filepath.Dir(at) {
			break
		}
		made = append(made, at)
	}
	return made, os.MkdirAll(dir, 0o755)
}

// removeEmpty removes directories in which there is nothing but one another.
func removeEmpty(dirs []string) {
	for _, dir := range dirs {
		_ = os.Remove(dir) // refused if it is not empty
	}
}
