package bake

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/helixagents/helix/skill"
)

// Limits of one source.
const (
	// MaxFiles is how many files the skills of a source may have together, and MaxBytes how
	// many bytes.
	MaxFiles = 2000
	MaxBytes = 32 << 20
	// MaxFetched is how many bytes of objects a source's repository may send, and MaxFetchedAll
	// how many all of them together.
	MaxFetched    = 512 << 20
	MaxFetchedAll = 4 << 30
)

// Config says where things are.
type Config struct {
	// Manifest is the file that names the sources. Defaults to helix.skills.json.
	Manifest string
	// Lock is the file that records what was written. Defaults to helix.skills.lock.
	Lock string
	// Out is the directory for the skills, which has nothing else. Defaults to skills.
	Out string
	// AllowLocal permits repositories on this machine as sources: file URLs and paths.
	AllowLocal bool
}

// Defaults of [Config].
const (
	DefaultManifest = "helix.skills.json"
	DefaultLock     = "helix.skills.lock"
	DefaultOut      = "skills"
)

// InputError is the error for a manifest or a configuration that cannot be used. Nothing
// was fetched or changed.
type InputError struct {
	// Problems are in the order of the file.
	Problems []*skill.Problem
}

// Error returns the problems, one per line.
func (e *InputError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// inputError returns an [InputError] about a whole file or directory.
func inputError(path, format string, args ...any) error {
	return &InputError{[]*skill.Problem{{Path: path, Message: fmt.Sprintf(format, args...), Refused: true}}}
}

// places is a [Config] with its defaults and absolute paths. The shown ones are as the user
// wrote them.
type places struct {
	manifest, lock, out                string
	shownManifest, shownLock, shownOut string
	allowLocal                         bool
}

func (c *Config) places() (*places, error) {
	p := &places{
		shownManifest: cmp.Or(c.Manifest, DefaultManifest), shownLock: cmp.Or(c.Lock, DefaultLock),
		shownOut: filepath.Clean(cmp.Or(c.Out, DefaultOut)), allowLocal: c.AllowLocal,
	}
	for _, one := range []struct {
		shown string
		path  *string
	}{{p.shownManifest, &p.manifest}, {p.shownLock, &p.lock}, {p.shownOut, &p.out}} {
		path, err := filepath.Abs(one.shown)
		if err != nil {
			return nil, inputError(one.shown, "is not a path: %v", err)
		}
		*one.path = path
	}
	// The directory is replaced as a whole, so its name must be that of the directory itself. A
	// link could be a part of a repository that somebody else has written, and lead anywhere.
	if info, err := os.Lstat(p.out); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return nil, inputError(p.shownOut, "is a symbolic link; name the directory itself with --out")
	}
	if target, err := filepath.EvalSymlinks(p.out); err == nil {
		p.out = target
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, inputError(p.shownOut, "cannot be read: %v", err)
	}
	work, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	switch info, err := os.Stat(p.out); {
	case err == nil && !info.IsDir():
		return nil, inputError(p.shownOut, "is not a directory; choose another with --out")
	case inside(p.out, work):
		return nil, inputError(p.shownOut, "contains the working directory; the skills need a directory of their own")
	case p.manifest == p.lock:
		return nil, inputError(p.shownLock, "is the manifest; the lock needs a file of its own")
	}
	for path, shown := range map[string]string{p.manifest: p.shownManifest, p.lock: p.shownLock} {
		if inside(p.out, path) {
			return nil, inputError(p.shownOut, "contains %s; the skills need a directory of their own", shown)
		}
	}
	return p, nil
}

// inside reports whether path is dir or lies below it.
func inside(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// shown returns how messages name a file of the output directory.
func (p *places) shown(path string) string {
	return filepath.ToSlash(filepath.Join(p.shownOut, filepath.FromSlash(path)))
}
