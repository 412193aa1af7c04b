package bake

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/helixagents/helix/skill"
	"github.com/helixagents/helix/skill/files"
)

// Report is what a [Sync] did.
type Report struct {
	Entries []EntryReport `json:"entries"`
	Changes []Change      `json:"changes"`
	// Notes are about what the user should know of the sources.
	Notes []string `json:"notes,omitempty"`
	// Written is false if everything was up to date.
	Written bool `json:"written"`
}

// EntryReport is an entry of the manifest and what it was resolved to.
type EntryReport struct {
	Name   string `json:"name"`
	URL    string `json:"url"`
	Commit string `json:"commit"`
	// Skills are the names of the skills, sorted.
	Skills []string `json:"skills"`
}

// Sync reads all sources of the manifest, and writes their skills and the lock.
//
// The directory of the skills is replaced as a whole: whoever reads it, and a sync that is
// killed, sees the old one or the new one. Files that no sync has written are never removed:
// a directory that has some is refused. Of several syncs at once, one proceeds and the others
// return [ErrBusy]. The error for an invalid manifest is an [*InputError].
func Sync(ctx context.Context, cfg Config) (*Report, error) {
	p, err := cfg.places()
	if err != nil {
		return nil, err
	}
	return (&syncer{places: p, exchange: exchange, reached: func(string) {}}).sync(ctx)
}

type syncer struct {
	*places
	// owned are the files that earlier syncs have written.
	owned  map[string]string
	old    *Lock
	lockIs []byte // the content of the lock
	// exchange swaps two directories atomically.
	exchange func(a, b string) error
	// reached is called between the steps of a sync.
	reached func(point string)
}

// beside returns a path beside the output directory, for what it is replaced with. Go
// ignores directories whose name begins with a dot.
func (s *syncer) beside(suffix string) string {
	return filepath.Join(filepath.Dir(s.out), "."+filepath.Base(s.out)+".helix-"+suffix)
}

// What is beside the output directory during a sync.
const (
	building = "new"  // the next directory, incomplete
	swapping = "swap" // the next directory, complete, and then the previous one
	previous = "old"  // the previous one, where directories cannot be exchanged
	copying  = "copy" // the next directory, complete, while it is copied into one that cannot be moved
)

// next is the lock of a sync that has not replaced the directory yet, or is about to replace
// the lock.
func (s *syncer) next() string { return s.lock + ".next" }

func (s *syncer) sync(ctx context.Context) (report *Report, err error) {
	m, err := LoadManifest(s.shownManifest, s.allowLocal)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(filepath.Dir(s.lock)); err != nil || !info.IsDir() {
		return nil, inputError(s.shownLock, "cannot be written: its directory does not exist")
	}
	made, err := makeDir(filepath.Dir(s.out))
	defer func() {
		if err != nil { // a sync that fails leaves nothing behind
			removeEmpty(made)
		}
	}()
	if err != nil {
		return nil, fmt.Errorf("%s cannot be written: %w", s.shownOut, err)
	}
	release, err := holdAll(filepath.Dir(s.lock), filepath.Dir(s.out))
	if err != nil {
		return nil, err
	}
	defer release()
	before, err := s.prepare()
	if err != nil {
		return nil, err
	}
	r, err := newReader(s.places)
	if err != nil {
		return nil, err
	}
	defer r.close()
	built := &build{dir: s.beside(building), lock: &Lock{Version: lockVersion, Skills: map[string]Locked{}}, of: map[string]string{}, report: &Report{Entries: []EntryReport{}}}
	defer func() { _ = os.RemoveAll(built.dir) }() // a later sync removes it, too
	for i := range m.Entries {
		if err := built.add(ctx, r, &m.Entries[i]); err != nil {
			return nil, err
		}
	}
	after, err := built.finish(s.shownOut)
	if err != nil {
		return nil, err
	}
	s.reached("built")
	built.report.Changes = s.changes(before, after, built)
	encoded, err := built.lock.Encode()
	switch {
	case err != nil:
		return nil, err
	case len(encoded) > maxLock:
		return nil, fmt.Errorf("the lock would have %d bytes; at most %d are allowed: the sources have too many files", len(encoded), maxLock)
	}
	if bytes.Equal(encoded, s.lockIs) && before.same(after) {
		return built.report, removeFile(s.next())
	}
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	built.report.Written = true
	return built.report, s.replace(encoded, after)
}

