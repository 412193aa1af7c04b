package bake

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// ErrBusy is the error of a sync while another one is running in the same place.
var ErrBusy = errors.New("another sync is running")

func busy(dir string) error {
	return fmt.Errorf("%w in %s; run this one again when it has ended", ErrBusy, dir)
}

// holdAll makes this the only sync in some directories until release. Whoever needs the same
// ones takes them in the same order, so that one of several proceeds.
func holdAll(dirs ...string) (release func(), err error) {
	for i, dir := range dirs {
		if dirs[i], err = filepath.EvalSymlinks(dir); err != nil {
			return nil, err
		}
	}
	slices.Sort(dirs)
	var held []fs.FileInfo
	var releases []func()
	release = func() {
		for _, one := range slices.Backward(releases) {
			one()
		}
	}
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err == nil && slices.ContainsFunc(held, func(other fs.FileInfo) bool { return os.SameFile(other, info) }) {
			continue // two names of one directory
		}
		var one func()
		if err == nil {
			one, err = hold(dir)
		}
		if err != nil {
			release()
			return nil, err
		}
		held, releases = append(held, info), append(releases, one)
	}
	return release, nil
}

// heldName is the file that says that a sync runs in a directory that cannot be locked.
const heldName = ".helix-skills-sync"

// holdFile is hold where directories cannot be locked. A process that is killed leaves the
// file behind.
func holdFile(dir string) (release func(), err error) {
	name := filepath.Join(dir, heldName)
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%w; if none is, remove %s", busy(dir), name)
	}
	if err != nil {
		return nil, err
	}
	return func() { _, _ = f.Close(), os.Remove(name) }, nil
}
