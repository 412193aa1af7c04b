package store

import "time"

// Migration is one migration of a backend that has tables.
type Migration struct {
	// Number counts from 1.
	Number int
	Name   string
	// AppliedAt is when the migration was applied to the database; zero if it was not.
	AppliedAt time.Time
	// Newer is set for a migration that the database has but this program does not
	// know: a newer program has applied it.
	Newer bool
}

// Applied reports whether the database has the migration.
func (m Migration) Applied() bool { return !m.AppliedAt.IsZero() }
