package server

import (
	"cmp"
	"slices"
)

// Routes lists the routes that the handler serves, by path and method.
func Routes() []string {
	all := table()
	slices.SortFunc(all, func(a, b route) int { return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.method, b.method)) })
	var out []string
	for i := range all {
		out = append(out, all[i].pattern())
	}
	return out
}
