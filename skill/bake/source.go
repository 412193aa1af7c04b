package bake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// reader reads sources. Sources with the same repository and commit share one.
type reader struct {
	dir        string // for repositories
	base       string // of relative paths
	allowLocal bool
	trees      map[wanted]*tree
	left       int64 // how many bytes may still be fetched
}

// wanted is a commit of a repository.
type wanted struct {
	from remote
	pin  pin
}

// newReader returns a reader. Its close removes what it has fetched.
func newReader(p *places) (*reader, error) {
	dir, err := os.MkdirTemp("", "helix-skills-*")
	if err != nil {
		return nil, err
	}
	return &reader{dir: dir, base: filepath.Dir(p.manifest), allowLocal: p.allowLocal, trees: map[wanted]*tree{}, left: MaxFetchedAll}, nil
}

func (r *reader) close() { _ = os.RemoveAll(r.dir) } // a temporary directory

// errTime is the cause of a source that takes too long.
var errTime = fmt.Errorf("it took longer than %v", fetchTime)

// get fetches the commit that a pin names.
func (r *reader) get(ctx context.Context, from remote, p pin) (*tree, error) {
	key := wanted{from, p}
	if t := r.trees[key]; t != nil {
		return t, nil
	}
	own, err := newRepository(ctx, r.dir, from, p.sha)
	if err != nil {
		return nil, err
	}
	if own.maxSize > r.left {
		own.maxSize = r.left
	}
	commit, err := own.get(ctx, p)
	if err != nil {
		return nil, err
	}
	r.left -= own.size() // its objects stay until all sources are read: others may share them
	t := &tree{own, commit}
	r.trees[key] = t
	return t, nil
}

// origin is a source that was resolved to a commit.
type origin struct {
	*tree
	resolved Resolved
	skills   []candidate
}

// resolve finds the skills of a source.
func (r *reader) resolve(ctx context.Context, s *Source) (*origin, error) {
	from, err := parseRemote(s.URL, r.allowLocal)
	if err != nil {
		return nil, fmt.Errorf("url %w", err)
	}
	t, err := r.get(ctx, from.from(r.base), s.pin())
	if err != nil {
		return nil, err
	}
	if s.Type == TypeMarketplace {
		return r.resolvePlugin(ctx, s, t, from)
	}
	dir := cmp.Or(s.SkillsDir, "skills")
	skills, err := t.skillsIn(ctx, dir)
	if err != nil {
		return nil, err
	}
	return t.origin(ctx, dir, skills, Resolved{})
}

// pin returns which commit the source asks for.
func (s *Source) pin() pin { return pin{s.Ref, s.SHA, s.Version} }

// resolvePlugin finds the skills of a plugin of a marketplace.
func (r *reader) resolvePlugin(ctx context.Context, s *Source, market *tree, from remote) (*origin, error) {
	place, resolved, err := r.locate(ctx, s, market, from)
	if err != nil {
		return nil, err
	}
	t := market
	if place.remote != nil {
		if t, err = r.get(ctx, *place.remote, place.pin); err != nil {
			return nil, fmt.Errorf("plugin %s: %w", s.Plugin, err)
		}
		resolved.URL, resolved.Marketplace = place.remote.url, market.commit
	}
	skills, err := t.pluginSkills(ctx, &resolved)
	if err != nil {
		return nil, fmt.Errorf("plugin %s: %w", s.Plugin, err)
	}
	return t.origin(ctx, place.dir, skills, resolved)
}

// locate returns where a plugin is, and what else the marketplace says of it.
func (r *reader) locate(ctx context.Context, s *Source, market *tree, from remote) (*location, Resolved, error) {
	m, p, err := market.plugin(ctx, s.Plugin)
	if err != nil {
		return nil, Resolved{}, err
	}
	var said Resolved
	place, err := m.locate(p, from, r.allowLocal)
	if err == nil {
		said, err = p.said(place.dir)
	}
	if err != nil {
		return nil, said, fmt.Errorf("plugin %s of %s: %w", s.Plugin, market.remote.url, err)
	}
	return place, said, nil
}

