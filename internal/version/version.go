// Package version tells which version of Helix a program contains.
package version

import "runtime/debug"

const module = "github.com/helixagents/helix"

// Helix returns the version of Helix that this program was built with, such as v0.1.0, as the
// Go tool recorded it, or "(devel)" if it did not.
func Helix() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return devel
	}
	return findVersion(info)
}

const devel = "(devel)"

func findVersion(info *debug.BuildInfo) string {
	found := &info.Main
	if found.Path != module {
		found = nil
		for _, dep := range info.Deps {
			if dep.Path == module {
				found = dep
			}
		}
	}
	if found == nil || found.Replace != nil || found.Version == "" {
		return devel // a replaced module is whatever its directory has
	}
	return found.Version
}
