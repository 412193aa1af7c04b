package skill

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"
)

// MaxProblems is how many problems a provider reports at most.
const MaxProblems = 100

// Problem is something that is wrong with a skill or with the place where it was found. It
// is the error of a skill that is refused, and a warning about one that is not.
type Problem struct { //nolint:errname // it is a warning as often as an error
	// Path is the file or directory, or empty if there is none.
	Path string
	// Root is the beginning of Path that says where on the machine the skills are, with slashes,
	// or empty.
	Root string
	// Line and Column are the place in the file, from 1, or 0 if the problem is about the
	// whole.
	Line, Column int
	// Skill is the skill's name, or that of its directory if the skill's is not known. It is
	// empty if the problem is not about one skill.
	Skill string
	// Message says what is wrong, and nothing about where on the machine that is: users of an
	// agent may read it.
	Message string
	// Detail follows the message for those who run the program.
	Detail string
	// Refused says that the skill is not listed.
	Refused bool
}

// Error returns the problem as one line: "skills/pdf/SKILL.md:3:1: the description is
// missing".
func (p *Problem) Error() string { return p.at(p.Path) + p.Full() }

// Full returns the message with the detail.
func (p *Problem) Full() string {
	if p.Detail == "" {
		return p.Message
	}
	return p.Message + " (" + p.Detail + ")"
}

// Public returns the problem as users of an agent may read it: with the path relative to
// the directory of skills, and without the detail.
func (p *Problem) Public() string {
	shown := filepath.ToSlash(p.Path)
	rest, below := strings.CutPrefix(shown, p.Root+"/")
	switch {
	case p.Root != "" && shown == p.Root:
		shown = "."
	case p.Root != "" && below:
		shown = rest
	case path.IsAbs(shown) || filepath.IsAbs(p.Path): // of a provider that names no root
		dir, file := path.Split(shown)
		shown = path.Join(path.Base(dir), file)
	}
	return p.at(shown) + p.Message
}

// at returns how a line about the problem begins.
func (p *Problem) at(place string) string {
	switch {
	case place != "" && p.Line > 0 && p.Column > 0:
		return fmt.Sprintf("%s:%d:%d: ", place, p.Line, p.Column)
	case place != "" && p.Line > 0:
		return fmt.Sprintf("%s:%d: ", place, p.Line)
	case place != "":
		return place + ": "
	case p.Skill != "":
		return "skill " + p.Skill + ": "
	}
	return ""
}

// Reporter is implemented by a provider that knows what is wrong with its skills: which
// ones it left out and why, and which ones hide others of the same name.
type Reporter interface {
	// Problems returns what is wrong with what List returns, in a fixed order and at most
	// [MaxProblems].
	Problems(ctx context.Context, scope Scope) []*Problem
}

// Problems returns the problems that a provider reports; none if it is no [Reporter].
func Problems(ctx context.Context, p Provider, scope Scope) []*Problem {
	r, ok := p.(Reporter)
	if !ok {
		return nil
	}
	return r.Problems(ctx, scope)
}

// problemOf returns the problem of a skill that is refused because of err.
func problemOf(name string, err error) *Problem {
	p, ok := errors.AsType[*Problem](err)
	if !ok {
		p = &Problem{Skill: name, Message: err.Error()}
	}
	out := *p
	out.Refused = true
	return &out
}

// limitProblems replaces the problems above the limit by one that counts them.
func limitProblems(all []*Problem) []*Problem {
	if len(all) <= MaxProblems {
		return all
	}
	out := append([]*Problem(nil), all[:MaxProblems-1]...)
	return append(out, &Problem{Message: fmt.Sprintf("there are %d further problems", len(all)-len(out))})
}
