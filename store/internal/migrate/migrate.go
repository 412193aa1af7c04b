// Package migrate contains what the SQL backends share to migrate their tables:
// which migrations there are, and which of them a database lacks.
//
// Migrations only add, so that a program that knows fewer of them keeps working
// while a newer one is being rolled out. A migration that has to break this rule
// names the first schema whose programs can use the database, in a first line such
// as "-- readable from 3".
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

// Step is one numbered migration of a schema.
type Step struct {
	Number       int
	Name         string
	Text         string
	ReadableFrom int // the number of the first migration whose program can use the result
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

// Level is the state of a database's migrations.
type Level struct {
	Number       int // of the last applied migration; 0 for an empty database
	ReadableFrom int
}

// Missing lists the migrations that a database lacks. It returns an error if a
// program with these migrations cannot use the database or, if change is false, if
// the database lacks some.
func (l Level) Missing(steps []Step, change bool) ([]Step, error) {
	known := len(steps)
	switch {
	case l.Number > known && l.ReadableFrom > known:
		return nil, session.ErrNotSupported.WithMessage(
			"the database has schema %d and requires programs with schema %d or later; this one knows up to %d and must be updated",
			l.Number, l.ReadableFrom, known)
	case l.Number >= known:
		return nil, nil
	case !change:
		return nil, session.ErrNotSupported.WithMessage(
			"the database has schema %d and this program needs %d: run \"helix migrate up\"", l.Number, known)
	}
	return steps[l.Number:], nil
}

// Report combines the migrations that a program knows with those that a database
// has.
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
