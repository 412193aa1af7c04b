package main

import (
	"fmt"
	"io"
	"log/slog"
)

// logText is the format of a log that people read.
const logText = "text"

// newLogger returns a logger with the given format and level.
func newLogger(out io.Writer, format, level string) (*slog.Logger, error) {
	var from slog.Level
	if err := from.UnmarshalText([]byte(level)); err != nil {
		return nil, usageError{fmt.Errorf("--log-level %q is invalid: use debug, info, warn or error", level)}
	}
	opts := &slog.HandlerOptions{Level: from}
	switch format {
	case logText:
		return slog.New(slog.NewTextHandler(out, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(out, opts)), nil
	default:
		return nil, usageError{fmt.Errorf("--log-format %q is invalid: use text or json", format)}
	}
}
