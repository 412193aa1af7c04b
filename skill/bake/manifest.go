package bake

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/helixagents/helix/skill"
)

// Limits of a manifest.
const (
	maxManifest = 1 << 20
	maxEntries  = 200
	maxProblems = 50
)

// Types of sources.
const (
	// TypeGit is a git repository with skills.
	TypeGit = "git"
	// TypeMarketplace is a plugin of a Claude marketplace, which is a git repository.
	TypeMarketplace = "claude-marketplace"
)

// Manifest names the sources of skills. In its file, every entry is a member of the object
// skills.
type Manifest struct {
	// Entries are sorted by name.
	Entries []Entry
}

// Entry is one source under the name that the user gave it.
type Entry struct {
	Name   string
	Source Source
}

// Source says where skills come from.
type Source struct {
	// Type is [TypeGit] or [TypeMarketplace].
	Type string `json:"type"`
	// URL is the repository: https, ssh, or user@host:path.
	URL string `json:"url"`
	// Plugin is the plugin of a marketplace.
	Plugin string `json:"plugin,omitempty"`
	// Ref is a tag or a branch of the repository. Without Ref, SHA and Version it is the
	// default branch.
	Ref string `json:"ref,omitempty"`
	// SHA is a commit. If there is a Ref, too, it says where to find the commit on a server
	// that does not give single commits.
	SHA string `json:"sha,omitempty"`
	// Version is the tag of that name, with or without a v.
	Version string `json:"version,omitempty"`
	// SkillsDir is the directory of a git repository that has the skills. Defaults to skills.
	SkillsDir string `json:"skillsDir,omitempty"`
	// Include are the skills to take. Defaults to all.
	Include []string `json:"include,omitempty"`
}

// fieldsOf are the fields of each type of source, in the order in which messages list them.
var fieldsOf = map[string][]string{
	TypeGit:         {"type", "url", "ref", "sha", "version", "skillsDir", "include"},
	TypeMarketplace: {"type", "url", "plugin", "ref", "sha", "version", "include"},
}

// LoadManifest reads and checks a manifest. allowLocal permits repositories on this
// machine. The error for an invalid one is an [*InputError].
func LoadManifest(path string, allowLocal bool) (*Manifest, error) {
	data, err := readFile(path, maxManifest)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, inputError(path, "does not exist; choose another manifest with --manifest")
	case errors.Is(err, errTooLarge):
		return nil, inputError(path, "has more than %d bytes", maxManifest)
	case err != nil:
		return nil, inputError(path, "cannot be read: %v", err)
	}
	return ParseManifest(path, data, allowLocal)
}

// ParseManifest is [LoadManifest] for content that was read already. The path is used in
// messages.
func ParseManifest(path string, data []byte, allowLocal bool) (*Manifest, error) {
	root, err := parseJSON(path, data)
	if problem := (*skill.Problem)(nil); errors.As(err, &problem) {
		return nil, &InputError{[]*skill.Problem{problem}}
	}
	r := &manifestReader{path: path, allowLocal: allowLocal}
	m := r.manifest(root)
	if len(r.problems) > 0 {
		return nil, &InputError{r.problems}
	}
	return m, nil
}

type manifestReader struct {
	path       string
	allowLocal bool
	problems   []*skill.Problem
}

// refuse records a problem of a field, such as skills.pdf.url.
func (r *manifestReader) refuse(at place, field, format string, args ...any) {
	if len(r.problems) == maxProblems {
		return
	}
	message := fmt.Sprintf(format, args...)
	if field != "" {
		message = field + ": " + message
	}
	r.problems = append(r.problems, &skill.Problem{Path: r.path, Line: at.line, Column: at.column, Message: message, Refused: true})
}

func (r *manifestReader) manifest(root *node) *Manifest {
	m := &Manifest{}
	if root.kind != '{' {
		r.refuse(root.place, "", `must be an object with the member "skills"`)
		return m
	}
	for _, f := range root.members {
		if f.key != "skills" {
			r.refuse(f.place, "", `unknown field %s; the manifest has the field "skills" only`, quote(f.key))
		}
	}
	skills := root.find("skills")
	switch {
	case skills == nil:
		r.refuse(root.place, "skills", "is missing")
		return m
	case skills.kind != '{':
		r.refuse(skills.place, "skills", "must be an object that has a source for each name")
		return m
	case len(skills.members) > maxEntries:
		r.refuse(skills.place, "skills", "has %d sources; at most %d are allowed", len(skills.members), maxEntries)
		return m
	}
	sources := map[string]Source{}
	for _, one := range skills.members {
		field := "skills." + clean(one.key)
		if !entryName(one.key) {
			r.refuse(one.place, "skills", "%s is not a name for a source; a name consists of 1 to %d letters, digits, dots, hyphens and underscores",
				quote(one.key), skill.MaxName)
			continue
		}
		sources[one.key] = r.source(one.value, field)
	}
	for _, name := range sortedKeys(sources) {
		m.Entries = append(m.Entries, Entry{name, sources[name]})
	}
	return m
}

