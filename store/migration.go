package store

import "time"

// Migration is one step of the tables of a backend that has tables.
type Migration struct {
	// Number counts from 1.
	Number int
	Name   string
	// AppliedAt is when the database was brought there; zero if it was not yet.
	AppliedAt time.Time
	// Newer is set for a step that the database has and this program does not know:
	// a newer program has made it.
	Newer bool
}

// Applied reports whether the database has the step.
func (m Migration) Applied() bool { return !m.AppliedAt.IsZero() }
