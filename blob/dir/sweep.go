package dir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/helixagents/helix/blob"
)

const (
	// placeFile has the place at which the last walk ended, of whichever process.
	placeFile = "place"
	// tempAge is how long a file that is being written can be in use.
	tempAge = time.Hour
	// behind sorts behind all names in a directory.
	behind = "/~"
)

// Each implements [blob.Bytes]. It also removes files that a process has left that died
// while it wrote them. The place at which it ends is kept in the directory, so that the
// processes continue each other's work. A directory that cannot be read is reported, and
// does not keep the others from their turn.
func (d *Dir) Each(ctx context.Context, age time.Duration, limit int, do func(tenant, ref string) error) error {
	from := d.place()
	w := walk{dir: d, age: age, left: limit, do: do, after: from}
	err := w.all(ctx)
	if err == nil && from != "" { // from the beginning
		w.after, w.through = "", from
		err = w.all(ctx)
	}
	if err == nil { // all were looked at
		return w.failed
	}
	if w.at != "" {
		if err := d.setPlace(w.at); err != nil {
			return failure("keep the place of a sweep", err)
		}
	}
	if errors.Is(err, errEnough) {
		return w.failed
	}
	return err
}

// errEnough ends a walk.
var errEnough = errors.New("enough")

// place returns the place at which the last walk ended: the path of a file or directory
// below that of all tenants, or nothing.
func (d *Dir) place() string {
	at, err := readSmall(filepath.Join(d.root, placeFile))
	if err != nil {
		return "" // then it begins anew
	}
	return at
}

// setPlace need not be atomic: whatever it leaves is a place at which to continue.
func (d *Dir) setPlace(at string) error {
	file, err := os.OpenFile(filepath.Join(d.root, placeFile), os.O_CREATE|os.O_WRONLY|os.O_TRUNC|noFollow, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(at)
	if closed := file.Close(); err == nil {
		err = closed
	}
	return err
}

// maxSmall is the size of the largest file beside those with bytes.
const maxSmall = 4096

// readSmall reads a file that is not a blob.
func readSmall(path string) (string, error) {
	info, err := lstat(path)
	if err != nil || info == nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > maxSmall {
		return "", fmt.Errorf("%s is not a file of at most %d bytes: %w", path, maxSmall, fs.ErrInvalid)
	}
	data, err := os.ReadFile(path)
	return string(data), err
}

// walk looks at files and directories in the order of their paths, below that of all
// tenants.
type walk struct {
	dir  *Dir
	age  time.Duration
	left int // how many it may still look at
	do   func(tenant, ref string) error
	// after and through are the bounds; an empty one is none.
	after, through string
	at             string // the last one that it looked at
	failed         error  // the first failure to look at one
}

// skip remembers why a file or directory could not be looked at. The walk goes on, because
// whoever follows would fail at the same place.
func (w *walk) skip(what string, err error) {
	if w.failed == nil {
		w.failed = failure(what, err)
	}
}

// look counts a file or directory, unless the walk before has.
func (w *walk) look(ctx context.Context, path string) error {
	if ctx.Err() != nil {
		return fmt.Errorf("list blobs: %w", context.Cause(ctx))
	}
	if path <= w.after {
		return nil
	}
	if w.left <= 0 {
		return errEnough
	}
	w.left--
	w.at = path
	return nil
}

// list calls do for the entries of a directory that the walk may have to look at.
func (w *walk) list(path string, do func(path string, entry fs.DirEntry) error) error {
	entries, err := os.ReadDir(filepath.Join(w.dir.root, tenantsDir, filepath.FromSlash(path)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // else it was removed in the meantime
		w.skip("list blobs", err)
	}
	for _, entry := range entries {
		below := entry.Name()
		if path != "" {
			below = path + "/" + below
		}
		if w.through != "" && below > w.through {
			break
		}
		if below+behind > w.after {
			if err := do(below, entry); err != nil {
				return err
			}
		}
	}
	return nil
}

// all looks at all tenants. It ends with errEnough at the limit.
func (w *walk) all(ctx context.Context) error {
	return w.list("", func(path string, entry fs.DirEntry) error {
		if !entry.IsDir() || !isHex(entry.Name(), 32) {
			return nil
		}
		if err := w.look(ctx, path); err != nil {
			return err
		}
		return w.tenant(ctx, path)
	})
}

// tenant looks at the directories of a tenant.
func (w *walk) tenant(ctx context.Context, path string) error {
	tenant, err := readSmall(filepath.Join(w.dir.root, tenantsDir, path, nameFile))
	if err != nil {
		w.skip("list blobs", err)
		return nil
	}
	known := tenantHash(tenant) == path // else it has no blob yet
	return w.list(path, func(path string, entry fs.DirEntry) error {
		if isTemp(entry) {
			return w.temp(ctx, path, entry)
		}
		if !known || !entry.IsDir() || !isHex(entry.Name(), 2) {
			return nil
		}
		if err := w.look(ctx, path); err != nil {
			return err
		}
		return w.shard(ctx, path, tenant)
	})
}

// shard looks at files with bytes.
func (w *walk) shard(ctx context.Context, path, tenant string) error {
	digits := filepath.Base(path)
	return w.list(path, func(path string, entry fs.DirEntry) error {
		name := entry.Name()
		if isTemp(entry) {
			return w.temp(ctx, path, entry)
		}
		if path <= w.after || !entry.Type().IsRegular() || !isHex(name, 64) || !strings.HasPrefix(name, digits) {
			return nil
		}
		if err := w.look(ctx, path); err != nil {
			return err
		}
		if !w.older(entry, w.age) {
			return nil
		}
		return w.do(tenant, blob.FromDigits(name))
	})
}

// temp removes a file that is being written, if nobody can be writing it any more.
func (w *walk) temp(ctx context.Context, path string, entry fs.DirEntry) error {
	if path <= w.after {
		return nil
	}
	if err := w.look(ctx, path); err != nil {
		return err
	}
	if !w.older(entry, tempAge) {
		return nil
	}
	err := os.Remove(filepath.Join(w.dir.root, tenantsDir, filepath.FromSlash(path)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.skip("remove a file that was not completed", err)
	}
	return nil
}

// older reports whether a file was written so long ago.
func (w *walk) older(entry fs.DirEntry, age time.Duration) bool {
	info, err := entry.Info()
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // else it was removed in the meantime
		w.skip("list blobs", err)
	}
	return err == nil && time.Since(info.ModTime()) >= age
}

// isTemp reports whether writeFile has created a file.
func isTemp(entry fs.DirEntry) bool {
	number, found := strings.CutPrefix(entry.Name(), tempPrefix)
	return found && number != "" && strings.Trim(number, "0123456789") == "" && entry.Type().IsRegular()
}

// isHex reports whether a name is so many lower-case hexadecimal digits.
func isHex(name string, digits int) bool {
	return len(name) == digits && strings.Trim(name, "0123456789abcdef") == ""
}
