//go:build linux || darwin || freebsd || netbsd || openbsd

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// hideTyping keeps a terminal from showing what is typed, such as ^C, in the middle of what
// the program writes. What was typed is there when a line is read. It returns a function
// that ends that.
func hideTyping(terminal *os.File) (end func()) {
	fd := int(terminal.Fd())
	before, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return func() {} // it is no terminal
	}
	quiet := *before
	quiet.Lflag &^= unix.ECHO
	if unix.IoctlSetTermios(fd, setTermios, &quiet) != nil {
		return func() {}
	}
	return func() { _ = unix.IoctlSetTermios(fd, setTermios, before) } // it fails only if the terminal has been closed
}
