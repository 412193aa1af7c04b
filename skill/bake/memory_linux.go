package bake

import (
	"os"

	"golang.org/x/sys/unix"
)

// limitMemory limits how much memory a process, and each one that it starts, may use. A small
// pack can describe objects that would fill any machine.
func limitMemory(p *os.Process, bytes uint64) {
	var is unix.Rlimit
	if unix.Prlimit(p.Pid, unix.RLIMIT_DATA, nil, &is) != nil || is.Cur <= bytes {
		return // it has ended, or has a limit already
	}
	_ = unix.Prlimit(p.Pid, unix.RLIMIT_DATA, &unix.Rlimit{Cur: bytes, Max: bytes}, nil) // if it has ended, it needs none
}
