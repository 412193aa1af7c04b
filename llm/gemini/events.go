package gemini

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"iter"
)

// maxLine bounds an event; images come in one.
const maxLine = 256 << 20

// events reads the data of server-sent events. Comments and other fields are left
// out. An error that ends a stream may come as bare JSON, and counts as an event.
// One that was cut off does not.
func events(body io.Reader) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		lines := bufio.NewScanner(body)
		lines.Buffer(nil, maxLine)
		var data []byte
		bare := false
		for lines.Scan() {
			line := lines.Bytes()
			field, isData := bytes.CutPrefix(line, []byte("data:"))
			bare = bare || len(data) == 0 && bytes.HasPrefix(line, []byte("{"))
			switch {
			case isData && !bare:
				data = append(append(data, field...), '\n')
			case len(bytes.TrimSpace(line)) == 0:
				if len(data) > 0 && !yield(data, nil) {
					return
				}
				data, bare = data[:0], false
			case bare:
				data = append(append(data, line...), '\n')
			}
		}
		if len(data) > 0 && json.Valid(data) && !yield(data, nil) {
			return
		}
		if err := lines.Err(); err != nil {
			yield(nil, err)
		}
	}
}