// prepare reads what is there, finishes or undoes what an interrupted sync has left, and
// refuses a directory with files of others.
func (s *syncer) prepare() (before *disk, err error) {
	if s.old, s.lockIs, err = loadLock(s.lock, s.shownLock); err != nil {
		return nil, err
	}
	s.owned = s.old.files()
	// A next lock that cannot be read was not complete, so the directory was not replaced.
	next, _, err := loadLock(s.next(), s.shownLock)
	if err == nil {
		maps.Copy(s.owned, next.files())
	} else if err := os.Remove(s.next()); err != nil {
		return nil, err
	}
	if next != nil && isDir(s.beside(copying)) {
		if err := s.resume(next); err != nil {
			return nil, fmt.Errorf("complete what an interrupted sync has begun: %w", err)
		}
	}
	if err := s.restore(); err != nil {
		return nil, err
	}
	for _, left := range []string{swapping, previous, copying} {
		if err := s.removeOwned(s.beside(left)); err != nil {
			return nil, err
		}
	}
	if err := os.RemoveAll(s.beside(building)); err != nil {
		return nil, err
	}
	if before, err = readDisk(s.out); err != nil {
		return nil, fmt.Errorf("read %s: %w", s.shownOut, err)
	}
	if foreign := before.foreign(s.owned, s.old != nil || next != nil); len(foreign) > 0 {
		return nil, fmt.Errorf("%s has files or links that are not in %s, and would be lost: %s; move them to another directory, or choose one with --out",
			s.shownOut, s.shownLock, listed(foreign))
	}
	return before, nil
}

// restore brings back a directory that was moved away.
func (s *syncer) restore() error {
	if exists(s.out) || !isDir(s.beside(previous)) {
		return nil
	}
	return os.Rename(s.beside(previous), s.out)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// isDir reports whether a path is a directory, and not a link to one.
func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}

// build is the next output directory while it is written.
type build struct {
	dir    string
	lock   *Lock
	of     map[string]string // entries by the names of their skills
	report *Report
}

// add writes the skills of an entry.
func (b *build) add(ctx context.Context, r *reader, e *Entry) error {
	resolved, skills, err := r.read(ctx, e)
	if err != nil {
		return err
	}
	b.lock.Skills[e.Name] = Locked{Source: e.Source, Resolved: resolved, Skills: map[string]LockedSkill{}}
	reported := EntryReport{Name: e.Name, URL: e.Source.URL, Commit: resolved.Commit}
	if resolved.URL != "" {
		reported.URL = resolved.URL
	}
	for _, s := range skills {
		name := s.meta.Name
		if other, ok := b.of[name]; ok {
			return fmt.Errorf("%s and %s both have a skill %s; name the skills that you want in include", other, e.Name, name)
		}
		b.of[name] = e.Name
		sums, err := s.write(b.dir)
		if err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		b.lock.Skills[e.Name].Skills[name] = lockedSkill(sums)
		reported.Skills = append(reported.Skills, name)
		b.report.Notes = append(b.report.Notes, s.notes...)
	}
	b.report.Entries = append(b.report.Entries, reported)
	return nil
}

