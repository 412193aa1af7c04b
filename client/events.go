package client

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/helixagents/helix/session"
)

// event is a server-sent event.
type event struct {
	kind string
	data []byte
}

// events splits a body into events.
type events struct {
	in    *bufio.Reader
	limit int64
}

func newEvents(body io.Reader, limit int64) *events {
	return &events{bufio.NewReaderSize(body, 32<<10), limit}
}

// errCut reports a body that ends without a terminal frame.
var errCut = errors.New("the connection ended before the stream")

// next returns the next event with data. It ignores an event that the body's end cuts off.
func (s *events) next() (event, error) {
	var e event
	size := int64(0)
	some := false
	for {
		line, err := s.line(s.limit - size)
		if err != nil {
			return event{}, err
		}
		size += int64(len(line))
		if len(line) == 0 {
			if some {
				return e, nil
			}
			e, size = event{}, 0
			continue
		}
		name, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(name) {
		case "event":
			e.kind = string(value)
		case "data":
			if some {
				e.data = append(e.data, '\n')
			}
			e.data, some = append(e.data, value...), true
		}
	}
}

// line reads a line of at most limit bytes, without its line break.
func (s *events) line(limit int64) ([]byte, error) {
	var line []byte
	for {
		piece, err := s.in.ReadSlice('\n')
		if int64(len(line)+len(piece)) > limit {
			return nil, session.ErrTooLarge.WithMessage("an event of the stream is larger than the limit")
		}
		line = append(line, piece...)
		switch {
		case err == nil:
			return bytes.TrimSuffix(line[:len(line)-1], []byte{'\r'}), nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil, drop(errCut)
		default:
			return nil, drop(err)
		}
	}
}
