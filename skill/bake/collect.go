package bake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/helixagents/helix/skill"
	"github.com/helixagents/helix/skill/files"
)

// tree is a commit of a repository.
type tree struct {
	*repository
	commit string
}

// at returns git's name of a path in the commit.
func (t *tree) at(dir string) string {
	if dir == "." {
		return t.commit + "^{tree}"
	}
	return t.commit + ":" + dir
}

// where names a path of the commit in messages.
func (t *tree) where(dir string) string {
	return fmt.Sprintf("%s of %s at %.12s", clean(dir), t.remote.url, t.commit)
}

// candidate is a directory that may be a skill.
type candidate struct {
	path string
	tree string // its id
	// refused is why it cannot be one, although it looks like it.
	refused error
	// doc is the parsed SKILL.md.
	doc *skill.Skill
	// warnings are what is wrong with SKILL.md.
	warnings []*skill.Problem
}

// skillsIn returns the skills in a directory: the directory itself if it has a SKILL.md, or
// else those of its directories that have one.
func (t *tree) skillsIn(ctx context.Context, dir string) ([]candidate, error) {
	objects, err := t.lookUp(ctx, t.at(dir))
	if err != nil {
		return nil, err
	}
	if objects[0].kind != "tree" {
		return nil, fmt.Errorf("%s is not a directory", t.where(dir))
	}
	entries, err := t.list(ctx, objects[0].id, false)
	if err != nil {
		return nil, err
	}
	var found []candidate
	var ask []string
	for _, e := range entries {
		switch {
		case e.path == skill.FileName && e.kind == "blob" && e.mode != modeLink:
			return []candidate{{path: dir, tree: objects[0].id}}, nil
		case skill.CheckPath(e.path) != nil: // nothing that git could be asked for
		case e.mode == modeTree:
			found = append(found, candidate{path: path.Join(dir, e.path), tree: e.id})
			ask = append(ask, e.id+":"+skill.FileName)
		case skill.CheckName(e.path) != nil: // not the directory of a skill
		case e.mode == modeLink:
			found = append(found, candidate{path: path.Join(dir, e.path), refused: errors.New("it is a symbolic link")})
		case e.mode == modeSubmodule:
			found = append(found, candidate{path: path.Join(dir, e.path), refused: errors.New("it is a submodule")})
		}
	}
	return t.withSkillFile(ctx, found, ask)
}

// withSkillFile returns those candidates that have a SKILL.md, and those that were refused.
func (t *tree) withSkillFile(ctx context.Context, all []candidate, ask []string) ([]candidate, error) {
	answers, err := t.lookUp(ctx, ask...)
	if err != nil {
		return nil, err
	}
	var found []candidate
	for _, c := range all {
		if c.tree != "" {
			kind := answers[0].kind
			answers = answers[1:]
			if kind != "blob" {
				continue
			}
		}
		found = append(found, c)
	}
	return found, nil
}

// parse reads the SKILL.md of each candidate. One that is invalid is refused.
func (t *tree) parse(ctx context.Context, all []candidate) error {
	var ask []string
	for _, c := range all {
		if c.refused == nil {
			ask = append(ask, c.tree+":"+skill.FileName)
		}
	}
	objects, err := t.lookUp(ctx, ask...)
	if err != nil {
		return err
	}
	var blobs []treeEntry
	var of []*candidate
	for i := range all {
		c := &all[i]
		if c.refused != nil {
			continue
		}
		o := objects[0]
		objects = objects[1:]
		switch {
		case o.kind != "blob":
			c.refused = fmt.Errorf("it has no file %s", skill.FileName)
		case o.size > skill.MaxBody:
			c.refused = fmt.Errorf("%s has %d bytes; at most %d are allowed", skill.FileName, o.size, skill.MaxBody)
		default:
			blobs, of = append(blobs, treeEntry{object: o}), append(of, c)
		}
	}
	return t.read(ctx, blobs, func(i int, content []byte) error {
		c := of[i]
		c.doc, c.warnings, c.refused = files.Parse(path.Join(c.path, skill.FileName), content)
		if c.refused == nil {
			c.refused = checkElement(c.doc.Name) // it becomes a directory
		}
		return nil
	})
}

