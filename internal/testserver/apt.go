package testserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// apt fetches packages. It keeps its lists and archives in a directory of its own, so it neither needs root nor touches
// those of the system.
type apt struct {
	archives string
	options  []string
	stale    error // why the lists may not be complete
}

func newApt(ctx context.Context, work string) (*apt, error) {
	lists, cache := filepath.Join(work, "lists"), filepath.Join(work, "cache")
	a := &apt{archives: filepath.Join(cache, "archives")}
	for _, dir := range []string{filepath.Join(lists, "partial"), filepath.Join(a.archives, "partial")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	for _, option := range []string{
		"Dir::State::lists=" + lists,
		"Dir::Cache=" + cache,
		"Debug::NoLocking=1",          // the system's locks are root's, and nothing of the system's is written
		"APT::Sandbox::User=root",     // the user that root would change to cannot write here; others change to nobody
		"APT::Update::Error-Mode=any", // to know about it
		"Acquire::Retries=2",
	} {
		a.options = append(a.options, "-o", option)
	}
	// Perhaps one source of many is out of reach. It matters if it is the one with the packages.
	_, a.stale = a.run(ctx, "apt-get", "-qq", "update")
	return a, nil
}

// unpack fetches packages, with what they depend on and the machine lacks, and unpacks them all below root.
func (a *apt) unpack(ctx context.Context, root string, packages []string) error {
	// --reinstall: those that the machine has are fetched all the same.
	args := append([]string{"-qq", "-y", "install", "--download-only", "--reinstall", "--no-install-recommends"}, packages...)
	if _, err := a.run(ctx, "apt-get", args...); err != nil {
		return err
	}
	archives, err := filepath.Glob(filepath.Join(a.archives, "*.deb"))
	if err != nil {
		return err
	}
	if len(archives) == 0 {
		return errors.New("apt-get fetched nothing")
	}
	for _, archive := range archives {
		if out, err := exec.CommandContext(ctx, "dpkg-deb", "--extract", archive, root).CombinedOutput(); err != nil {
			return fmt.Errorf("unpack %s: %w\n%s", filepath.Base(archive), err, out)
		}
	}
	return nil
}

func (a *apt) run(ctx context.Context, program string, args ...string) (stdout string, err error) {
	cmd := exec.CommandContext(ctx, program, append(a.options, args...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%s %s: %w: %s", program, args[len(args)-1], err, bytes.TrimSpace(exit.Stderr))
	}
	if err != nil {
		return "", errors.Join(err, a.stale)
	}
	return string(out), nil
}
