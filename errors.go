package helix

import (
	"github.com/helixagents/helix/session"
)

// Error is the type of all errors that Helix returns; see [session.Error].
type Error = session.Error

// Sentinel errors. errors.Is matches them by code.
var (
	ErrNotFound       = session.ErrNotFound
	ErrExists         = session.ErrExists
	ErrStale          = session.ErrStale
	ErrUnavailable    = session.ErrUnavailable
	ErrInvalid        = session.ErrInvalid
	ErrAlreadyRunning = session.ErrAlreadyRunning
	ErrAwaitingInput  = session.ErrAwaitingInput
	ErrSubmissionKind = session.ErrSubmissionKind
	ErrNotAllowed     = session.ErrNotAllowed
	ErrTooLarge       = session.ErrTooLarge
	ErrPaused         = session.ErrPaused
	ErrNotResumable   = session.ErrNotResumable
	ErrMaxSteps       = session.ErrMaxSteps
	ErrNoOutput       = session.ErrNoOutput
	ErrCancelled      = session.ErrCancelled
	ErrCrashLoop      = session.ErrCrashLoop
	ErrExpired        = session.ErrExpired
	ErrUnknownAgent   = session.ErrUnknownAgent
	ErrClosed         = session.ErrClosed
)
