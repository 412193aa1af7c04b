package files

import (
	"context"
	"embed"
	"errors"
	"io"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/skill"
)

// Limits of a scan.
const (
	// MaxDepth is how many directories below a root a skill may lie.
	MaxDepth = 6
	// MaxDirectories is how many directories of a root are searched for skills.
	MaxDirectories = 2000
	// MaxEntries is how many entries a directory may have.
	MaxEntries = 10000
	// ScanInterval is how long what was found is used before the directories are scanned
	// again. What took long to find is used longer: ten times as long as the scan took.
	ScanInterval = 2 * time.Second
)

const (
	// scanLimit is how long a scan may take.
	scanLimit = time.Minute
	// scanShare is how much longer what was found is used than it took to find.
	scanShare = 10
)

// Tree is a [skill.Provider] of the skills in directories, the same for every scope. It is
// safe for concurrent use.
//
// The content of the files decides whether a skill has changed, so an edit in place is
// seen: by [Tree.List] when the last scan is older than [ScanInterval], by [Tree.Load] at
// once. The directories .git and node_modules are not read, and what lies in the directory
// of a skill belongs to that skill. Links are followed to files of the same skill only.
type Tree struct {
	roots []root
	fixed bool // the files cannot change

	mu      sync.Mutex // guards what follows
	running *scanning  // nil if no scan is under way
	last    *scan
	until   time.Time // when the last scan is too old
}

// Dir returns a provider of the skills in directories on disk. If two skills have the same
// name, that of the earlier root counts, and within a root that of the path that sorts
// first. Every access is confined to the root by [os.Root].
func Dir(roots ...string) *Tree {
	t := &Tree{}
	for _, dir := range roots {
		t.roots = append(t.roots, root{dir, func() (*confined, error) { return openDir(dir) }})
	}
	return t
}

// FS returns a provider of the skills in a file system. An [embed.FS], which cannot change, is
// scanned once; skills in one of its directories are found without [fs.Sub].
func FS(fsys fs.FS) *Tree {
	_, fixed := fsys.(embed.FS)
	return &Tree{fixed: fixed, roots: []root{{"", func() (*confined, error) { return &confined{FS: fsys}, nil }}}}
}

// List implements [skill.Provider].
func (t *Tree) List(ctx context.Context, _ skill.Scope) ([]skill.Metadata, error) {
	s, err := t.scan(ctx, false)
	if err != nil {
		return nil, err
	}
	return slices.Clone(s.list), nil
}

// Problems implements [skill.Reporter].
func (t *Tree) Problems(ctx context.Context, _ skill.Scope) []*skill.Problem {
	s, err := t.scan(ctx, false)
	if err != nil {
		return []*skill.Problem{{Message: "the skills cannot be listed", Detail: err.Error()}}
	}
	return s.problems
}

// Load implements [skill.Provider].
func (t *Tree) Load(ctx context.Context, _ skill.Scope, name string) (*skill.Skill, error) {
	for _, again := range []bool{false, true} { // what was listed may have moved since then
		s, err := t.scan(ctx, again)
		if err != nil {
			return nil, err
		}
		where, ok := s.places[name]
		if !ok {
			break
		}
		var read *skill.Skill
		err = where.root.use(func(top *confined) (err error) {
			read, _, err = readSkill(ctx, where.root, top, where.dir)
			return err
		})
		switch {
		case err == nil && read.Name == name:
			return read, nil
		case err != nil && again:
			return nil, err
		}
	}
	return nil, noSkill(name)
}

// noSkill is the error for a skill that does not exist.
func noSkill(name string) error {
	return session.ErrNotFound.WithMessage("there is no skill named %.80q", name)
}

// Open implements [skill.Provider].
func (t *Tree) Open(ctx context.Context, _ skill.Scope, name, file string) (io.ReadCloser, error) {
	if err := skill.CheckPath(file); err != nil {
		return nil, err
	}
	s, err := t.scan(ctx, false)
	if err != nil {
		return nil, err
	}
	where, ok := s.places[name]
	if !ok {
		return nil, noSkill(name)
	}
	var out io.ReadCloser
	err = where.root.use(func(top *confined) error {
		own, err := top.sub(where.dir)
		if err != nil {
			return err
		}
		f, err := own.openChecked(file)
		if err != nil {
			own.close()
			return err
		}
		out = &opened{f, own}
		return nil
	})
	switch {
	case err == nil:
		return out, nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errSkipped):
		return nil, session.ErrNotFound.WithMessage("skill %s has no file %.100q", name, file)
	case errors.Is(err, session.ErrUnavailable):
		return nil, err
	}
	return nil, session.Invalid("path", "%.100q of skill %s cannot be read: %v", file, name, cause(err))
}

// opened is a file that keeps its directory open.
type opened struct {
	fs.File
	in *confined
}

func (o *opened) Close() error {
	defer o.in.close()
	return o.File.Close()
}
