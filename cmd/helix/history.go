package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	historyName = "chat_history"
	// maxHistory is how many lines are kept, maxEntry how long one may be.
	maxHistory = 1000
	maxEntry   = 8 << 10
)

// history is what was typed in this and earlier chats. It is a file of its user alone,
// with a JSON text in each line. Chats at the same time append to it.
type history struct {
	path  string
	lines []string
}

// openHistory reads the history in a directory. One that cannot be read begins anew.
func openHistory(dir string) *history {
	h := &history{path: filepath.Join(dir, historyName)}
	raw, err := os.ReadFile(h.path)
	if err != nil {
		return h
	}
	total := 0
	for line := range bytes.Lines(raw) {
		var text string
		if total++; json.Unmarshal(line, &text) == nil && text != "" {
			h.lines = append(h.lines, text)
		}
	}
	h.lines = h.lines[max(len(h.lines)-maxHistory, 0):]
	if total > 2*maxHistory {
		h.shorten()
	}
	return h
}

// len is how many lines there are. A history that is nil has none.
func (h *history) len() int {
	if h == nil {
		return 0
	}
	return len(h.lines)
}

func (h *history) line(at int) string { return h.lines[at] }

// add appends a line, here and in the file, unless it is the one before again. That it
// cannot be kept is no reason not to talk.
func (h *history) add(line string) {
	if h == nil || line == "" || len(line) > maxEntry || (len(h.lines) > 0 && h.lines[len(h.lines)-1] == line) {
		return
	}
	h.lines = append(h.lines, line)
	h.lines = h.lines[max(len(h.lines)-maxHistory, 0):]
	_ = h.append(line)
}

func (h *history) append(line string) error {
	if err := os.MkdirAll(filepath.Dir(h.path), 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(h.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(line)
	if err == nil {
		err = file.Chmod(0o600) // also if somebody made it readable
	}
	if err == nil {
		_, err = file.Write(append(raw, '\n'))
	}
	return errors.Join(err, file.Close())
}

// shorten writes the file anew, with the lines that are kept.
func (h *history) shorten() {
	var out bytes.Buffer
	for _, line := range h.lines {
		raw, err := json.Marshal(line)
		if err != nil {
			return
		}
		out.Write(append(raw, '\n'))
	}
	file, err := os.CreateTemp(filepath.Dir(h.path), historyName+".*") // it is made for its user alone
	if err != nil {
		return
	}
	_, err = file.Write(out.Bytes())
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), h.path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		_ = os.Remove(file.Name())
	}
}
