package host

import (
	"context"
	"log/slog"
)

// DefaultLogger is the logger of a runtime that is given none: errors go to
// the program's own, so that a failed run leaves a trace.
func DefaultLogger() *slog.Logger { return slog.New(errorsOnly{slog.Default().Handler()}) }

// errorsOnly passes on errors.
type errorsOnly struct{ slog.Handler }

// Enabled implements [slog.Handler].
func (e errorsOnly) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelError && e.Handler.Enabled(ctx, level)
}

// WithAttrs implements [slog.Handler].
func (e errorsOnly) WithAttrs(attrs []slog.Attr) slog.Handler {
	return errorsOnly{e.Handler.WithAttrs(attrs)}
}

// WithGroup implements [slog.Handler].
func (e errorsOnly) WithGroup(name string) slog.Handler { return errorsOnly{e.Handler.WithGroup(name)} }
