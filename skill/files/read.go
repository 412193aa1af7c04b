package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/helixagents/helix/skill"
)

// maxFileDepth is how many directories below its own a skill may have.
const maxFileDepth = 12

// readSkill reads the skill in a directory: SKILL.md, and the sums of all files. What is
// wrong with single files is a warning.
func readSkill(ctx context.Context, r *root, top *confined, dir string) (*skill.Skill, []*skill.Problem, error) {
	name := path.Join(dir, skill.FileName)
	own, err := top.sub(dir)
	if err != nil {
		return nil, nil, r.refusal(name, fmt.Errorf("cannot be read: %w", cause(err)))
	}
	defer own.close()
	data, executable, err := readText(own)
	if err != nil {
		return nil, nil, r.refusal(name, fmt.Errorf("cannot be read: %w", cause(err)))
	}
	s, warnings, err := Parse(r.path(name), data)
	if err != nil {
		return nil, nil, r.refusal(name, err)
	}
	for _, p := range warnings {
		p.Root = r.shown()
	}
	c := &collector{
		ctx: ctx, root: r, own: own, dir: dir, name: s.Name,
		sums: []skill.FileSum{skill.Sum(skill.FileName, executable, data)}, bytes: int64(len(data)),
	}
	if err := c.collect("", 0); err != nil {
		return nil, nil, err
	}
	for _, f := range c.sums[1:] {
		s.Files = append(s.Files, skill.File{Path: f.Path, Size: f.Size, Executable: f.Executable})
	}
	slices.SortFunc(s.Files, func(a, b skill.File) int { return cmp.Compare(a.Path, b.Path) })
	s.Digest = skill.Digest(c.sums)
	return s, append(warnings, c.warnings...), nil
}

// readText reads SKILL.md, and one byte more than it may have, so that [Parse] refuses what
// is too large.
func readText(own *confined) (data []byte, executable bool, err error) {
	f, err := own.openChecked(skill.FileName)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	if info.Size() > skill.MaxBody {
		return nil, false, fmt.Errorf("it has %d bytes; at most %d are allowed; move parts of it to files beside it", info.Size(), skill.MaxBody)
	}
	data, err = io.ReadAll(io.LimitReader(f, skill.MaxBody+1))
	return data, info.Mode()&0o111 != 0, err
}

// collector collects the files of a skill.
type collector struct {
	ctx      context.Context //nolint:containedctx // it lives for one call
	root     *root
	own      *confined // the skill's directory
	dir      string    // where that is in the root
	name     string
	entries  int // seen, of any kind
	sums     []skill.FileSum
	bytes    int64
	warnings []*skill.Problem
}

// Limits of a skill's directory, beside those of its files: entries of any kind, and
// warnings about them.
const (
	maxSkillEntries  = 2 * skill.MaxFiles
	maxSkillWarnings = 10
)

func (c *collector) refuse(file, format string, args ...any) error {
	p := c.root.problem(path.Join(c.dir, file), c.name, fmt.Sprintf(format, args...))
	p.Refused = true
	return p
}

func (c *collector) warn(file, format string, args ...any) {
	switch {
	case len(c.warnings) < maxSkillWarnings:
	case len(c.warnings) == maxSkillWarnings:
		file, format, args = "", "has further files that are left out", nil
	default:
		return
	}
	c.warnings = append(c.warnings, c.root.problem(path.Join(c.dir, file), c.name, fmt.Sprintf(format, args...)))
}

// collect adds the files of a directory of the skill and those below it.
func (c *collector) collect(below string, depth int) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	if depth > maxFileDepth {
		c.warn(below, "lies more than %d directories deep; its files are left out", maxFileDepth)
		return nil
	}
	entries, err := readDir(c.own.FS, path.Join(".", below))
	if err != nil {
		return c.refuse(below, "cannot be read: %v", err)
	}
	if c.entries += len(entries); c.entries > maxSkillEntries {
		return c.refuse("", "has more than %d files and directories", maxSkillEntries)
	}
	for _, e := range entries {
		file := path.Join(below, e.Name())
		switch {
		case file == skill.FileName || skipped(e.Name()):
		case e.IsDir():
			if err := c.collect(file, depth+1); err != nil {
				return err
			}
		default:
			if err := c.add(file, e.Type()&fs.ModeSymlink != 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// add adds one file, or what a link leads to. A file that cannot be read is left out: it
// must not make the skill unusable.
func (c *collector) add(file string, link bool) error {
	if err := skill.CheckPath(file); err != nil {
		c.warn(file, "is left out: %v", err)
		return nil
	}
	if len(c.sums) > skill.MaxFiles {
		return c.refuse("", "has more than %d files", skill.MaxFiles)
	}
	sum, err := c.sum(file, link)
	switch {
	case errors.Is(err, errTooLarge):
		return c.refuse("", "has more than %d bytes in its files", skill.MaxBytes)
	case err != nil:
		c.warn(file, "is left out: %v", cause(err))
		return nil
	}
	c.bytes += sum.Size
	c.sums = append(c.sums, sum)
	return nil
}

var errTooLarge = errors.New("it is too large")

// sum reads a file to compute its sum.
func (c *collector) sum(file string, link bool) (skill.FileSum, error) {
	open := c.own.openFile
	if link {
		open = c.own.openChecked
	}
	f, err := open(file)
	if err != nil {
		return skill.FileSum{}, err
	}
	defer func() { _ = f.Close() }() // it was only read
	sum, err := skill.SumFile(file, f, skill.MaxBytes-c.bytes+1)
	if err == nil && c.bytes+sum.Size > skill.MaxBytes {
		return skill.FileSum{}, errTooLarge
	}
	return sum, err
}

// cause returns what an error says about a file without the operation and the path, which
// the message names itself.
func cause(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		if strings.Contains(p.Err.Error(), "escapes") { // the error of os.Root is not exported
			return errLeadsOut
		}
		return p.Err
	}
	return err
}

// problem returns a warning about a file of the root.
func (r *root) problem(name, skillName, message string) *skill.Problem {
	return &skill.Problem{Path: r.path(name), Root: r.shown(), Skill: skillName, Message: message}
}

// refusal returns the problem of a skill that is refused because of err: what is wrong with
// its SKILL.md, name. Before that is read, the skill goes by the name of its directory.
func (r *root) refusal(name string, err error) *skill.Problem {
	p, ok := errors.AsType[*skill.Problem](err)
	if !ok {
		p = r.problem(name, "", err.Error())
	}
	p.Root, p.Refused = r.shown(), true
	if dir := path.Base(path.Dir(r.path(name))); p.Skill == "" && skill.CheckName(dir) == nil {
		p.Skill = dir
	}
	return p
}