// choose returns the skills to take: those in include, or all. A candidate whose name is
// not known is left out only if include does not have the name of its directory.
func (t *tree) choose(all []candidate, include []string) ([]candidate, error) {
	chosen := map[string]candidate{}
	have := map[string]bool{}
	for _, c := range all {
		name := path.Base(c.path)
		if c.doc != nil {
			name = c.doc.Name
			have[name] = true
		}
		if len(include) > 0 && !slices.Contains(include, name) {
			continue
		}
		if c.refused != nil {
			return nil, fmt.Errorf("%s cannot be taken: %w%s", t.where(c.path), c.refused, otherwise(include))
		}
		if twice, ok := chosen[name]; ok {
			return nil, fmt.Errorf("%s and %s are both skills named %s", t.where(twice.path), clean(c.path), name)
		}
		chosen[name] = c
	}
	for _, name := range include {
		if _, ok := chosen[name]; !ok {
			return nil, fmt.Errorf("%s has no skill %s; it has %s", t.where("the source"), name, listed(slices.Sorted(maps.Keys(have))))
		}
	}
	if len(chosen) > skill.MaxSkills {
		return nil, fmt.Errorf("%s has %d skills; at most %d are allowed", t.where("the source"), len(chosen), skill.MaxSkills)
	}
	var out []candidate
	for _, name := range slices.Sorted(maps.Keys(chosen)) {
		out = append(out, chosen[name])
	}
	return out, nil
}

// otherwise is the way out for a source of which one skill cannot be taken.
func otherwise(include []string) string {
	if len(include) > 0 {
		return ""
	}
	return "; name the skills that you want in include to leave it out"
}

// listed joins names for a message.
func listed(names []string) string {
	const most = 20
	switch {
	case len(names) == 0:
		return "none"
	case len(names) > most:
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// taken is a skill that was read from a source.
type taken struct {
	meta  skill.Metadata
	files []takenFile
	notes []string
}

type takenFile struct {
	path       string
	executable bool
	content    []byte
}

// budget is what a source may still use.
type budget struct {
	files int
	bytes int64
}

// take reads all files of a skill.
func (t *tree) take(ctx context.Context, c *candidate, left *budget) (*taken, error) {
	entries, err := t.list(ctx, c.tree, true)
	if err != nil {
		return nil, err
	}
	s := &taken{meta: c.doc.Metadata}
	for _, w := range c.warnings {
		s.notes = append(s.notes, w.Error())
	}
	omitted := 0
	seen := names{}
	var blobs []treeEntry
	for _, e := range entries {
		if isLeftOut(e.path) {
			omitted++
			continue
		}
		if err := t.admit(&e, seen, left); err != nil {
			return nil, fmt.Errorf("%s cannot be taken: %s: %w", t.where(c.path), quote(e.path), err)
		}
		blobs = append(blobs, e)
	}
	err = t.read(ctx, blobs, func(i int, content []byte) error {
		e := &blobs[i]
		if strings.HasPrefix(string(content[:min(len(content), len(lfsPointer))]), lfsPointer) {
			s.notes = append(s.notes, fmt.Sprintf("%s/%s is a pointer to a file in Git LFS; the file itself is not fetched", s.meta.Name, e.path))
		}
		s.files = append(s.files, takenFile{e.path, e.mode == modeExecutable, content})
		return nil
	})
	if omitted > 0 {
		s.notes = append(s.notes, fmt.Sprintf("%s: %d of its files are for git or Node.js and are left out", s.meta.Name, omitted))
	}
	return s, err
}

const lfsPointer = "version https://git-lfs.github.com/spec/"

// admit checks one file of a skill.
func (t *tree) admit(e *treeEntry, seen names, left *budget) error {
	switch {
	case e.mode == modeLink:
		return errors.New("it is a symbolic link")
	case e.mode == modeSubmodule:
		return errors.New("it is a submodule")
	case e.kind != "blob":
		return fmt.Errorf("it is neither a file nor a directory, but has the mode %s", e.mode)
	}
	if err := checkFile(e.path); err != nil {
		return err
	}
	if err := seen.add(e.path); err != nil {
		return err
	}
	left.files--
	left.bytes -= e.size
	switch {
	case left.files < 0:
		return fmt.Errorf("the skills of a source have at most %d files", MaxFiles)
	case left.bytes < 0:
		return fmt.Errorf("the skills of a source have at most %d bytes", MaxBytes)
	}
	return nil
}
