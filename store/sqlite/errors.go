package sqlite

import (
	"context"
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/helixagents/helix/session"
)

// failure converts an error of an operation to the form that callers rely on:
// errors of the domain and of a context are returned as they are, and others are
// classified by the database's result code.
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
		return session.ErrTooLarge.WithCause(err, "%s: a value exceeds the size that the database allows", what)
	case sqlite3.SQLITE_FULL:
		return session.ErrUnavailable.WithCause(err, "%s: the disk or the database file is full; free space or raise its limit", what)
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		// The same call keeps failing until an operator intervenes.
		out := session.ErrUnavailable.WithCause(err,
			"%s: this program may not write to the database; check that the file, its -wal and -shm files and their directory exist and are writable", what)
		out.Retryable = false
		return out
	case sqlite3.SQLITE_CONSTRAINT:
		if isDuplicate(err) {
			return session.ErrExists.WithCause(err, "%s: conflicts with what is stored", what)
		}
		return session.ErrTooLarge.WithCause(err, "%s: a limit of the database is exceeded", what)
	}
	return session.ErrUnavailable.WithCause(err, "%s: the database is unavailable", what)
}

// code returns the primary result code of the database's error, or 0.
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

// endsTransaction reports whether the database may have rolled back the
// transaction on its own after this error, so that none of its members is known to
// be applied.
func endsTransaction(err error) bool {
	switch code(err) {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM,
		sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_CORRUPT:
		return true
	}
	return false
}
