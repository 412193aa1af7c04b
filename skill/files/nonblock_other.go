//go:build !unix

package files

// nonblock makes opening a pipe return at once.
const nonblock = 0
