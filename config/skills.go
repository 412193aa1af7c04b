package config

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/extension/skills"
	"github.com/helixagents/helix/skill"
	"github.com/helixagents/helix/skill/files"
)

// skillsLimit is how long the directories of skills may take to be read.
const skillsLimit = 20 * time.Second

// checkSkillDirs checks the directories of skills, but not what is in them.
func (f *File) checkSkillDirs() {
	for i, dir := range f.Skills.Dirs {
		path := fmt.Sprintf("skills.dirs[%d]", i)
		switch {
		case dir == "":
			f.source.wrong(path, "expected the path of a directory, found none")
		case slices.Index(f.Skills.Dirs, dir) < i:
			f.source.wrong(path, "the directory %q is listed twice", dir)
		}
	}
}

// checkSkills checks the names of an agent's skills.
func (f *File) checkSkills(a *Agent, path string) {
	if !f.given(path) {
		return
	}
	if len(f.Skills.Dirs) == 0 && !f.Skills.Embed && !f.damaged("skills") && !f.damaged("skills.dirs") {
		f.source.wrong(path, "the file has no skills; the key skills.dirs names their directories")
	}
	for key, names := range map[string][]string{"only": a.Skills.Only, "preload": a.Skills.Preload} {
		for i, name := range names {
			at := fmt.Sprintf("%s.%s[%d]", path, key, i)
			switch err := skill.CheckName(name); {
			case err != nil:
				f.source.wrong(at, "%s", because(err))
			case slices.Index(names, name) < i:
				f.source.wrong(at, "the skill %q is listed twice", name)
			case key == "preload" && len(a.Skills.Only) > 0 && !slices.Contains(a.Skills.Only, name):
				f.source.wrong(at, "the skill %q is not one of those in only", name)
			}
		}
	}
}

// skillDirs returns the directories of skills as the process finds them.
func (f *File) skillDirs() []string {
	out := make([]string, len(f.Skills.Dirs))
	for i, dir := range f.Skills.Dirs {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(filepath.Dir(f.Name()), dir)
		}
		out[i] = dir
	}
	return out
}

// foundSkills are the skills of the file's directories and of the program.
type foundSkills struct {
	provider skill.Provider
	names    []string
	problems []*skill.Problem
	missing  bool // they could not be read, which was noted
}

// find reads the skills once for all agents.
func (b *builder) find() *foundSkills {
	if b.found == nil {
		b.found = b.file.findSkills(b.source, b.opts.Skills)
	}
	return b.found
}

// findSkills reads the skills of the file's directories and of the program.
func (f *File) findSkills(s *source, embedded skill.Provider) *foundSkills {
	found := &foundSkills{}
	var all []skill.Provider
	for i, dir := range f.skillDirs() {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			found.missing = true
			why := "it is not a directory"
			if err != nil {
				why = because(err)
			}
			s.wrong(fmt.Sprintf("skills.dirs[%d]", i), "the directory %s cannot be read: %s", dir, why)
		}
	}
	if len(f.Skills.Dirs) > 0 {
		all = append(all, files.Dir(f.skillDirs()...))
	}
	if f.Skills.Embed {
		if embedded == nil {
			found.missing = true
			s.wrong("skills.embed", "this program has no skills of its own")
		} else {
			all = append(all, embedded)
		}
	}
	found.provider = skill.Merge(all...)
	if found.missing {
		return found
	}
	ctx, cancel := context.WithTimeout(context.Background(), skillsLimit)
	defer cancel()
	list, err := found.provider.List(ctx, skill.Scope{})
	if err != nil {
		found.missing = true
		s.wrong("skills", "the skills cannot be read: %s", because(err))
		return found
	}
	for _, m := range list {
		found.names = append(found.names, m.Name)
	}
	found.problems = skill.Problems(ctx, found.provider, skill.Scope{})
	return found
}

// skills builds the extension with an agent's skills, or returns nil.
func (b *builder) skills(a *Agent, path string) helix.Extension {
	if !b.file.given(path) {
		return nil
	}
	found := b.find()
	b.file.checkFound(b.source, found, a)
	cfg := skills.Config{Provider: found.provider, Preload: a.Skills.Preload, Logger: b.opts.Logger}
	if len(a.Skills.Only) > 0 {
		cfg.Provider = skill.Only(found.provider, a.Skills.Only...)
	}
	if a.Skills.AllowedTools == "restrict" {
		cfg.AllowedTools = skills.Restrict
	}
	return skills.New(cfg)
}

// checkFound finds names of an agent's skills that do not exist, or that cannot be used.
func (f *File) checkFound(s *source, found *foundSkills, a *Agent) {
	if found.missing {
		return
	}
	for key, names := range map[string][]string{"only": a.Skills.Only, "preload": a.Skills.Preload} {
		for i, name := range names {
			at := fmt.Sprintf("agents.%s.skills.%s[%d]", a.Name, key, i)
			bad := slices.IndexFunc(found.problems, func(p *skill.Problem) bool { return p.Skill == name && p.Refused })
			switch {
			case slices.Contains(found.names, name):
			case bad >= 0:
				s.wrong(at, "the skill %q cannot be used: %v", name, found.problems[bad])
			default:
				s.wrong(at, "there is no skill %q%s", name, f.hint(name, found.names))
			}
		}
	}
}

// CheckSkills reads the skills of the file and returns their names and what is wrong: problems
// of skills that cannot be used and of names that do not exist, and warnings about other
// skills. Both have the place in the skill's own file, or in this one. embedded are the
// program's own skills.
func (f *File) CheckSkills(embedded skill.Provider) (names []string, problems, warnings []Problem) {
	if len(f.Skills.Dirs) == 0 && !f.Skills.Embed {
		return nil, nil, nil
	}
	s := f.source.anew()
	found := f.findSkills(s, embedded)
	for i := range f.Agents {
		f.checkFound(s, found, &f.Agents[i])
	}
	if failure, ok := errors.AsType[*Error](s.err()); ok {
		problems = failure.Problems
	}
	for _, p := range found.problems {
		one := Problem{File: p.Path, Line: max(p.Line, 1), Column: max(p.Column, 1), Message: p.Full()}
		if p.Path == "" {
			at := s.place("skills").key
			one = Problem{File: f.Name(), Line: at.line, Column: at.column, Path: "skills", Message: p.Error()}
		}
		if p.Refused {
			problems = append(problems, one)
		} else {
			warnings = append(warnings, one)
		}
	}
	return found.names, problems, warnings
}
