// Package yamlplace finds where in a text a YAML parser fails, which the parser itself does
// not tell well enough for people who edit files.
package yamlplace

import (
	"bytes"
	"errors"
	"io"
	"sort"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Of returns where in data an error of the parser is, from 1: at the end of the shortest
// beginning of data with the same error. The parser itself tells no column, and often
// another line.
func Of(data []byte, err error) (line, column int) {
	end := sort.Search(len(data), func(n int) bool {
		for n < len(data) && !utf8.RuneStart(data[n]) {
			n++
		}
		failure := parse(data[:n])
		return failure != nil && failure.Error() == err.Error()
	})
	before := string(data[:max(end-1, 0)])
	if name, ok := strings.CutPrefix(err.Error(), "yaml: unknown anchor '"); ok {
		name, _, _ = strings.Cut(name, "'")
		if alias := strings.LastIndex(string(data[:end]), "*"+name); alias >= 0 { // the error shows at its end, or later
			before = string(data[:alias])
		}
	}
	text := before[strings.LastIndex(before, "\n")+1:]
	return 1 + strings.Count(before, "\n"), 1 + utf8.RuneCountInString(text)
}

// Message returns what an error of the parser says, without the line that it names: that is
// where the construct begins that could not be read.
func Message(err error) string {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	if _, rest, ok := strings.Cut(message, ": "); ok && strings.HasPrefix(message, "line ") {
		return rest
	}
	return message
}

// parse returns the first error in a stream of documents.
func parse(data []byte) error {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		switch err := decoder.Decode(&doc); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}
