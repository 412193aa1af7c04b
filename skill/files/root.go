package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/skill"
)

// root is a directory that is searched for skills.
type root struct {
	name string // in messages
	open func() (*confined, error)
}

// path returns how messages name a file of the root.
func (r *root) path(name string) string {
	if r.name == "" {
		return name
	}
	return filepath.ToSlash(filepath.Join(r.name, name))
}

// shown returns how messages name the root.
func (r *root) shown() string {
	if r.name == "" {
		return ""
	}
	return r.path(".")
}

// use calls fn with the root's files.
func (r *root) use(fn func(top *confined) error) error {
	top, err := r.open()
	if err != nil {
		return session.ErrUnavailable.WithCause(err, "the directory of skills %s cannot be read", r.name)
	}
	defer top.close()
	return fn(top)
}

// confined has the files of a directory. No access leads out of it.
type confined struct {
	fs.FS
	dir *os.Root // nil for the files of an fs.FS
}

func openDir(name string) (*confined, error) {
	dir, err := os.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	return &confined{dir.FS(), dir}, nil
}

func (c *confined) close() {
	if c.dir != nil {
		_ = c.dir.Close() // it was only read
	}
}

// sub returns a directory of it, which the caller closes. No access leads out of that
// directory either: what a skill links to must be its own.
func (c *confined) sub(name string) (*confined, error) {
	if c.dir == nil {
		sub, err := fs.Sub(c.FS, name)
		return &confined{FS: sub}, err
	}
	dir, err := c.dir.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	return &confined{dir.FS(), dir}, nil
}

// openFile opens a regular file. Opening something else, such as a pipe, must not block.
func (c *confined) openFile(name string) (f fs.File, err error) {
	if c.dir != nil {
		f, err = c.dir.OpenFile(name, os.O_RDONLY|nonblock, 0)
	} else {
		if info, err := fs.Stat(c.FS, name); err == nil && !info.Mode().IsRegular() {
			return nil, errNotRegular
		}
		f, err = c.FS.Open(name)
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = errNotRegular
	case info.Size() > skill.MaxBytes:
		err = fmt.Errorf("it has %d bytes; at most %d are allowed", info.Size(), skill.MaxBytes)
	default:
		return f, nil
	}
	_ = f.Close() // nothing was read
	return nil, err
}

// openChecked is openFile for a path that may have links.
func (c *confined) openChecked(name string) (fs.File, error) {
	if err := c.follow(name); err != nil {
		return nil, err
	}
	return c.openFile(name)
}

// Errors for files that are not read.
var (
	errNotRegular = errors.New("it is not a regular file")
	errSkipped    = errors.New("it lies in a directory that is not read")
	errLeadsOut   = errors.New("it leads out of the directory")
	errManyLinks  = errors.New("it is behind too many links")
)

// maxLinks is how many links a path may have.
const maxLinks = 16

// follow follows the links of a path, and returns an error if it leads out of the directory,
// or to where nothing is read.
func (c *confined) follow(name string) error {
	links, done, rest := 0, ".", strings.Split(name, "/")
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		switch {
		case part == "" || part == ".":
			continue
		case part == "..":
			if done == "." {
				return errLeadsOut
			}
			done = path.Dir(done)
			continue
		case skipped(part):
			return errSkipped
		}
		next := path.Join(done, part)
		info, err := fs.Lstat(c.FS, next)
		if err != nil {
			return err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			done = next
			continue
		}
		target, err := fs.ReadLink(c.FS, next)
		if err != nil {
			return err
		}
		if target = filepath.ToSlash(target); path.IsAbs(target) || filepath.IsAbs(target) {
			return errLeadsOut
		}
		if links++; links > maxLinks {
			return errManyLinks
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return nil
}

// skipped reports whether entries of a name are not read, also where the file system does not
// tell upper from lower case.
func skipped(name string) bool {
	return strings.EqualFold(name, ".git") || strings.EqualFold(name, "node_modules")
}
