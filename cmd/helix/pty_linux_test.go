package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/helixagents/helix/internal/eventually"
)

// terminal is a program on a terminal of its own, with somebody who types and looks.
type terminal struct {
	*program
	keys    *os.File
	columns int
}

// startOn starts the program in a directory on a terminal that is so wide.
func startOn(t *testing.T, dir string, columns int, args ...string) *terminal {
	t.Helper()
	master, tty := openTerminal(t, columns)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &program{t: t, cmd: exec.Command(self, args...), out: newOutput(), err: newOutput(), done: make(chan struct{})}
	p.cmd.Dir = dir
	p.cmd.Env = []string{beProgram + "=1", "GORACE=atexit_sleep_ms=0", "TERM=xterm", "NO_COLOR=1", "TZ=UTC"}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = tty, tty, tty
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := tty.Close(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		buffer := make([]byte, 4096)
		for {
			n, err := master.Read(buffer)
			_, _ = p.out.Write(buffer[:n])
			if err != nil { // the program has ended, and its terminal with it
				return
			}
		}
	}()
	go func() {
		_ = p.cmd.Wait() // how it ended is in ProcessState
		<-read
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		_ = master.Close()
	})
	return &terminal{program: p, keys: master, columns: columns}
}

// openTerminal makes a pseudo terminal.
func openTerminal(t *testing.T, columns int) (master, tty *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: uint16(columns)}); err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, tty
}

// Keys as terminals send them.
const (
	arrowUp    = "\x1b[A"
	arrowDown  = "\x1b[B"
	arrowRight = "\x1b[C"
	arrowLeft  = "\x1b[D"
	homeKey    = "\x1b[H"
	endKey     = "\x1b[F"
	ctrlA      = "\x01"
	ctrlC      = "\x03"
	ctrlD      = "\x04"
	ctrlE      = "\x05"
	ctrlK      = "\x0b"
	ctrlU      = "\x15"
	ctrlW      = "\x17"
	rubOut     = "\x7f"
	enterKey   = "\r"
)

// press types keys, at a prompt or in an answer.
func (p *terminal) press(keys ...string) {
	p.t.Helper()
	if _, err := p.keys.WriteString(strings.Join(keys, "")); err != nil {
		p.t.Fatalf("type %q: %v", keys, err)
	}
}

// sees waits until something is on the screen, as a person reads it.
func (p *terminal) sees(want string) {
	p.t.Helper()
	p.awaits(want, func(screen []string) bool { return strings.Contains(strings.Join(screen, "\n"), want) })
}

// asked waits for a prompt with what is typed behind it, at the end of the screen.
func (p *terminal) asked(want string) {
	p.t.Helper()
	p.awaits(want, func(screen []string) bool { return len(screen) > 0 && screen[len(screen)-1] == want })
}

func (p *terminal) awaits(want string, seen func(screen []string) bool) {
	p.t.Helper()
	timeout := time.After(eventually.Patience)
	for {
		text, changed := p.out.read()
		if seen(screenOf(text, p.columns)) {
			return
		}
		select {
		case <-changed:
		case <-p.done:
			if text := p.out.String(); !seen(screenOf(text, p.columns)) {
				p.t.Fatalf("it ended without showing %q:\n%s", want, strings.Join(screenOf(text, p.columns), "\n"))
			}
			return
		case <-timeout:
			p.t.Fatalf("it does not show %q:\n%s\n%q", want, strings.Join(screenOf(p.out.String(), p.columns), "\n"), p.out.String())
		}
	}
}

// screenOf is what a terminal shows of what was written to it. It knows what the
// program writes: returns, new lines, clearing a row, moving right; and it wraps.
func screenOf(text string, columns int) []string {
	var rows [][]string
	row, column := 0, 0
	cell := func(r rune) {
		wide := columnsOf([]rune{r})
		if wide == 0 && column > 0 {
			rows[row][column-1] += string(r)
			return
		}
		if column+wide > columns {
			row, column = row+1, 0
		}
		for len(rows) <= row {
			rows = append(rows, nil)
		}
		for len(rows[row]) < column+wide {
			rows[row] = append(rows[row], " ")
		}
		rows[row][column] = string(r)
		if wide == 2 {
			rows[row][column+1] = ""
		}
		column += wide
	}
	for text != "" {
		r, size := utf8.DecodeRuneInString(text)
		text = text[size:]
		switch {
		case r == '\r':
			column = 0
		case r == '\n':
			row++
		case r == escape && strings.HasPrefix(text, "["):
			end := strings.IndexFunc(text[1:], func(r rune) bool { return r >= '@' && r <= '~' }) + 1
			if end == 0 {
				return nil // half of it has come
			}
			parameter := text[1:end]
			switch text[end] {
			case 'K':
				if row < len(rows) {
					rows[row] = rows[row][:min(column, len(rows[row]))]
				}
			case 'C':
				n, err := strconv.Atoi(parameter)
				if err != nil {
					return nil
				}
				column += n
			}
			text = text[end+1:]
		case r >= ' ':
			cell(r)
		}
		for len(rows) <= row {
			rows = append(rows, nil)
		}
	}
	out := make([]string, len(rows))
	for i := range rows {
		out[i] = strings.TrimRight(strings.Join(rows[i], ""), " ")
	}
	return out[:len(out)-countBlank(out)]
}

func countBlank(rows []string) int {
	n := 0
	for _, row := range slices.Backward(rows) {
		if row != "" {
			break
		}
		n++
	}
	return n
}
