package config

import (
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/helixagents/helix"
)

// MaxSize is the maximum size of a file in bytes.
const MaxSize = 1 << 20

// Load reads and checks a file.
func Load(path string) (*File, error) {
	data, err := read(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// read reads a file of at most MaxSize.
func read(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return data, nil
}

// Parse checks the content of a file; name is used in errors. An invalid file yields an
// [*Error].
func Parse(name string, data []byte) (*File, error) { return parse(name, data, os.LookupEnv) }

func parse(name string, data []byte, lookup func(string) (string, bool)) (*File, error) {
	s := newSource(name, data, lookup)
	if len(data) > MaxSize {
		s.problem(begins, "", "the file is larger than %d bytes", MaxSize)
		return nil, s.err()
	}
	f := &File{source: s}
	if root := s.parse(data); root != nil {
		d := &decoder{source: s}
		s.places[""] = place{at(root), at(root)}
		d.value(root, "", reflect.ValueOf(f).Elem(), &option{})
		if !d.full {
			f.check()
		}
	}
	if err := s.err(); err != nil {
		return nil, err
	}
	return f, nil
}

// Name returns the name that the file was read under.
func (f *File) Name() string { return f.source.name }

// Agent returns the definition of the agent with the given name.
func (f *File) Agent(name string) (*Agent, bool) {
	i := slices.IndexFunc(f.Agents, func(a Agent) bool { return a.Name == name })
	if i < 0 {
		return nil, false
	}
	return &f.Agents[i], true
}

func (f *File) model(name string) *Model {
	for i := range f.Models {
		if f.Models[i].Name == name {
			return &f.Models[i]
		}
	}
	return nil
}

func (f *File) tool(name string) *Tool {
	for i := range f.Tools {
		if f.Tools[i].Name == name {
			return &f.Tools[i]
		}
	}
	return nil
}

func names[T any](items []T, name func(*T) string) []string {
	out := make([]string, len(items))
	for i := range items {
		out[i] = name(&items[i])
	}
	return out
}

func (f *File) modelNames() []string { return names(f.Models, func(m *Model) string { return m.Name }) }

func (f *File) agentNames() []string { return names(f.Agents, func(a *Agent) string { return a.Name }) }

func (f *File) toolNames() []string { return names(f.Tools, func(t *Tool) string { return t.Name }) }

// Std returns the duration as a [time.Duration]. It is negative for never.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// Int returns the limit as fields of package helix have it: [helix.Unlimited] for none.
func (l Limit) Int() int {
	if l == unlimited {
		return helix.Unlimited
	}
	return int(l)
}

// isReference reports whether a text is a reference of a model.
func isReference(text string) bool {
	return text == Demo || text == Auto || strings.Contains(text, "/")
}
