package bake

import (
	"io"
	"os"
	"strings"

	"github.com/helixagents/helix/skill"
)

// Kinds of changes.
const (
	Added   = "added"
	Changed = "changed"
	Removed = "removed"
)

// Change is a skill that a sync has added, changed or removed.
type Change struct {
	Skill string `json:"skill"`
	// Entry is the entry of the manifest that it belongs to, or belonged to.
	Entry string `json:"entry"`
	// Kind is [Added], [Changed] or [Removed].
	Kind  string       `json:"kind"`
	Files []FileChange `json:"files"`
	// Diff shows how the text of SKILL.md has changed; all of it is new for a skill that was
	// added. It is text of the source: whoever shows it makes visible what does not print.
	Diff string `json:"diff,omitempty"`
}

// FileChange is a file of a skill that was added, changed or removed.
type FileChange struct {
	Path string `json:"path"`
	Kind string `json:"kind"`
}

// changes compares the current directory with the next one.
func (s *syncer) changes(before, after *disk, next *build) []Change {
	had, has := before.skillsOf(), after.skillsOf()
	entryBefore := s.old.entryOf()
	all := map[string]bool{}
	for _, names := range []map[string]bool{had, has} {
		for name := range names {
			all[name] = true
		}
	}
	out := []Change{}
	for _, name := range sortedKeys(all) {
		c := Change{Skill: name, Entry: next.of[name], Kind: Changed, Files: fileChanges(before, after, name+"/")}
		switch {
		case !had[name]:
			c.Kind = Added
		case !has[name]:
			c.Kind, c.Entry = Removed, entryBefore[name]
		case len(c.Files) == 0:
			continue
		}
		if has[name] {
			file := name + "/" + skill.FileName
			c.Diff = diff(before.text(s.out, file), after.text(next.dir, file))
		}
		out = append(out, c)
	}
	return out
}

// text returns the content of a file of the directory, which was read before. What has become
// a link or cannot be read has no text to compare.
func (d *disk) text(dir, name string) string {
	if _, ok := d.files[name]; !ok {
		return ""
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return ""
	}
	defer func() { _ = root.Close() }() // it was only read
	f, err := root.Open(name)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // it was only read
	data, err := io.ReadAll(io.LimitReader(f, skill.MaxBody))
	if err != nil {
		return ""
	}
	return string(data)
}

// fileChanges returns the changes of the files whose paths begin with prefix.
func fileChanges(before, after *disk, prefix string) []FileChange {
	all := map[string]string{}
	for name := range before.files {
		if strings.HasPrefix(name, prefix) {
			all[name] = Removed
		}
	}
	for name, sum := range after.files {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		was, had := before.files[name]
		switch {
		case !had:
			all[name] = Added
		case was != sum:
			all[name] = Changed
		default:
			delete(all, name)
		}
	}
	var out []FileChange
	for _, name := range sortedKeys(all) {
		out = append(out, FileChange{strings.TrimPrefix(name, prefix), all[name]})
	}
	return out
}
