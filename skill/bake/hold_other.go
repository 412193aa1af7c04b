//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package bake

// hold makes this the only sync in a directory until release.
func hold(dir string) (release func(), err error) { return holdFile(dir) }
