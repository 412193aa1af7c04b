//go:build unix

package main

import (
	"math/rand/v2"
	"os"
	"syscall"
	"time"
)

// stall stops a process now and then, for a part of a second, and returns how often it did. The processes that it started
// go on, and so do servers: to them it is a client that does not answer.
func stall(process *os.Process, ended <-chan struct{}) (times int) {
	wait := func(d time.Duration) bool {
		select {
		case <-time.After(d):
			return true
		case <-ended:
			return false
		}
	}
	// Some waits are short, because some tests are.
	for wait(rand.N([]time.Duration{50 * time.Millisecond, 500 * time.Millisecond, 3 * time.Second}[rand.N(3)])) {
		if process.Signal(syscall.SIGSTOP) != nil { // it has ended
			continue
		}
		times++
		wait(100*time.Millisecond + rand.N(500*time.Millisecond))
		_ = process.Signal(syscall.SIGCONT) // it may have been killed
	}
	return times
}
