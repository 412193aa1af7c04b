package skill

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Static returns a provider of skills that are part of the program. A skill that is invalid
// is left out and reported; see [Skill.Check]. If two have the same name, the first one
// counts.
func Static(skills ...Skill) Provider {
	s := &static{byName: map[string]*Skill{}}
	for _, one := range skills {
		switch err := one.Check(); {
		case err != nil:
			s.problems = append(s.problems, problemOf(one.Name, err))
		case s.byName[one.Name] != nil:
			s.problems = append(s.problems, shadowed(one.Name, "a skill of the same name that was given before"))
		case len(s.list) == MaxSkills:
			s.problems = append(s.problems, &Problem{Skill: one.Name, Refused: true, Message: fmt.Sprintf("there are more than %d skills", MaxSkills)})
		default:
			s.add(one)
		}
	}
	slices.SortFunc(s.list, byName)
	s.problems = limitProblems(s.problems)
	return s
}

type static struct {
	byName   map[string]*Skill
	list     []Metadata
	problems []*Problem
}

func byName(a, b Metadata) int { return cmp.Compare(a.Name, b.Name) }

// shadowed is the warning about a skill that another one of its name takes the place of.
func shadowed(name, by string) *Problem {
	return &Problem{Skill: name, Message: "is hidden by " + by}
}

func (s *static) add(one Skill) {
	one.Files = slices.Clone(one.Files)
	slices.SortFunc(one.Files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	one.Digest = ""
	// There is no SKILL.md: its place is taken by all that it would say.
	head, _ := json.Marshal(struct { //nolint:errchkjson // strings only
		Metadata
		Body string
	}{one.Metadata, one.Body})
	sums := []FileSum{Sum(FileName, false, head)}
	for i, f := range one.Files {
		one.Files[i].Size = int64(len(f.Content))
		sums = append(sums, Sum(f.Path, f.Executable, f.Content))
	}
	one.Digest = Digest(sums)
	s.byName[one.Name] = &one
	s.list = append(s.list, one.Metadata)
}

func (s *static) List(context.Context, Scope) ([]Metadata, error) { return slices.Clone(s.list), nil }

func (s *static) Load(_ context.Context, _ Scope, name string) (*Skill, error) {
	one := s.byName[name]
	if one == nil {
		return nil, notFound(name)
	}
	out := *one
	out.Files = slices.Clone(one.Files)
	for i := range out.Files {
		out.Files[i].Content = nil
	}
	return &out, nil
}

func (s *static) Open(_ context.Context, _ Scope, name, path string) (io.ReadCloser, error) {
	one := s.byName[name]
	if one == nil {
		return nil, notFound(name)
	}
	if path == FileName {
		return io.NopCloser(strings.NewReader(one.Body)), nil
	}
	for _, f := range one.Files {
		if f.Path == path {
			return io.NopCloser(bytes.NewReader(f.Content)), nil
		}
	}
	return nil, noFile(name, path)
}

func (s *static) Problems(context.Context, Scope) []*Problem { return s.problems }
