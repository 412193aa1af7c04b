package sqlite

import (
	"context"
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/helixagents/helix/session"
)

// failure gives an error of an operation the form that callers rely on: the
// domain's own errors and the end of a context as they are, anything else
// classified by what the database said.
func failure(what string, err error) error {
	if _, domain := errors.AsType[*session.Error](err); domain || err == nil {
		return err
	}
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: %w", what, err)
	}
	switch code(err) {
	case sqlite3.SQLITE_NOTADB:
		return session.ErrCorrupt.WithCause(err, "%s: the file is not a SQLite database", what)
	case sqlite3.SQLITE_CORRUPT:
		return session.ErrCorrupt.WithCause(err, "%s: the database file is damaged", what)
	case sqlite3.SQLITE_TOOBIG:
		return session.ErrTooLarge.WithCause(err, "%s: a value is larger than the database takes", what)
	case sqlite3.SQLITE_FULL:
		return session.ErrUnavailable.WithCause(err, "%s: the disk, or the database file, is full; make room or raise its limit", what)
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		// The same call fails again until somebody has done something about it.
		out := session.ErrUnavailable.WithCause(err,
			"%s: this program may not write the database; check that the file, those beside it and their directory exist and are its own to write", what)
		out.Retryable = false
		return out
	case sqlite3.SQLITE_CONSTRAINT:
		if isDuplicate(err) {
			return session.ErrExists.WithCause(err, "%s: conflicts with what is stored", what)
		}
		return session.ErrTooLarge.WithCause(err, "%s: the database takes no more", what)
	}
	return session.ErrUnavailable.WithCause(err, "%s: the database is unavailable", what)
}

// code is the primary result code of the database's error, or 0.
func code(err error) int { return extendedCode(err) & 0xff }

func extendedCode(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code()
	}
	return 0
}

// isDuplicate reports whether a row could not be added because its key exists.
func isDuplicate(err error) bool {
	switch extendedCode(err) {
	case sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_ROWID:
		return true
	}
	return false
}

// isBusy reports whether another process held a lock for too long.
func isBusy(err error) bool {
	c := code(err)
	return c == sqlite3.SQLITE_BUSY || c == sqlite3.SQLITE_LOCKED
}

// endsTransaction reports an error after which the database may have given up the
// transaction by itself, so that no member of it can be trusted to stand.
func endsTransaction(err error) bool {
	switch code(err) {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM,
		sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_CORRUPT:
		return true
	}
	return false
}
