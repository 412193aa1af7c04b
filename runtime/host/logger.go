package host

import (
	"context"
	"log/slog"
)

// DefaultLogger returns the logger of a runtime that is configured with none. It passes
// errors to [slog.Default], so that a failed run is logged.
func DefaultLogger() *slog.Logger { return slog.New(errorsOnly{slog.Default().Handler()}) }

// errorsOnly is a handler that passes on errors only.
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
