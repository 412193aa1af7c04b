//go:build unix && !linux

package testserver

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"syscall"
)

// setDeathSignal does nothing: a server outlives tests that crash, until the next ones on its port find it there.
func setDeathSignal(*syscall.SysProcAttr, syscall.Signal) {}

// descendants lists the processes that pid has started, and those that they have started.
func descendants(pid int) ([]int, error) {
	out, err := exec.CommandContext(context.Background(), "ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	children := map[int][]int{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var child, parent int
		if _, err := fmt.Sscan(lines.Text(), &child, &parent); err == nil {
			children[parent] = append(children[parent], child)
		}
	}
	family := children[pid]
	for i := 0; i < len(family); i++ {
		family = append(family, children[family[i]]...)
	}
	return family, nil
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

// removeSegment does nothing: the next start of the machine cleans up.
func removeSegment(int) {}
