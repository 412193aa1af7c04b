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
	// maxHistory is the maximum number of lines, maxEntry the maximum length of one.
	maxHistory = 1000
	maxEntry   = 8 << 10
)

// history holds the lines of this and earlier chats. It is a file with one JSON string per
// line that only its user can read. Concurrent chats append to it.
type history struct {
	path  string
	lines []string
}

// openHistory reads the history in a directory. If it cannot be read, a new one is started.
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

// len returns the number of lines. A nil history has none.
func (h *history) len() int {
	if h == nil {
		return 0
	}
	return len(h.lines)
}

func (h *history) line(at int) string { return h.lines[at] }

// add appends a line, in memory and in the file, unless it repeats the previous one. Errors
// are ignored, because a chat works without a history.
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
		err = file.Chmod(0o600) // even if somebody made it readable
	}
	if err == nil {
		_, err = file.Write(append(raw, '\n'))
	}
	return errors.Join(err, file.Close())
}

// shorten rewrites the file with the latest lines.
func (h *history) shorten() {
	var out bytes.Buffer
	for _, line := range h.lines {
		raw, err := json.Marshal(line)
		if err != nil {
			return
		}
		out.Write(append(raw, '\n'))
	}
	file, err := os.CreateTemp(filepath.Dir(h.path), historyName+".*") // CreateTemp makes it readable by its user only
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
