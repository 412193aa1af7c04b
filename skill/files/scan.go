package files

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/helixagents/helix/skill"
)

// scan is what the roots had when they were last searched.
type scan struct {
	list     []skill.Metadata    // sorted by name
	places   map[string]location // by name
	problems []*skill.Problem
}

// location is where a skill lies.
type location struct {
	root *root
	dir  string
}

// scanning is a scan under way. What it found is set when done is closed.
type scanning struct {
	done  chan struct{}
	found *scan
	err   error
}

// scan returns what the roots have, from the last scan if that is recent and need not be
// repeated. Those who come while a scan is under way share it. It goes on when they give up,
// so that what takes longer than a turn can wait is there for the next one.
func (t *Tree) scan(ctx context.Context, again bool) (*scan, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t.mu.Lock()
	if t.last != nil && (t.fixed || !again && time.Now().Before(t.until)) {
		defer t.mu.Unlock()
		return t.last, nil
	}
	if t.running == nil {
		t.running = &scanning{done: make(chan struct{})}
		go t.run(t.running)
	}
	running := t.running
	t.mu.Unlock()
	select {
	case <-running.done:
		return running.found, running.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// run carries out a scan, within a minute.
func (t *Tree) run(s *scanning) {
	ctx, cancel := context.WithTimeout(context.Background(), scanLimit)
	defer cancel()
	began := time.Now()
	func() {
		defer func() {
			if cause := recover(); cause != nil { // of a file system of the application
				s.err = fmt.Errorf("the scan panicked: %v", cause)
			}
		}()
		s.found, s.err = t.search(ctx)
	}()
	t.mu.Lock()
	t.running = nil
	if s.err == nil {
		took := time.Since(began)
		t.last, t.until = s.found, time.Now().Add(max(ScanInterval, scanShare*took))
	}
	t.mu.Unlock()
	close(s.done)
}

// search searches all roots.
func (t *Tree) search(ctx context.Context) (*scan, error) {
	s := &scan{places: map[string]location{}}
	for i := range t.roots {
		r := &t.roots[i]
		err := r.use(func(top *confined) error {
			w := &walker{ctx: ctx, root: r, top: top, scan: s}
			return w.search(".", 0)
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(s.list, func(a, b skill.Metadata) int { return cmp.Compare(a.Name, b.Name) })
	if n := len(s.problems); n > skill.MaxProblems {
		s.problems = append(s.problems[:skill.MaxProblems-1:skill.MaxProblems-1],
			&skill.Problem{Message: fmt.Sprintf("there are %d further problems", n-skill.MaxProblems+1)})
	}
	return s, nil
}

// walker searches one root.
type walker struct {
	ctx  context.Context //nolint:containedctx // it lives for one call
	root *root
	top  *confined
	scan *scan
	// seen counts the directories that were found, and read those that were searched.
	seen, read int
}

func (w *walker) problem(name, format string, args ...any) {
	w.scan.problems = append(w.scan.problems, w.root.problem(name, "", fmt.Sprintf(format, args...)))
}

// search looks for skills in a directory of the root and below.
func (w *walker) search(dir string, depth int) error {
	if dir == "." {
		w.seen, w.read = 1, 0
		defer func() {
			if w.seen > w.read && w.read == MaxDirectories {
				w.problem(".", "has %d directories or more; only the first %d were searched for skills", w.seen, MaxDirectories)
			}
		}()
	}
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if w.read == MaxDirectories {
		return nil
	}
	w.read++
	entries, err := readDir(w.top.FS, dir)
	if err != nil {
		w.problem(dir, "cannot be read: %v", err)
		return nil
	}
	if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == skill.FileName }) {
		return w.add(dir)
	}
	below := slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return !w.searched(dir, e) })
	if depth == MaxDepth {
		return nil
	}
	w.seen += len(below)
	for _, e := range below {
		if err := w.search(path.Join(dir, e.Name()), depth+1); err != nil {
			return err
		}
	}
	return nil
}

// searched reports whether an entry is a directory that may have skills.
func (w *walker) searched(dir string, e fs.DirEntry) bool {
	if e.Type()&fs.ModeSymlink != 0 {
		name := path.Join(dir, e.Name())
		switch info, err := fs.Stat(w.top.FS, name); {
		case err != nil:
			w.problem(name, "is a link that cannot be followed within the directory of skills: %v", cause(err))
		case info.IsDir():
			w.problem(name, "is a link to a directory; such links are not followed")
		}
		return false
	}
	return e.IsDir() && !skipped(e.Name())
}

// add adds the skill in a directory.
func (w *walker) add(dir string) error {
	s, warnings, err := readSkill(w.ctx, w.root, w.top, dir)
	if err != nil {
		if w.ctx.Err() != nil {
			return w.ctx.Err()
		}
		w.scan.problems = append(w.scan.problems, w.root.refusal(path.Join(dir, skill.FileName), err))
		return nil
	}
	w.scan.problems = append(w.scan.problems, warnings...)
	if other, taken := w.scan.places[s.Name]; taken {
		hidden := w.root.problem(path.Join(dir, skill.FileName), s.Name, fmt.Sprintf("the skill %s is hidden by another one of its name", s.Name))
		hidden.Detail = "in " + other.root.path(other.dir)
		w.scan.problems = append(w.scan.problems, hidden)
		return nil
	}
	w.scan.places[s.Name] = location{w.root, dir}
	w.scan.list = append(w.scan.list, s.Metadata)
	return nil
}

// readDir returns the entries of a directory, sorted by name.
func readDir(fsys fs.FS, dir string) ([]fs.DirEntry, error) {
	f, err := fsys.Open(dir)
	if err != nil {
		return nil, cause(err)
	}
	defer func() { _ = f.Close() }() // it was only read
	d, ok := f.(fs.ReadDirFile)
	if !ok {
		return nil, fmt.Errorf("%T has no ReadDir", f)
	}
	entries, err := d.ReadDir(MaxEntries + 1)
	switch {
	case err != nil && err != io.EOF: //nolint:errorlint // ReadDir returns it as it is
		return nil, cause(err)
	case len(entries) > MaxEntries:
		return nil, fmt.Errorf("it has more than %d entries", MaxEntries)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	return entries, nil
}
