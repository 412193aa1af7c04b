package skill

import (
	"encoding/json"
	"slices"

	"github.com/helixagents/helix/session"
)

// IndexName is the name of the file that lists the skills of a directory, each in a
// directory below it that has the skill's name.
const IndexName = "index.json"

// IndexVersion is the version of the format of [Index].
const IndexVersion = 1

// MaxIndex is how many bytes an index has at most.
const MaxIndex = 16 << 20

// Index lists skills with their metadata and the sums of all their files, so that a program
// that has them embedded needs neither to parse nor to trust them.
type Index struct {
	Version int       `json:"version"`
	Skills  []Indexed `json:"skills"`
}

// Indexed is a skill of an [Index].
type Indexed struct {
	Metadata
	// Files are all files of the skill, SKILL.md included.
	Files []FileSum `json:"files"`
}

// ParseIndex decodes and checks an index.
func ParseIndex(data []byte) (*Index, error) {
	if len(data) > MaxIndex {
		return nil, session.ErrTooLarge.WithMessage("%s has %d bytes; at most %d are allowed", IndexName, len(data), MaxIndex)
	}
	var x Index
	if err := session.Decode(IndexName, data, &x); err != nil {
		return nil, err
	}
	if err := x.Check(); err != nil {
		return nil, err
	}
	return &x, nil
}

// Encode returns the index as it is written to a file: skills sorted by name, files by
// path. Equal indexes give equal bytes.
func (x *Index) Encode() ([]byte, error) {
	out := Index{Version: IndexVersion, Skills: slices.Clone(x.Skills)}
	slices.SortFunc(out.Skills, func(a, b Indexed) int { return byName(a.Metadata, b.Metadata) })
	for i := range out.Skills {
		out.Skills[i].Files = slices.Clone(out.Skills[i].Files)
		slices.SortFunc(out.Skills[i].Files, byPath)
	}
	if err := out.Check(); err != nil {
		return nil, err
	}
	data, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(data, '\n'), nil
}

// Check returns an error if the index is invalid: a rule of the format, a limit, or a digest
// that is not that of the files.
func (x *Index) Check() error {
	if x.Version != IndexVersion {
		return session.Invalid("version", "of %s is %d; this program reads version %d", IndexName, x.Version, IndexVersion)
	}
	if len(x.Skills) > MaxSkills {
		return session.Invalid("skills", "are %d; at most %d are allowed", len(x.Skills), MaxSkills)
	}
	seen := map[string]bool{}
	for i := range x.Skills {
		one := &x.Skills[i]
		if err := one.check(); err != nil {
			return session.AsError(err).WithCause(err, "%s: skill %d", IndexName, i)
		}
		if seen[one.Name] {
			return session.Invalid("skills", "has %s twice", one.Name)
		}
		seen[one.Name] = true
	}
	return nil
}

func (s *Indexed) check() error {
	if err := s.Metadata.Check(); err != nil {
		return err
	}
	if len(s.Files) > MaxFiles+1 {
		return session.Invalid("files", "of %s are %d; at most %d are allowed", s.Name, len(s.Files), MaxFiles)
	}
	var total int64
	seen := map[string]bool{}
	for _, f := range s.Files {
		if err := CheckPath(f.Path); err != nil {
			return err
		}
		switch {
		case seen[f.Path]:
			return session.Invalid("files", "of %s has %s twice", s.Name, f.Path)
		case f.Size < 0 || f.Size > MaxBytes || total+f.Size > MaxBytes:
			return session.Invalid("files", "of %s have more than %d bytes together", s.Name, MaxBytes)
		case f.Path == FileName && f.Size > MaxBody:
			return session.Invalid("files", "of %s: %s has %d bytes; at most %d are allowed", s.Name, FileName, f.Size, MaxBody)
		}
		seen[f.Path] = true
		total += f.Size
	}
	if !seen[FileName] {
		return session.Invalid("files", "of %s lack %s", s.Name, FileName)
	}
	if digest := Digest(s.Files); digest != s.Digest {
		return session.Invalid("digest", "of %s is %s, but that of its files is %s", s.Name, s.Digest, digest)
	}
	return nil
}
