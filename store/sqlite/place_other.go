//go:build !linux

package sqlite

// networkDisk names the file system of a path if it may be on another machine; here
// that is not known.
func networkDisk(string) string { return "" }
