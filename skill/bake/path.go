package bake

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/helixagents/helix/skill"
)

// Limits of paths.
const (
	maxElement = 200
	// maxPathDepth is how many directories below its own a skill may have; package files reads
	// as many.
	maxPathDepth = 12
)

// leftOut are the names of files and directories that are not written. They would change
// what git does with the skills in the user's own repository, or are not read by agents.
var leftOut = []string{".gitattributes", ".gitignore", ".gitkeep", ".gitmodules", ".ds_store", "node_modules"}

// isLeftOut reports whether a file is not written.
func isLeftOut(path string) bool {
	for element := range strings.SplitSeq(path, "/") {
		if slices.Contains(leftOut, strings.ToLower(element)) {
			return true
		}
	}
	return false
}

// checkFile returns an error if a file of a skill cannot be written: its path would not be
// the same on every system, would not be embedded by Go, or would mean something to git or
// Go.
func checkFile(path string) error {
	if err := skill.CheckPath(path); err != nil {
		return errors.New("its path does not lie within the skill, or has characters that are not allowed")
	}
	elements := strings.Split(path, "/")
	if len(elements) > maxPathDepth+1 {
		return fmt.Errorf("it lies more than %d directories deep", maxPathDepth)
	}
	for _, element := range elements {
		if err := checkElement(element); err != nil {
			return err
		}
	}
	switch name := strings.ToLower(elements[len(elements)-1]); {
	case strings.HasSuffix(name, ".go"):
		return errors.New("it is Go code, which would become a part of your module: go build would compile it and go test run it")
	case name == "go.mod":
		return errors.New("it would make its directory a module of its own, which Go does not embed")
	}
	return nil
}

// checkElement checks one element of a path. The characters are those that Go embeds.
func checkElement(element string) error {
	folded := strings.ToLower(element)
	stem, _, _ := strings.Cut(folded, ".")
	switch {
	case len(element) > maxElement:
		return fmt.Errorf("a name of its path has %d bytes; at most %d are allowed", len(element), maxElement)
	case folded == ".git" || strings.HasPrefix(folded, "git~") || folded == ".hg" || folded == ".svn" || folded == ".bzr":
		return fmt.Errorf("%s is a name that a version control system uses", quote(element))
	case strings.HasSuffix(element, ".") || strings.HasSuffix(element, " ") || strings.HasPrefix(element, " "):
		return fmt.Errorf("%s begins or ends with a space, or ends with a dot, which Windows does not keep", quote(element))
	case slices.Contains(windowsNames, stem):
		return fmt.Errorf("%s is the name of a device on Windows", quote(element))
	}
	for _, r := range element {
		ok := unicode.IsLetter(r)
		if r <= unicode.MaxASCII {
			ok = strings.ContainsRune(letters+digits+"!#$%&()+,-.=@[]^_{}~ ", r)
		}
		if !ok {
			return fmt.Errorf("%s has %q, which is not allowed in the name of a file", quote(element), r)
		}
	}
	return nil
}

var windowsNames = []string{
	"con", "prn", "aux", "nul",
	"com0", "com1", "com2", "com3", "com4", "com5", "com6", "com7", "com8", "com9",
	"lpt0", "lpt1", "lpt2", "lpt3", "lpt4", "lpt5", "lpt6", "lpt7", "lpt8", "lpt9",
}

// fold returns a text that is the same for all that file systems may regard as the same:
// letters that differ in case, as in [strings.EqualFold], or in how they are encoded.
func fold(text string) string {
	return norm.NFKC.String(strings.Map(func(r rune) rune {
		least := r
		for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
			least = min(least, other)
		}
		return least
	}, norm.NFKC.String(text)))
}

// names finds paths that are the same on a file system that ignores case or normalizes
// letters, and files that are directories, too.
type names map[string]struct {
	path string
	dir  bool
}

// add adds a file and the directories above it.
func (n names) add(path string) error {
	for i, r := range path {
		if r == '/' {
			if err := n.put(path[:i], true); err != nil {
				return err
			}
		}
	}
	return n.put(path, false)
}

func (n names) put(path string, dir bool) error {
	key := fold(path)
	was, taken := n[key]
	switch {
	case !taken:
		was.path, was.dir = path, dir
		n[key] = was
	case was.path != path:
		return fmt.Errorf("%s and %s differ only in case or in how letters are encoded", quote(was.path), quote(path))
	case !dir || !was.dir:
		return fmt.Errorf("%s is there twice", quote(path))
	}
	return nil
}
