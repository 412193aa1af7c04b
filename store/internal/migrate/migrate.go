// Package migrate is what the SQL backends share of bringing their tables up to
// date: which steps there are, and which of them a database lacks.
//
// Steps only add, so that a program that knows fewer can go on while a newer one
// is being rolled out. One that must break with this says from which program on
// the database can be used, in a first line such as "-- readable from 3".
package migrate

import (
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// Step is one numbered step of a schema.
type Step struct {
	Number       int
	Name         string
	Text         string
	ReadableFrom int // the number of the first step whose program can use the result
}

// Steps reads the .sql files of a directory, which are numbered 0001, 0002 …
func Steps(files fs.FS, dir string) ([]Step, error) {
	names, err := fs.Glob(files, path.Join(dir, "*.sql")) // in order
	if err != nil {
		return nil, err
	}
	var out []Step
	for _, file := range names {
		name := strings.TrimSuffix(path.Base(file), ".sql")
		digits, _, _ := strings.Cut(name, "_")
		number, err := strconv.Atoi(digits)
		if err != nil || number != len(out)+1 {
			return nil, fmt.Errorf("migration %s is not number %d", file, len(out)+1)
		}
		text, err := fs.ReadFile(files, file)
		if err != nil {
			return nil, err
		}
		step := Step{Number: number, Name: name, Text: string(text), ReadableFrom: 1}
		if _, err := fmt.Sscanf(step.Text, "-- readable from %d", &step.ReadableFrom); err != nil && len(out) > 0 {
			step.ReadableFrom = out[len(out)-1].ReadableFrom
		}
		out = append(out, step)
	}
	return out, nil
}

// Level is how far a database has come.
type Level struct {
	Number       int // of the last step that was applied; 0 for an empty database
	ReadableFrom int
}

// Missing lists the steps that a database lacks. It refuses a database that a
// program with these steps cannot use, and, if it is not to be changed, one that
// lacks some.
func (l Level) Missing(steps []Step, change bool) ([]Step, error) {
	known := len(steps)
	switch {
	case l.Number > known && l.ReadableFrom > known:
		return nil, session.ErrNotSupported.WithMessage(
			"the database has schema %d, which programs with schema %d or later can use; this one knows up to %d and needs to be updated",
			l.Number, l.ReadableFrom, known)
	case l.Number >= known:
		return nil, nil
	case !change:
		return nil, session.ErrNotSupported.WithMessage(
			"the database has schema %d and this program needs %d: run \"helix migrate up\"", l.Number, known)
	}
	return steps[l.Number:], nil
}

// Report puts what a program knows beside what a database has.
func Report(steps []Step, applied []store.Migration) []store.Migration {
	byNumber := map[int]store.Migration{}
	for _, m := range applied {
		byNumber[m.Number] = m
	}
	out := make([]store.Migration, 0, len(steps))
	for _, step := range steps {
		m := byNumber[step.Number]
		m.Number, m.Name = step.Number, step.Name
		out = append(out, m)
	}
	for _, m := range applied {
		if m.Number > len(steps) {
			m.Newer = true
			out = append(out, m)
		}
	}
	return out
}
