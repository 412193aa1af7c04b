//go:build darwin || freebsd || netbsd || openbsd

package main

import "golang.org/x/sys/unix"

// The requests for the settings of a terminal.
const (
	getTermios = unix.TIOCGETA
	setTermios = unix.TIOCSETA
)
