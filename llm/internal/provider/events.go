package provider

import (
	"bufio"
	"bytes"
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
		lines := bufio.NewScanner(stream)
		lines.Buffer(nil, maxEvent)
		var e Event
		for lines.Scan() {
			line := lines.Bytes()
			if len(line) == 0 {
				if (e.Name != "" || len(e.Data) > 0) && !yield(e, nil) {
					return
				}
				e = Event{Data: e.Data[:0]}
				continue
			}
			name, value, _ := bytes.Cut(line, []byte(":"))
			value = bytes.TrimPrefix(value, []byte(" "))
			switch string(name) {
			case "event":
				e.Name = string(value)
			case "data":
				if len(e.Data)+len(value) > maxEvent {
					yield(Event{}, errTooLarge)
					return
				}
				e.Data = append(append(e.Data, value...), '\n')
			}
		}
		if err := lines.Err(); err != nil {
			yield(Event{}, err)
		}
	}
}
