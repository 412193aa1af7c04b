package testserver

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

func setDeathSignal(attr *syscall.SysProcAttr, sig syscall.Signal) { attr.Pdeathsig = sig }

// descendants lists the processes that pid has started, and those that they have started.
func descendants(pid int) ([]int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for _, stat := range stats {
		child, err := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
		if err != nil {
			continue
		}
		if parent, _, ok := readStat(child); ok {
			children[parent] = append(children[parent], child)
		}
	}
	family := children[pid]
	for i := 0; i < len(family); i++ {
		family = append(family, children[family[i]]...)
	}
	return family, nil
}

// alive reports whether a process still runs. One that has ended and that nobody has asked about yet does not.
func alive(pid int) bool {
	_, state, ok := readStat(pid)
	return ok && state != 'Z' && state != 'X'
}

func readStat(pid int) (parent int, state byte, ok bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0, false
	}
	// pid (name) state parent …, and the name may hold anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0, 0, false
	}
	parent, err = strconv.Atoi(string(fields[1]))
	return parent, fields[0][0], err == nil
}

// removeSegment removes a System V shared memory segment that no process uses any more.
func removeSegment(id int) {
	const remove = 0 // IPC_RMID
	_, _, _ = syscall.Syscall(syscall.SYS_SHMCTL, uintptr(id), remove, 0)
}
