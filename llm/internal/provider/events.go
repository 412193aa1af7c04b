package provider

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"iter"
)

// Event is a server-sent event.
type Event struct {
	Name string
	// Data is valid until the next event is read.
	Data []byte
}

// Events reads the events of a stream that have a name or data. Comments and other fields are left out, and so is an event
// that the stream ends in the middle of.
func Events(stream io.Reader) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		r := eventReader{lines: newLines(stream)}
		for r.next() {
			if !yield(r.event, nil) {
				return
			}
		}
		if r.err != nil {
			yield(Event{}, r.err)
		}
	}
}

// LooseEvents is Events for a provider that may send an error as bare JSON among the events, which counts as one, and does
// not always end the last. A last event whose data is not whole JSON was cut off and is left out.
func LooseEvents(stream io.Reader) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		r := eventReader{lines: newLines(stream), loose: true}
		for r.next() {
			if !yield(r.event, nil) {
				return
			}
		}
		if json.Valid(r.event.Data) && r.bounded() && !yield(r.event, nil) {
			return
		}
		if r.err != nil {
			yield(Event{}, r.err)
		}
	}
}

func newLines(stream io.Reader) *bufio.Scanner {
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, maxEvent)
	return lines
}

// eventReader reads events one by one. When there is no next one, event has what was left at the end.
type eventReader struct {
	lines *bufio.Scanner
	loose bool
	event Event
	err   error
}

func (r *eventReader) next() bool {
	r.event = Event{Data: r.event.Data[:0]}
	bare := false
	for r.lines.Scan() {
		line := r.lines.Bytes()
		if len(bytes.TrimSpace(line)) == 0 {
			if r.event.Name != "" || len(r.event.Data) > 0 {
				return r.bounded()
			}
			continue
		}
		if bare = bare || r.loose && len(r.event.Data) == 0 && line[0] == '{'; !bare {
			var isData bool
			if line, isData = r.field(line); !isData {
				continue
			}
		}
		if len(r.event.Data)+len(line) > maxEvent {
			r.err = errTooLarge
			return false
		}
		r.event.Data = append(append(r.event.Data, line...), '\n')
	}
	r.err = r.lines.Err()
	return false
}

// bounded reports whether the event may be decoded, and fails otherwise.
func (r *eventReader) bounded() bool {
	if err := CheckValues(r.event.Data); err != nil {
		r.event, r.err = Event{}, err // nothing of it is left to read
		return false
	}
	return true
}

// field reads a line and returns what it adds to the data, if it does.
func (r *eventReader) field(line []byte) (data []byte, ok bool) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "event":
		r.event.Name = string(value)
	case "data":
		return value, true
	}
	return nil, false
}
