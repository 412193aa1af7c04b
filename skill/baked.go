package skill

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"

	"github.com/helixagents/helix/session"
)

// Baked returns a provider of the skills that `helix skills sync` has written to a
// directory: fsys has an [Index] and the directories of its skills. It is meant for
// [embed.FS]. A file that differs from the index is refused when it is read.
func Baked(fsys fs.FS) (Provider, error) {
	data, err := readLimited(fsys, IndexName, MaxIndex)
	if err != nil {
		return nil, session.AsError(err).WithCause(err, "read the baked skills")
	}
	index, err := ParseIndex(data)
	if err != nil {
		return nil, err
	}
	b := &baked{fsys: fsys, skills: index.Skills}
	slices.SortFunc(b.skills, func(a, b Indexed) int { return byName(a.Metadata, b.Metadata) })
	for i := range b.skills {
		slices.SortFunc(b.skills[i].Files, byPath)
	}
	return b, nil
}

type baked struct {
	fsys   fs.FS
	skills []Indexed // sorted by name
}

func byPath(a, b FileSum) int { return cmp.Compare(a.Path, b.Path) }

func (b *baked) find(name string) (*Indexed, error) {
	i, found := slices.BinarySearchFunc(b.skills, name, func(s Indexed, name string) int { return cmp.Compare(s.Name, name) })
	if !found {
		return nil, notFound(name)
	}
	return &b.skills[i], nil
}

func (b *baked) List(context.Context, Scope) ([]Metadata, error) {
	out := make([]Metadata, len(b.skills))
	for i, s := range b.skills {
		out[i] = s.Metadata
	}
	return out, nil
}

func (b *baked) Load(_ context.Context, _ Scope, name string) (*Skill, error) {
	s, err := b.find(name)
	if err != nil {
		return nil, err
	}
	data, err := b.read(s, FileName)
	if err != nil {
		return nil, err
	}
	_, body, err := Split(data)
	if err != nil {
		return nil, session.ErrCorrupt.WithCause(err, "%s/%s", name, FileName)
	}
	out := &Skill{Metadata: s.Metadata, Body: body}
	for _, f := range s.Files {
		if f.Path != FileName {
			out.Files = append(out.Files, File{Path: f.Path, Size: f.Size, Executable: f.Executable})
		}
	}
	return out, nil
}

func (b *baked) Open(_ context.Context, _ Scope, name, path string) (io.ReadCloser, error) {
	s, err := b.find(name)
	if err != nil {
		return nil, err
	}
	data, err := b.read(s, path)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

// read returns a file that the index has, if it still is what the index says.
func (b *baked) read(s *Indexed, path string) ([]byte, error) {
	i, found := slices.BinarySearchFunc(s.Files, path, func(f FileSum, path string) int { return cmp.Compare(f.Path, path) })
	if !found {
		return nil, noFile(s.Name, path)
	}
	want := s.Files[i]
	data, err := readLimited(b.fsys, s.Name+"/"+path, want.Size)
	if err != nil {
		return nil, session.ErrCorrupt.WithCause(err, "%s of skill %s cannot be read", path, s.Name)
	}
	if got := Sum(path, want.Executable, data); got != want {
		return nil, session.ErrCorrupt.WithMessage("%s of skill %s is not what %s says: its SHA-256 is %s, not %s",
			path, s.Name, IndexName, got.SHA256, want.SHA256)
	}
	return data, nil
}

// readLimited reads a file of at most limit bytes.
func readLimited(fsys fs.FS, name string, limit int64) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, session.ErrNotFound.WithMessage("there is no file %s", name)
		}
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = session.ErrTooLarge.WithMessage("%s has more than %d bytes", name, limit)
	}
	return data, err
}