// write writes the files of a skill to its directory below dir.
func (t *taken) write(dir string) (sums []skill.FileSum, err error) {
	own := filepath.Join(dir, t.meta.Name)
	if err := os.MkdirAll(own, 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(own)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	for _, f := range t.files {
		if err := root.MkdirAll(path.Dir(f.path), 0o755); err != nil {
			return nil, err
		}
		perm := fs.FileMode(0o644)
		if f.executable {
			perm = 0o755
		}
		if err := writeNew(root, f.path, f.content, perm); err != nil {
			return nil, err
		}
		sums = append(sums, skill.Sum(f.path, f.executable, f.content))
	}
	return sums, nil
}

// writeNew writes a file that does not exist yet.
func writeNew(root *os.Root, name string, content []byte, perm fs.FileMode) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// finish adds what is generated, and reads everything back: the lock is about what is on
// the disk.
func (b *build) finish(out string) (*disk, error) {
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return nil, err
	}
	d, err := readDisk(b.dir)
	if err != nil {
		return nil, err
	}
	for name, e := range b.lock.Skills {
		e.Integrity = Integrity(e.Skills)
		b.lock.Skills[name] = e
	}
	if problems := d.compare(b.lock); len(problems) > 0 {
		return nil, fmt.Errorf("the file system did not keep what was written: %s %s", problems[0].Path, problems[0].Message)
	}
	index, err := indexOf(b.lock, d, b.dir)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(b.dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // what was written to it is closed
	for name, content := range map[string][]byte{skill.IndexName: index, goFile: goSource(b.lock, out)} {
		if err := writeNew(root, name, content, 0o644); err != nil {
			return nil, err
		}
		d.files[name] = skill.Sum(name, false, content)
	}
	return d, nil
}

// indexOf returns the index of the skills in a directory.
func indexOf(l *Lock, d *disk, dir string) ([]byte, error) {
	index := &skill.Index{}
	for _, e := range l.Skills {
		for name, s := range e.Skills {
			file := path.Join(name, skill.FileName)
			data, err := readFile(filepath.Join(dir, filepath.FromSlash(file)), skill.MaxBody)
			if err != nil {
				return nil, err
			}
			doc, _, err := files.Parse(file, data)
			if err != nil {
				return nil, err
			}
			if doc.Name != name {
				return nil, fmt.Errorf("%s is the skill %s", file, doc.Name)
			}
			one := skill.Indexed{Metadata: doc.Metadata, Files: s.sums()}
			one.Digest = s.Digest
			for i := range one.Files {
				one.Files[i].Size = d.files[name+"/"+one.Files[i].Path].Size
			}
			index.Skills = append(index.Skills, one)
		}
	}
	return index.Encode()
}

// replace makes the new directory and the new lock the current ones. Between any two of its
// steps the process may be killed: the next lock says what belongs to a sync until all are
// done.
func (s *syncer) replace(lock []byte, after *disk) error {
	for name, sum := range after.files {
		s.owned[name] = mode(sum.Executable) + " " + sum.SHA256
	}
	if err := s.writeNext(lock); err != nil {
		return errors.Join(err, removeFile(s.next()))
	}
	s.reached("next lock written")
	complete := s.beside(swapping)
	err := os.Rename(s.beside(building), complete)
	if err == nil {
		s.reached("complete")
		err = s.swap(complete)
	}
	if err != nil {
		return fmt.Errorf("replace %s: %w", s.shownOut, errors.Join(err, s.undo()))
	}
	s.reached("replaced")
	return s.conclude()
}

// writeNext writes the next lock. Whatever has its name is replaced, not written to.
func (s *syncer) writeNext(lock []byte) error {
	if err := removeFile(s.next()); err != nil {
		return err
	}
	dir, err := os.OpenRoot(filepath.Dir(s.lock))
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }() // what was written to it is closed
	return writeNew(dir, filepath.Base(s.next()), lock, 0o644)
}

// conclude removes the previous directory, and makes the next lock the current one.
func (s *syncer) conclude() error {
	// The old lock says which files of the old directory are ours.
	removed := errors.Join(s.removeOwned(s.beside(swapping)), s.removeOwned(s.beside(previous)), s.removeOwned(s.beside(copying)))
	s.reached("removed")
	err := os.Rename(s.next(), s.lock)
	s.reached("locked")
	return errors.Join(removed, err)
}