// origin completes what was resolved: the commit, and the tree of the directory.
func (t *tree) origin(ctx context.Context, dir string, skills []candidate, resolved Resolved) (*origin, error) {
	objects, err := t.lookUp(ctx, t.at(dir))
	if err != nil {
		return nil, err
	}
	if objects[0].kind != "tree" {
		return nil, fmt.Errorf("%s is not a directory", t.where(dir))
	}
	if len(skills) == 0 {
		return nil, fmt.Errorf("%s has no skills; skillsDir names another directory", t.where(dir))
	}
	resolved.Commit, resolved.Tree = t.commit, objects[0].id
	return &origin{t, resolved, skills}, nil
}

// read reads the skills of an entry.
func (r *reader) read(ctx context.Context, e *Entry) (resolved Resolved, skills []*taken, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, fetchTime, errTime)
	defer cancel()
	f, err := r.resolve(ctx, &e.Source)
	if err != nil {
		return resolved, nil, fmt.Errorf("%s: %w", e.Name, err)
	}
	if err := f.parse(ctx, f.skills); err != nil {
		return resolved, nil, fmt.Errorf("%s: %w", e.Name, err)
	}
	chosen, err := f.choose(f.skills, e.Source.Include)
	if err != nil {
		return resolved, nil, fmt.Errorf("%s: %w", e.Name, err)
	}
	left := &budget{MaxFiles, MaxBytes}
	for i := range chosen {
		s, err := f.take(ctx, &chosen[i], left)
		if err != nil {
			return resolved, nil, fmt.Errorf("%s: %w", e.Name, err)
		}
		skills = append(skills, s)
	}
	if len(skills) == 0 {
		return resolved, nil, fmt.Errorf("%s: %w", e.Name, errors.New("the source has no skills"))
	}
	return f.resolved, skills, nil
}

// moved asks the remote whether an entry would be resolved to something else than what the
// lock has. It returns "" if not.
func (r *reader) moved(ctx context.Context, e *Entry, was *Resolved) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, fetchTime, errTime)
	defer cancel()
	if e.Source.Type == TypeMarketplace {
		return r.movedPlugin(ctx, e, was)
	}
	if e.Source.SHA != "" {
		return "", nil
	}
	from, err := parseRemote(e.Source.URL, r.allowLocal)
	if err != nil {
		return "", fmt.Errorf("url %w", err)
	}
	return r.movedRef(ctx, from.from(r.base), e.Source.pin(), was)
}

func (r *reader) movedRef(ctx context.Context, from remote, p pin, was *Resolved) (string, error) {
	own, err := newRepository(ctx, r.dir, from, was.Commit)
	if err != nil {
		return "", err
	}
	_, commit, err := own.findRef(ctx, p)
	if err != nil || commit == was.Commit {
		return "", err
	}
	return fmt.Sprintf("%s of %s has moved from %.12s to %.12s", p, from.url, was.Commit, commit), nil
}

// movedPlugin compares the plugin, not the commit of the marketplace: that moves with every
// other plugin.
func (r *reader) movedPlugin(ctx context.Context, e *Entry, was *Resolved) (string, error) {
	from, err := parseRemote(e.Source.URL, r.allowLocal)
	if err != nil {
		return "", fmt.Errorf("url %w", err)
	}
	market, err := r.get(ctx, from.from(r.base), e.Source.pin())
	if err != nil {
		return "", err
	}
	place, said, err := r.locate(ctx, &e.Source, market, from)
	if err != nil {
		return "", err
	}
	name := fmt.Sprintf("plugin %s of %s", e.Source.Plugin, from.url)
	switch {
	case place.remote != nil && place.remote.url != was.URL:
		return fmt.Sprintf("%s has moved to %s", name, place.remote.url), nil
	case place.remote == nil && was.URL != "":
		return fmt.Sprintf("%s has moved from %s to the marketplace itself", name, was.URL), nil
	case said.Directory != was.Directory:
		return fmt.Sprintf("%s has moved from the directory %s to %s", name, clean(was.Directory), clean(said.Directory)), nil
	case said.NotStrict != was.NotStrict || !slices.Equal(said.Listed, was.Listed):
		return name + " lists other skills now", nil
	case place.remote == nil:
		objects, err := market.lookUp(ctx, market.at(place.dir))
		if err != nil || objects[0].id == was.Tree {
			return "", err
		}
		return fmt.Sprintf("%s has changed since %.12s", name, was.Commit), nil
	case place.pin.sha == was.Commit:
		return "", nil
	case place.pin.sha != "":
		return fmt.Sprintf("%s has moved from %.12s to %.12s", name, was.Commit, place.pin.sha), nil
	}
	return r.movedRef(ctx, *place.remote, place.pin, was)
}
