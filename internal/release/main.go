// Command release makes a release of the commit that is checked out: it gives the section
// Unreleased of CHANGELOG.md the version and the day, commits that, and tags the commit.
// Nothing leaves the machine; it prints the command that publishes the release.
//
//	release v0.1.0
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "release: name one version, such as v0.1.0")
		os.Exit(2)
	}
	if err := release(context.Background(), os.Stdout, ".", os.Args[1], time.Now()); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

const (
	changelog  = "CHANGELOG.md"
	unreleased = "## Unreleased\n"
	branch     = "main"
)

// release makes the release in the repository at dir, or changes nothing.
func release(ctx context.Context, out io.Writer, dir, version string, now time.Time) error {
	r := repository{ctx, dir}
	if err := r.check(version); err != nil {
		return err
	}
	path := filepath.Join(dir, changelog)
	before, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	after, notes, err := cutSection(string(before), version, now)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(after), info.Mode().Perm()); err != nil {
		return err
	}
	if _, err := r.git("commit", "-q", "-m", "Release "+version, "--", changelog); err != nil {
		return errors.Join(err, os.WriteFile(path, before, info.Mode().Perm()))
	}
	// Without cleaning, because # begins a heading in the notes and a comment in git.
	if _, err := r.git("tag", "-a", version, "--cleanup=verbatim", "-m", "Helix "+version+"\n\n"+notes); err != nil {
		_, undone := r.git("reset", "-q", "--hard", "HEAD~1")
		return errors.Join(err, undone)
	}
	fmt.Fprintf(out, "%s is tagged. Look at it with git show %s, and publish it with\n\n  git push origin %s %s\n", version, version, branch, version)
	return nil
}

type repository struct {
	ctx context.Context //nolint:containedctx // of one command
	dir string
}

func (r repository) git(args ...string) (string, error) {
	cmd := exec.CommandContext(r.ctx, "git", args...)
	cmd.Dir = r.dir
	var complaints strings.Builder
	cmd.Stderr = &complaints
	text, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w\n%s", args[0], err, complaints.String())
	}
	return strings.TrimSpace(string(text)), nil
}

// check refuses what must not be released.
func (r repository) check(version string) error {
	wanted, ok := parse(version)
	if !ok {
		return fmt.Errorf("%q is not a version such as v0.1.0", version)
	}
	on, err := r.git("rev-parse", "--abbrev-ref", "HEAD")
	if err != nil {
		return err
	}
	if on != branch {
		return fmt.Errorf("releases are made on %s, but %s is checked out", branch, on)
	}
	changed, err := r.git("status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("there are changes that are not committed:\n%s", changed)
	}
	tags, err := r.git("tag", "--list", "v*")
	if err != nil {
		return err
	}
	for tag := range strings.FieldsSeq(tags) {
		if earlier, ok := parse(tag); ok && slices.Compare(wanted, earlier) <= 0 {
			return fmt.Errorf("%s is not after %s", version, tag)
		}
	}
	return nil
}

var semantic = regexp.MustCompile(`^v(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})$`)

// parse returns the numbers of a version. Pre-releases are not made.
func parse(version string) (numbers []int, ok bool) {
	found := semantic.FindStringSubmatch(version)
	if found == nil {
		return nil, false
	}
	for _, digits := range found[1:] {
		n, err := strconv.Atoi(digits)
		if err != nil {
			return nil, false
		}
		numbers = append(numbers, n)
	}
	return numbers, true
}

// cutSection gives what is unreleased a version, and begins an empty section above it. notes
// is what is released.
func cutSection(text, version string, now time.Time) (after, notes string, err error) {
	before, rest, found := strings.Cut(text, "\n"+unreleased)
	if !found {
		return "", "", fmt.Errorf("%s has no section %q", changelog, strings.TrimSpace(unreleased))
	}
	notes, older, _ := strings.Cut(rest, "\n## ")
	if notes = strings.TrimSpace(notes); notes == "" {
		return "", "", fmt.Errorf("%s says of nothing that it changed", changelog)
	}
	after = before + "\n" + unreleased + "\n## " + version + " - " + now.UTC().Format(time.DateOnly) + "\n\n" + notes + "\n"
	if older != "" {
		after += "\n## " + older
	}
	return after, notes, nil
}
