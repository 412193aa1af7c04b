package bake

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/helixagents/helix/skill"
)

const (
	lockVersion = 1
	maxLock     = 16 << 20
)

// Lock records what [Sync] has written. Equal locks are equal bytes.
type Lock struct {
	Version int `json:"version"`
	// Skills has the entries of the manifest.
	Skills map[string]Locked `json:"skills"`
}

// Locked is an entry of the manifest as it was resolved.
type Locked struct {
	// Source is what the manifest said.
	Source   Source   `json:"source"`
	Resolved Resolved `json:"resolved"`
	// Integrity is the hash of all files of the entry; see [Integrity].
	Integrity string `json:"integrity"`
	// Skills are the skills that were written, by name.
	Skills map[string]LockedSkill `json:"skills"`
}

// Resolved is what a source was resolved to.
type Resolved struct {
	// URL is the repository of a plugin that is not in the marketplace's own.
	URL    string `json:"url,omitempty"`
	Commit string `json:"commit"`
	// Tree is git's id of the directory that has the skills, or of the plugin.
	Tree string `json:"tree"`
	// Marketplace is the commit of the marketplace that named the URL.
	Marketplace string `json:"marketplace,omitempty"`
	// Directory is that of the plugin in its repository.
	Directory string `json:"directory,omitempty"`
	// Listed are the directories of skills that the marketplace lists for the plugin, if it
	// does, sorted.
	Listed []string `json:"listed,omitempty"`
	// NotStrict is set if the marketplace says that the plugin's own list does not count.
	NotStrict bool `json:"notStrict,omitempty"`
}

// LockedSkill is a skill that was written.
type LockedSkill struct {
	// Digest is that of [skill.Digest].
	Digest string `json:"digest"`
	// Files has the mode of git and the SHA-256 of each file: "100644 e3b0…".
	Files map[string]string `json:"files"`
}

// mode returns git's mode of a file.
func mode(executable bool) string {
	if executable {
		return modeExecutable
	}
	return "100644"
}

// lockedSkill returns what the lock records of a skill.
func lockedSkill(sums []skill.FileSum) LockedSkill {
	s := LockedSkill{Digest: skill.Digest(sums), Files: map[string]string{}}
	for _, f := range sums {
		s.Files[f.Path] = mode(f.Executable) + " " + f.SHA256
	}
	return s
}

// Integrity returns the hash of the files of an entry: "sha256-" and the Base64 of the
// SHA-256 of one line "mode sha256 skill/path" for each file, sorted.
func Integrity(skills map[string]LockedSkill) string {
	var lines []string
	for name, s := range skills {
		for path, sum := range s.Files {
			lines = append(lines, sum+" "+name+"/"+path+"\n")
		}
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "")))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// Encode returns the lock as it is written to a file.
func (l *Lock) Encode() ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(l)
	return out.Bytes(), err
}

// loadLock reads a lock. It returns nil if there is none. A link is not followed: it could be
// a part of a repository that somebody else has written.
func loadLock(path, shown string) (*Lock, []byte, error) {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return nil, nil, lockError(shown, errors.New("it is not a regular file"))
	}
	data, err := readFile(path, maxLock)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, nil
	case errors.Is(err, errTooLarge):
		return nil, nil, lockError(shown, fmt.Errorf("has more than %d bytes", maxLock))
	case err != nil:
		return nil, nil, lockError(shown, err)
	}
	l, err := parseLock(data)
	if err != nil {
		return nil, nil, lockError(shown, err)
	}
	return l, data, nil
}

// lockError says what to do about a lock that cannot be used. Without it, nobody knows
// which files were written by a sync and which by a person.
func lockError(shown string, err error) error {
	return &skill.Problem{Path: shown, Refused: true, Message: fmt.Sprintf(
		"is not a lock of this program: %v; restore it, or delete it together with the directory of the skills and run helix skills sync", err)}
}

func parseLock(data []byte) (*Lock, error) {
	var l Lock
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&l); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("it has more than one JSON value")
	}
	if l.Version != lockVersion {
		return nil, fmt.Errorf("its version is %d; this program reads version %d", l.Version, lockVersion)
	}
	for name, e := range l.Skills {
		if !entryName(name) || !shaName.MatchString(e.Resolved.Commit) || !shaName.MatchString(e.Resolved.Tree) {
			return nil, fmt.Errorf("its entry %s has no valid name, commit or tree", quote(name))
		}
		for skillName, s := range e.Skills {
			if err := skill.CheckName(skillName); err != nil {
				return nil, err
			}
			for path, sum := range s.Files {
				if checkFile(path) != nil || !fileSum(sum) {
					return nil, fmt.Errorf("its file %s of skill %s is not valid", quote(path), skillName)
				}
			}
		}
	}
	return &l, nil
}

// fileSum reports whether text is "mode sha256".
func fileSum(text string) bool {
	m, sum, ok := strings.Cut(text, " ")
	return ok && (m == mode(false) || m == mode(true)) && len(sum) == 64 && shaName.MatchString(sum)
}

// files returns the sums of all files that the lock has, by their path in the output
// directory. A nil lock has none.
func (l *Lock) files() map[string]string {
	all := map[string]string{}
	if l == nil {
		return all
	}
	for _, e := range l.Skills {
		for name, s := range e.Skills {
			for path, sum := range s.Files {
				all[name+"/"+path] = sum
			}
		}
	}
	return all
}

// entryOf returns which entry each skill belongs to. A nil lock has none.
func (l *Lock) entryOf() map[string]string {
	of := map[string]string{}
	if l == nil {
		return of
	}
	for entry, e := range l.Skills {
		for name := range e.Skills {
			of[name] = entry
		}
	}
	return of
}

// equal reports whether two sources are the same.
func (s *Source) equal(other *Source) bool {
	return slices.Equal(s.Include, other.Include) && s.texts() == other.texts()
}

// texts returns all fields but the list.
func (s *Source) texts() [7]string {
	return [7]string{s.Type, s.URL, s.Plugin, s.Ref, s.SHA, s.Version, s.SkillsDir}
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
