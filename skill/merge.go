package skill

import (
	"context"
	"fmt"
	"io"
	"slices"
)

// Merge returns a provider of the skills of several. If more than one has a skill of a
// name, that of the first one counts, and the others are reported.
//
// A provider that fails makes the whole fail: what it hides must not take its place for as
// long as it is away.
func Merge(providers ...Provider) Provider {
	if len(providers) == 1 {
		return providers[0]
	}
	return merged(providers)
}

type merged []Provider

func (m merged) List(ctx context.Context, scope Scope) ([]Metadata, error) {
	list, _, err := m.merge(ctx, scope)
	return list, err
}

// merge returns what the providers have together, and what is hidden.
func (m merged) merge(ctx context.Context, scope Scope) ([]Metadata, []*Problem, error) {
	var out []Metadata
	var hidden []*Problem
	seen := map[string]bool{}
	for _, p := range m {
		list, err := p.List(ctx, scope)
		if err != nil {
			return nil, nil, err
		}
		for _, one := range list {
			switch {
			case seen[one.Name]:
				hidden = append(hidden, shadowed(one.Name, "a skill of the same name from an earlier source"))
			case len(out) == MaxSkills:
				hidden = append(hidden, &Problem{Skill: one.Name, Refused: true, Message: fmt.Sprintf("there are more than %d skills", MaxSkills)})
			default:
				seen[one.Name] = true
				out = append(out, one)
			}
		}
	}
	slices.SortFunc(out, byName)
	return out, hidden, nil
}

func (m merged) Load(ctx context.Context, scope Scope, name string) (*Skill, error) {
	p, err := m.of(ctx, scope, name)
	if err != nil {
		return nil, err
	}
	return p.Load(ctx, scope, name)
}

func (m merged) Open(ctx context.Context, scope Scope, name, path string) (io.ReadCloser, error) {
	p, err := m.of(ctx, scope, name)
	if err != nil {
		return nil, err
	}
	return p.Open(ctx, scope, name, path)
}

// of returns the provider whose skill of a name counts: the first one that lists it. Whether
// it can be loaded, and has a file, does not decide: neither may come from another skill of
// the same name.
func (m merged) of(ctx context.Context, scope Scope, name string) (Provider, error) {
	for _, p := range m {
		list, err := p.List(ctx, scope)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(list, func(one Metadata) bool { return one.Name == name }) {
			return p, nil
		}
	}
	return nil, notFound(name)
}

func (m merged) Problems(ctx context.Context, scope Scope) []*Problem {
	var out []*Problem
	for _, p := range m {
		out = append(out, Problems(ctx, p, scope)...)
	}
	if _, hidden, err := m.merge(ctx, scope); err == nil {
		out = append(out, hidden...)
	}
	return limitProblems(out)
}
