package skill

import (
	"context"
	"io"
	"slices"
)

// Only returns a provider of those skills of another one that have one of the names. Names
// that the other does not have are reported.
func Only(p Provider, names ...string) Provider {
	sorted := slices.Clone(names)
	slices.Sort(sorted)
	return &only{p, slices.Compact(sorted)}
}

type only struct {
	p     Provider
	names []string // sorted
}

func (o *only) has(name string) bool {
	_, found := slices.BinarySearch(o.names, name)
	return found
}

func (o *only) List(ctx context.Context, scope Scope) ([]Metadata, error) {
	list, err := o.p.List(ctx, scope)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(list), func(one Metadata) bool { return !o.has(one.Name) }), nil
}

func (o *only) Load(ctx context.Context, scope Scope, name string) (*Skill, error) {
	if !o.has(name) {
		return nil, notFound(name)
	}
	return o.p.Load(ctx, scope, name)
}

func (o *only) Open(ctx context.Context, scope Scope, name, path string) (io.ReadCloser, error) {
	if !o.has(name) {
		return nil, notFound(name)
	}
	return o.p.Open(ctx, scope, name, path)
}

// Problems returns those about the named skills. Who may not use the others need not know
// what is wrong with them, or with the place where they are.
func (o *only) Problems(ctx context.Context, scope Scope) []*Problem {
	var out []*Problem
	told := map[string]bool{}
	for _, p := range Problems(ctx, o.p, scope) {
		if o.has(p.Skill) {
			out = append(out, p)
			told[p.Skill] = told[p.Skill] || p.Refused
		}
	}
	list, err := o.p.List(ctx, scope)
	if err != nil {
		return limitProblems(out)
	}
	for _, name := range o.names {
		exists := slices.ContainsFunc(list, func(one Metadata) bool { return one.Name == name })
		if !exists && !told[name] {
			out = append(out, &Problem{Skill: name, Message: "does not exist", Refused: true})
		}
	}
	return limitProblems(out)
}
