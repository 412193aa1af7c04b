package streamwriter

import (
	"errors"
	"strings"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// Weight is about how many bytes a chunk carries.
func Weight(c *stream.Chunk) int {
	n := 256 + len(c.Delta) + len(c.Arguments) + len(c.Result) + len(c.Data) + len(c.Reason) + len(c.Name) + len(c.Tool)
	if c.Error != nil {
		n += len(c.Error.Error())
	}
	for i := range c.Patches {
		n += len(c.Patches[i].Value) + len(c.Patches[i].Path) + 32
	}
	for i := range c.Messages {
		n += c.Messages[i].Size()
	}
	return n
}

// Fit removes the content of a chunk that is larger than limit and marks it as
// omitted, because a stream would refuse the whole chunk. The transcript has the
// content. Text stays: streams split it.
func Fit(c *stream.Chunk, limit int) {
	if c.Delta != "" || 6*Weight(c) <= limit { // escaping makes at most six bytes of one
		return
	}
	if raw, err := c.Encode(); err == nil && len(raw) <= limit {
		return
	}
	c.Omitted = true
	c.Arguments, c.Result, c.Data, c.Messages, c.Patches = nil, nil, nil, nil, nil
	c.Reason, c.Name, c.Tool = Truncate(c.Reason), Truncate(c.Name), Truncate(c.Tool)
	if c.Error != nil {
		short := *c.Error
		short.Message, short.Cause = Truncate(short.Error()), nil
		c.Error = &short
	}
}

// Truncate returns the beginning of a text that is too long for a chunk, in whole
// runes.
func Truncate(s string) string {
	const limit = 4 << 10
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}

// Refused reports whether a stream will never accept what it was given.
func Refused(err error) bool {
	return errors.Is(err, session.ErrTooLarge) || errors.Is(err, session.ErrInvalid)
}
