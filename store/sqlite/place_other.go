//go:build !linux

package sqlite

// networkDisk returns the name of a path's file system if it may be on another
// machine; on this platform it is not known.
func networkDisk(string) string { return "" }
