package bake

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/helixagents/helix/skill"
)

// maxReported is how many problems a check reports.
const maxReported = 100

// Check compares the manifest, the lock and the files on the disk, and returns what differs.
// It changes nothing and needs no network. The error for an invalid manifest is an
// [*InputError].
func Check(cfg Config) ([]*skill.Problem, error) {
	_, _, problems, err := cfg.check()
	return problems, err
}

// CheckRemote is [Check], and if nothing differs also asks the sources whether a sync would
// find something else: a tag or a branch that has moved, another version of a plugin.
func CheckRemote(ctx context.Context, cfg Config) ([]*skill.Problem, error) {
	m, l, problems, err := cfg.check()
	if err != nil || len(problems) > 0 {
		return problems, err
	}
	p, err := cfg.places()
	if err != nil {
		return nil, err
	}
	r, err := newReader(p)
	if err != nil {
		return nil, err
	}
	defer r.close()
	for i := range m.Entries {
		e := &m.Entries[i]
		was := l.Skills[e.Name].Resolved
		moved, err := r.moved(ctx, e, &was)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", e.Name, err)
		case moved != "":
			problems = append(problems, &skill.Problem{Path: p.shownLock, Message: e.Name + ": " + moved})
		}
	}
	return problems, nil
}

func (c *Config) check() (*Manifest, *Lock, []*skill.Problem, error) {
	p, err := c.places()
	if err != nil {
		return nil, nil, nil, err
	}
	m, err := LoadManifest(p.shownManifest, p.allowLocal)
	if err != nil {
		return nil, nil, nil, err
	}
	l, data, err := loadLock(p.lock, p.shownLock)
	if problem := (*skill.Problem)(nil); errors.As(err, &problem) {
		return m, nil, []*skill.Problem{problem}, nil
	}
	if l == nil {
		return m, nil, []*skill.Problem{{Path: p.shownLock, Message: "does not exist"}}, nil
	}
	k := &checker{places: p}
	k.compareLock(m, l, data)
	if err := k.compareDisk(l); err != nil {
		return nil, nil, nil, err
	}
	if more := len(k.problems) - maxReported; more > 0 {
		k.problems = append(k.problems[:maxReported], &skill.Problem{Message: fmt.Sprintf("and %d more", more)})
	}
	return m, l, k.problems, nil
}

type checker struct {
	*places
	problems []*skill.Problem
}

func (k *checker) add(path, format string, args ...any) {
	k.problems = append(k.problems, &skill.Problem{Path: path, Message: fmt.Sprintf(format, args...)})
}

// compareLock compares the lock with the manifest and with itself.
func (k *checker) compareLock(m *Manifest, l *Lock, data []byte) {
	known := map[string]bool{}
	for i := range m.Entries {
		e := &m.Entries[i]
		known[e.Name] = true
		locked, ok := l.Skills[e.Name]
		switch {
		case !ok:
			k.add(k.shownLock, "does not have %s of %s", e.Name, k.shownManifest)
		case !e.Source.equal(&locked.Source):
			k.add(k.shownLock, "has another source for %s than %s", e.Name, k.shownManifest)
		case e.Source.SHA != "" && e.Source.SHA != cmp.Or(locked.Resolved.Marketplace, locked.Resolved.Commit):
			k.add(k.shownLock, "has another commit for %s than %s", e.Name, k.shownManifest)
		}
	}
	for _, name := range sortedKeys(l.Skills) {
		e := l.Skills[name]
		if !known[name] {
			k.add(k.shownLock, "has %s, which %s does not have", name, k.shownManifest)
		}
		if Integrity(e.Skills) != e.Integrity {
			k.add(k.shownLock, "was edited: the integrity of %s is not that of its files", name)
		}
		for _, s := range sortedKeys(e.Skills) {
			if locked := e.Skills[s]; skill.Digest(locked.sums()) != locked.Digest {
				k.add(k.shownLock, "was edited: the digest of %s is not that of its files", s)
			}
			if len(e.Source.Include) > 0 && !slices.Contains(e.Source.Include, s) {
				k.add(k.shownLock, "was edited: %s does not include %s", name, s)
			}
		}
		for _, s := range e.Source.Include {
			if _, ok := e.Skills[s]; !ok {
				k.add(k.shownLock, "was edited: %s lacks %s", name, s)
			}
		}
	}
	if canonical, err := l.Encode(); err != nil || !bytes.Equal(canonical, data) {
		k.add(k.shownLock, "was edited: it is not formatted as it was written")
	}
}

// sums returns the files of a locked skill. Sizes are not part of it.
func (s LockedSkill) sums() []skill.FileSum {
	var out []skill.FileSum
	for path, sum := range s.Files {
		out = append(out, skill.FileSum{Path: path, Executable: sum[:len(modeExecutable)] == modeExecutable, SHA256: sum[len(modeExecutable)+1:]})
	}
	return out
}

// compareDisk compares the files with the lock, and what is generated with what would be.
func (k *checker) compareDisk(l *Lock) error {
	d, err := readDisk(k.out)
	if err != nil {
		return fmt.Errorf("read %s: %w", k.shownOut, err)
	}
	differs := d.compare(l)
	for _, p := range differs {
		p.Path = k.shown(p.Path)
	}
	k.problems = append(k.problems, differs...)
	if len(k.problems) > 0 {
		return nil // what would be generated is not known
	}
	index, err := indexOf(l, d, k.out)
	if err != nil {
		k.add(k.shownOut, "has a skill that cannot be read: %v", err)
		return nil
	}
	for name, content := range map[string][]byte{skill.IndexName: index, goFile: goSource(l, k.shownOut)} {
		switch got, ok := d.files[name]; {
		case !ok:
			k.add(k.shown(name), "is missing")
		case got != skill.Sum(name, false, content):
			k.add(k.shown(name), "is not what helix skills sync has written, or the commit in %s was edited", filepath.Base(k.shownLock))
		}
	}
	return nil
}

// hasModes says whether files can be executable or not.
const hasModes = runtime.GOOS != "windows"

// compare returns how the skills in the directory differ from a lock.
func (d *disk) compare(l *Lock) []*skill.Problem {
	var problems []*skill.Problem
	add := func(path, message string) { problems = append(problems, &skill.Problem{Path: path, Message: message}) }
	want := l.files()
	for _, path := range sortedKeys(want) {
		got, ok := d.files[path]
		switch {
		case !ok && slices.Contains(d.others, path):
			add(path, "is no longer a file, but a link or something else")
		case !ok:
			add(path, "is missing")
		case got.SHA256 != want[path][len(modeExecutable)+1:]:
			add(path, "has been changed")
		case hasModes && mode(got.Executable) != want[path][:len(modeExecutable)]:
			if got.Executable {
				add(path, "has become executable")
			} else {
				add(path, "is no longer executable")
			}
		}
	}
	for _, path := range d.foreign(want, true) {
		if _, locked := want[path]; !locked {
			add(path, "was added; the lock does not have it")
		}
	}
	return problems
}
