// Package dir keeps the bytes of blobs in a directory that all processes share, such as a
// network file system, while the references to them stay in the store:
//
//	bytes, err := dir.Open("/srv/helix/blobs")
//	backend := store.Mix{SessionsOf: db, StreamsOf: db, LocksOf: db, BlobBytes: bytes}
//
// A blob is one file, written completely or not at all. Processes exclude each other with
// file locks, so the file system must support these between hosts if there are several.
package dir

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/session"
)

// Dir is a directory with the bytes of blobs. It implements [blob.Bytes].
//
// Bytes are in tenants/<hash of the tenant>/<two digits>/<digits of the reference>, and
// the tenant's name is in the file tenants/<hash of the tenant>/name, so that no name of
// a tenant becomes part of a path. Below the directory no symbolic link is followed, and
// what is not named like this is left alone.
type Dir struct{ root string }

var _ blob.Bytes = (*Dir)(nil)

const (
	tenantsDir = "tenants"
	locksDir   = "locks"
	nameFile   = "name"
	// tempPrefix begins the names of files that are being written; a number follows.
	tempPrefix = ".tmp-"
)

// Open opens a directory and creates it if it does not exist.
func Open(path string) (*Dir, error) {
	if path == "" {
		return nil, session.Invalid("blob directory", "must not be empty")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, session.Invalid("blob directory", "%q: %v", path, err)
	}
	d := &Dir{root: path}
	for _, sub := range []string{tenantsDir, locksDir} {
		if err := makeDir(filepath.Join(path, sub)); err != nil {
			return nil, failure("open "+path, err)
		}
	}
	if err := d.tryLocks(); err != nil {
		return nil, failure("lock in "+path, err)
	}
	return d, nil
}

// tenantDir returns the directory of a tenant.
func (d *Dir) tenantDir(tenant string) string {
	return filepath.Join(d.root, tenantsDir, tenantHash(tenant))
}

// tenantHash returns the name of a tenant's directory.
func tenantHash(tenant string) string {
	sum := sha256.Sum256([]byte(tenant))
	return hex.EncodeToString(sum[:16])
}

// lockFile opens a file to lock.
func (d *Dir) lockFile(name string) (*os.File, error) {
	return os.OpenFile(filepath.Join(d.root, locksDir, name), os.O_CREATE|os.O_RDWR|noFollow, 0o600)
}

// tryLocks returns an error if files cannot be locked here.
func (d *Dir) tryLocks() error {
	file, err := d.lockFile("00")
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = tryLock(file) // it may be held by another process, which is fine
	return err
}

// file returns the path of a blob, whose reference was checked.
func (d *Dir) file(tenant, ref string) string {
	digits := blob.Digits(ref)
	return filepath.Join(d.tenantDir(tenant), digits[:2], digits)
}

// Hold implements [blob.Bytes]. Blobs that share a lock wait for each other.
func (d *Dir) Hold(ctx context.Context, _, ref string) (release func(), err error) {
	if err := blob.CheckRef(ref); err != nil {
		return nil, err
	}
	return d.hold(ctx, blob.Digits(ref)[:2])
}

func (d *Dir) hold(ctx context.Context, name string) (release func(), err error) {
	file, err := d.lockFile(name)
	if err != nil {
		return nil, failure("lock a blob", err)
	}
	pause := time.Millisecond
	for {
		locked, err := tryLock(file)
		if locked {
			return func() { _ = file.Close() }, nil // which releases the lock
		}
		if err == nil {
			select {
			case <-ctx.Done():
				err = context.Cause(ctx)
			case <-time.After(pause):
				pause = min(2*pause, 50*time.Millisecond)
				continue
			}
		}
		_ = file.Close()
		return nil, failure("lock a blob", err)
	}
}

// Has implements [blob.Bytes].
func (d *Dir) Has(_ context.Context, tenant, ref string) (bool, error) {
	if err := blob.CheckRef(ref); err != nil {
		return false, err
	}
	info, err := d.find(tenant, ref)
	return info != nil, failure("find blob "+ref, err)
}

// find returns the file of a blob, or nil if there is none.
func (d *Dir) find(tenant, ref string) (fs.FileInfo, error) {
	path := d.file(tenant, ref)
	shard := filepath.Dir(path)
	for _, dir := range []string{filepath.Dir(shard), shard} {
		if info, err := lstat(dir); info == nil || !info.IsDir() {
			return nil, err
		}
	}
	info, err := lstat(path)
	if info == nil || !info.Mode().IsRegular() {
		return nil, err
	}
	return info, nil
}

// lstat returns what has a path, or nil if nothing has. It follows no symbolic link.
func lstat(path string) (fs.FileInfo, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // that there is nothing is no error
	}
	return info, err
}

// Read implements [blob.Bytes].
func (d *Dir) Read(_ context.Context, tenant, ref string) ([]byte, error) {
	if err := blob.CheckRef(ref); err != nil {
		return nil, err
	}
	info, err := d.find(tenant, ref)
	if info != nil && info.Size() > blob.MaxBytes {
		return nil, session.ErrCorrupt.WithMessage("blob %s: its file has %d bytes", ref, info.Size())
	}
	var data []byte
	if info != nil {
		data, err = os.ReadFile(d.file(tenant, ref))
	}
	if err == nil && info == nil || errors.Is(err, fs.ErrNotExist) {
		return nil, session.ErrNotFound.WithMessage("blob %s has no file", ref)
	}
	return data, failure("read blob "+ref, err)
}

// Write implements [blob.Bytes].
func (d *Dir) Write(ctx context.Context, tenant, ref string, data []byte) error {
	if err := blob.CheckRef(ref); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("write blob %s: %w", ref, err)
	}
	if info, err := d.find(tenant, ref); err == nil && info != nil && info.Size() == int64(len(data)) {
		return nil
	}
	name := filepath.Join(d.tenantDir(tenant), nameFile)
	if info, err := lstat(name); err == nil && info == nil {
		if err := writeFile(name, []byte(tenant)); err != nil {
			return failure("write a tenant's name", err)
		}
	}
	return failure("write blob "+ref, writeFile(d.file(tenant, ref), data))
}

// writeFile writes a file durably: completely or not at all.
func writeFile(path string, data []byte) (err error) {
	dir := filepath.Dir(path)
	if err := makeDir(dir); err != nil {
		return err
	}
	for _, own := range []string{filepath.Dir(dir), dir} {
		if info, err := lstat(own); err != nil || info == nil || !info.IsDir() {
			return fmt.Errorf("%s is not a directory: %w", own, cmp.Or(err, fs.ErrInvalid))
		}
	}
	file, err := os.CreateTemp(dir, tempPrefix+"*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return err
	}
	return syncDir(dir)
}

// makeDir creates a directory with those above it, durably.
func makeDir(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil
	}
	above := filepath.Dir(path)
	if above != path {
		if err := makeDir(above); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(above)
}

// syncDir makes the names in a directory durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	err = dir.Sync()
	if closed := dir.Close(); err == nil {
		err = closed
	}
	return err
}

// Remove implements [blob.Bytes].
func (d *Dir) Remove(_ context.Context, tenant, ref string) (removed bool, err error) {
	if err := blob.CheckRef(ref); err != nil {
		return false, err
	}
	info, err := d.find(tenant, ref)
	if info != nil {
		err = os.Remove(d.file(tenant, ref))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && info != nil, failure("remove blob "+ref, err)
}

// failure converts an error of the file system.
func failure(what string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if _, domain := errors.AsType[*session.Error](err); domain {
		return err
	}
	return session.ErrUnavailable.WithCause(err, "%s", what)
}