func entryName(name string) bool {
	return name != "" && len(name) <= skill.MaxName && strings.Trim(name, letters+digits+"._-") == "" && strings.IndexByte("._-", name[0]) < 0
}

const (
	letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits  = "0123456789"
)

func (r *manifestReader) source(n *node, field string) Source {
	var s Source
	if n.kind != '{' {
		r.refuse(n.place, field, `must be an object, such as {"type": "git", "url": "https://…"}`)
		return s
	}
	s.Type = r.text(n, field, "type")
	known := fieldsOf[s.Type]
	switch of := n.find("type"); {
	case of == nil:
		r.refuse(n.place, field+".type", "is missing; it is %s or %s", quote(TypeGit), quote(TypeMarketplace))
		return s
	case known == nil:
		if of.kind == '"' {
			r.refuse(of.place, field+".type", "unknown type %s; it is %s or %s", quote(s.Type), quote(TypeGit), quote(TypeMarketplace))
		}
		return s
	}
	for _, f := range n.members {
		if !slices.Contains(known, f.key) {
			r.refuse(f.place, field, "unknown field %s; a source of the type %s has %s", quote(f.key), s.Type, strings.Join(known, ", "))
		}
	}
	s.URL, s.Plugin = r.text(n, field, "url"), r.text(n, field, "plugin")
	s.Ref, s.SHA, s.Version = r.text(n, field, "ref"), r.text(n, field, "sha"), r.text(n, field, "version")
	s.SkillsDir, s.Include = r.text(n, field, "skillsDir"), r.include(n, field)
	r.check(n, field, &s)
	return s
}

// check checks the values of a source.
func (r *manifestReader) check(n *node, field string, s *Source) {
	required := []string{"url"}
	if s.Type == TypeMarketplace {
		required = append(required, "plugin")
	}
	for _, key := range required {
		if n.find(key) == nil {
			r.refuse(n.place, field+"."+key, "is missing")
		}
	}
	for _, f := range []struct {
		key, text string
		check     func(string) error
	}{
		{"url", s.URL, func(url string) error { _, err := parseRemote(url, r.allowLocal); return err }},
		{"plugin", s.Plugin, checkPlugin},
		{"ref", s.Ref, checkRef},
		{"sha", s.SHA, checkSHA},
		{"version", s.Version, checkVersion},
		{"skillsDir", s.SkillsDir, checkDir},
	} {
		at := n.find(f.key)
		if at == nil || at.kind != '"' {
			continue
		}
		if err := f.check(f.text); err != nil {
			r.refuse(at.place, field+"."+f.key, "%v", err)
		}
	}
	if s.Ref != "" && s.Version != "" {
		r.refuse(n.find("version").place, field+".version", "cannot be combined with ref; both name a tag")
	}
}

// text returns a field's text; what is not a text is refused.
func (r *manifestReader) text(n *node, field, key string) string {
	value := n.find(key)
	switch {
	case value == nil:
		return ""
	case value.kind != '"':
		r.refuse(value.place, field+"."+key, "must be a string")
		return ""
	case value.text == "":
		r.refuse(value.place, field+"."+key, "is empty; leave it out instead")
	}
	return value.text
}

// include returns the names of skills, sorted.
func (r *manifestReader) include(n *node, field string) []string {
	value := n.find("include")
	if value == nil {
		return nil
	}
	if value.kind != '[' || len(value.items) == 0 {
		r.refuse(value.place, field+".include", "must be an array of the names of skills; leave it out to take all")
		return nil
	}
	var names []string
	for i, item := range value.items {
		at := field + ".include[" + strconv.Itoa(i) + "]"
		switch {
		case item.kind != '"':
			r.refuse(item.place, at, "must be a string")
		case skill.CheckName(item.text) != nil:
			r.refuse(item.place, at, "%v", skill.CheckName(item.text))
		case slices.Contains(names, item.text):
			r.refuse(item.place, at, "%s is given twice", quote(item.text))
		default:
			names = append(names, item.text)
		}
	}
	slices.Sort(names)
	return names
}

var errTooLarge = errors.New("the file is too large")

// readFile reads a file of at most limit bytes.
func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = errTooLarge
	}
	return data, err
}

// quote returns foreign text as it is shown in messages.
func quote(text string) string {
	if len(text) > 100 {
		text = text[:100] + "…"
	}
	return strconv.QuoteToGraphic(text)
}

// clean returns foreign text without what would break a message, and not too long.
func clean(text string) string { return strings.Trim(quote(text), `"`) }
