package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/helixagents/helix/session"
)

// The server's error codes that are treated differently.
const (
	stateUnique       = "23505"
	stateSerialize    = "40001"
	stateDeadlock     = "40P01"
	stateReadOnly     = "25006"
	stateDiskFull     = "53100"
	stateTooManyConns = "53300"
	stateTooLarge     = "54000"
	stateBadText      = "22021"
	stateBadEscape    = "22P05"
	stateNoRights     = "42501"
	stateNoTable      = "42P01"
	stateNoSchema     = "3F000"
	stateNoDatabase   = "3D000"
	stateBadPassword  = "28P01"
	stateNotAllowed   = "28000"
	stateLockTimeout  = "55P03"
	stateShutdown     = "57P01"
	stateCrash        = "57P02"
	stateStarting     = "57P03"
)

// failure converts an error of an operation to the form that callers rely on:
// errors of the domain and of a context are returned as they are, and others are
// classified by the server's error code.
func (b *Backend) failure(what string, err error) error {
	if err == nil {
		return nil
	}
	if _, domain := errors.AsType[*session.Error](err); domain {
		return err
	}
	if b.closed() {
		return errClosed(what)
	}
	if isEnded(err) {
		return fmt.Errorf("%s: %w", what, err)
	}
	if silent, ok := errors.AsType[*silentError](err); ok {
		if silent.queued {
			return session.ErrUnavailable.WithMessage(
				"%s: no connection was free within %s: raise MaxConns, or look for what holds them", what, silent.limit)
		}
		return session.ErrUnavailable.WithMessage("%s: the database did not answer within %s; an operation that needs longer needs a larger CallTimeout", what, silent.limit)
	}
	if errors.Is(err, errAgain) {
		return session.ErrUnavailable.WithMessage("%s: too many concurrent writes to the same rows", what)
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return unanswered(what, err)
	}
	switch e.Code {
	case stateBadText, stateBadEscape:
		return session.ErrInvalid.WithCause(err, "%s: a text is not valid UTF-8 or contains a zero byte", what)
	case stateTooLarge:
		return session.ErrTooLarge.WithCause(err, "%s: a value exceeds the size that the database allows", what)
	case stateUnique:
		return session.ErrStale.WithCause(err, "%s: conflicts with what is stored", what)
	}
	switch e.Code[:min(2, len(e.Code))] {
	case "22", "23": // the data, the constraints on it
		return session.ErrInvalid.WithCause(err, "%s: the database refused a value", what)
	}
	return unavailable(what, e)
}

// unanswered explains an error that does not come from the server. If the data
// causes it, a retry does not help; otherwise the connection failed.
func unanswered(what string, err error) error {
	switch {
	case isOversized(err):
		return session.ErrTooLarge.WithCause(err, "%s: a value exceeds the size that the database allows", what)
	case strings.Contains(err.Error(), "failed to encode args"): // the driver has no type for it
		return session.ErrInvalid.WithCause(err, "%s: a value cannot be encoded for the database", what)
	}
	if e, ok := errors.AsType[pgx.ScanArgError](err); ok {
		return session.ErrCorrupt.WithCause(err, "%s: column %s cannot be decoded", what, e.FieldName)
	}
	return session.ErrUnavailable.WithCause(err, "%s: the database cannot be reached", what)
}

// isOversized reports whether a value is too large to be sent. The driver has no
// types for these errors.
func isOversized(err error) bool {
	text := err.Error()
	return strings.Contains(text, "message body too large") || strings.Contains(text, "too many parameters")
}

// unavailable explains what prevents the server from executing a statement.
func unavailable(what string, e *pgconn.PgError) error {
	why, retryable := "the database is unavailable", true
	switch e.Code {
	case stateReadOnly:
		why = "the database server is read-only: connect to the primary (target_session_attrs=read-write), or end its read-only mode"
	case stateDiskFull:
		why = "the database server's disk is full: free some space on it"
	case stateTooManyConns:
		why = "the database server has no free connections: raise its max_connections, or lower MaxConns here"
	case stateNoRights:
		why, retryable = "the database user lacks a privilege", false
	case stateNoTable, stateNoSchema:
		why, retryable = "the backend's tables do not exist: were they dropped while this program ran?", false
	case stateLockTimeout:
		why = "another transaction holds the lock for too long"
	default:
		if class := e.Code[:min(2, len(e.Code))]; class == "21" || class == "42" {
			why, retryable = "the database refused the statement", false
		}
	}
	out := session.ErrUnavailable.WithCause(e, "%s: %s", what, why)
	out.Retryable = retryable
	return out
}

// code returns the code of the server's error, or "".
func code(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// isEnded reports whether the caller's context has ended. A connection attempt
// that timed out has the same error text, but is a failure of the server.
func isEnded(err error) bool {
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	return !connecting && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
}

// isLost reports whether an error means that a connection is dead, or that its
// server is no longer the primary.
func isLost(err error) bool {
	if silent, ok := errors.AsType[*silentError](err); ok {
		return !silent.queued
	}
	if isEnded(err) {
		return false
	}
	switch state := code(err); {
	case state == stateShutdown, state == stateCrash, state == stateStarting, state == stateReadOnly, strings.HasPrefix(state, "08"):
		return true
	case state != "":
		return false
	}
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}

// isTimeout reports whether a connection has timed out. If the operation's context has not
// ended, it is the timeout of the operation before it, which was cancelled just as it ended:
// the driver reads in the background while a write takes long, and such a read, which is left
// when the operation ends, reports the timeout to the next one. The backend closes such a
// connection (see release), but the owner of a given pool may not.
func isTimeout(err error) bool {
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout() && !connecting && !isEnded(err)
}

// isDuplicate reports whether a row could not be added because of a unique index.
func isDuplicate(err error, index string) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == stateUnique && e.ConstraintName == index
}

// isAgain reports whether an operation was certainly not applied and may succeed
// if it is repeated immediately.
func isAgain(err error) bool {
	switch code(err) {
	case stateSerialize, stateDeadlock:
		return true
	}
	return errors.Is(err, errAgain) || (pgconn.SafeToRetry(err) && !isOversized(err))
}

func notFound(format string, args ...any) error {
	return session.ErrNotFound.WithMessage(format+": not found", args...)
}