// undo restores what was there before a replacement that has failed. A directory that is
// being filled is completed by the next sync instead.
func (s *syncer) undo() error {
	if isDir(s.beside(copying)) {
		return nil
	}
	return errors.Join(s.restore(), s.removeOwned(s.beside(swapping)), removeFile(s.next()))
}

// swap puts the complete directory in the place of the current one.
func (s *syncer) swap(complete string) error {
	if !exists(s.out) {
		return os.Rename(complete, s.out)
	}
	err := s.exchange(complete, s.out)
	if errors.Is(err, errors.ErrUnsupported) {
		if err = os.Rename(s.out, s.beside(previous)); err == nil {
			s.reached("moved away")
			return os.Rename(complete, s.out)
		}
	}
	if !immovable(err) {
		return err
	}
	if err := os.Rename(complete, s.beside(copying)); err != nil {
		return err
	}
	s.reached("copying")
	if err := s.fill(); err != nil {
		return fmt.Errorf("%w; then run helix skills sync again, which completes it", err)
	}
	return nil
}

// immovable reports whether an error says that a directory cannot be moved, although it can
// be written: it is from a lower layer of an overlay, such as the image of a container, or
// something is mounted on it.
func immovable(err error) bool { return errors.Is(err, syscall.EXDEV) || errors.Is(err, syscall.EBUSY) }

// fill replaces the content of a directory that cannot be moved.
func (s *syncer) fill() error {
	d, err := readDisk(s.out)
	if err != nil {
		return err
	}
	if foreign := d.foreign(s.owned, true); len(foreign) > 0 {
		return fmt.Errorf("it has files that no sync has written: %s; move them to another directory", listed(foreign))
	}
	for name := range d.top() {
		if err := os.RemoveAll(filepath.Join(s.out, name)); err != nil {
			return err
		}
	}
	s.reached("emptied")
	return os.CopyFS(s.out, os.DirFS(s.beside(copying)))
}

// resume completes a sync that was interrupted while it filled the directory.
func (s *syncer) resume(next *Lock) error {
	d, err := readDisk(s.beside(copying))
	if err != nil || len(d.compare(next)) > 0 {
		return err
	}
	if err := s.fill(); err != nil {
		return fmt.Errorf("replace %s: %w", s.shownOut, err)
	}
	if err := s.conclude(); err != nil {
		return err
	}
	s.old, s.lockIs, err = loadLock(s.lock, s.shownLock)
	return err
}

// removeOwned removes a directory that a sync has written. Files of others stay.
func (s *syncer) removeOwned(dir string) error {
	switch info, err := os.Lstat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil && info.Mode()&fs.ModeSymlink != 0:
		return os.Remove(dir) // not what it leads to
	}
	d, err := readDisk(dir)
	if err != nil {
		return err
	}
	if foreign := d.foreign(s.owned, true); len(foreign) > 0 {
		return fmt.Errorf("%s has files that no sync has written: %s; move them to where they belong and remove the directory",
			filepath.Join(filepath.Dir(s.shownOut), filepath.Base(dir)), listed(foreign))
	}
	return os.RemoveAll(dir)
}

func removeFile(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// same reports whether two directories have the same files.
func (d *disk) same(other *disk) bool {
	if len(d.files) != len(other.files) || len(d.dirs) != len(other.dirs) {
		return false
	}
	for name, sum := range d.files {
		if other.files[name] != sum {
			return false
		}
	}
	return true
}

// top returns the names of what is directly in the directory, if it has nothing but files and
// directories.
func (d *disk) top() map[string]bool {
	out := map[string]bool{}
	for _, names := range [][]string{sortedKeys(d.files), sortedKeys(d.dirs)} {
		for _, name := range names {
			first, _, _ := strings.Cut(name, "/")
			out[first] = true
		}
	}
	return out
}

// skillsOf returns the names of the top directories with a file.
func (d *disk) skillsOf() map[string]bool {
	out := map[string]bool{}
	for name := range d.files {
		if top, _, below := strings.Cut(name, "/"); below {
			out[top] = true
		}
	}
	return out
}
