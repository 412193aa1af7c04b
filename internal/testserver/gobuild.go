package testserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// buildTimeout is how long building a program may take, waiting for another process that does the same included. The
// machine may be busy with tests meanwhile.
const buildTimeout = 25 * time.Minute

// goProgram is a program that Go builds from a module of somebody else's, into the cache.
type goProgram struct {
	name            string
	module, version string
	pkg             string   // below the module
	newer           []string // modules that it is built with, as "path version", where those that it asks for are faulty
	takes           string   // how long that takes, for people
}

// dir is where the finished program is.
func (g *goProgram) dir() (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	name := []string{g.name, g.version}
	for _, m := range g.newer {
		module, version, _ := strings.Cut(m, " ")
		name = append(name, path.Base(module), version)
	}
	return filepath.Join(cache, "go", strings.Join(append(name, runtime.GOOS, runtime.GOARCH), "-")), nil
}

// built returns the program if it is in the cache, and nil otherwise.
func (g *goProgram) built() *installation {
	dir, err := g.dir()
	if err != nil {
		return nil
	}
	return findIn(dir, g.name)
}

// build returns the program from the cache, which is filled first if it has to be.
func (g *goProgram) build(ctx context.Context) (inst *installation, err error) {
	if inst := g.built(); inst != nil {
		return inst, nil
	}
	compiler, err := exec.LookPath("go")
	if err != nil {
		return nil, err
	}
	root, err := g.dir()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, buildTimeout) // waits: longer than a test may take, once for each machine
	defer cancel()
	if err := os.MkdirAll(filepath.Dir(root), 0o755); err != nil {
		return nil, err
	}
	// The tests of several packages start at the same time, and all need the same.
	lock, err := lockFile(ctx, root+".lock")
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if inst := g.built(); inst != nil {
		return inst, nil
	}
	fmt.Fprintf(os.Stderr, "testserver: building %s %s into %s, which takes %s the first time\n", g.name, g.version, root, g.takes)
	work, err := os.MkdirTemp(filepath.Dir(root), g.name+"-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	partial := filepath.Join(work, "bin")
	if err := g.install(ctx, compiler, work, partial); err != nil {
		return nil, err
	}
	// Under its name only when it is complete.
	if err := os.Rename(partial, root); err != nil {
		return nil, err
	}
	if inst = g.built(); inst == nil {
		return nil, fmt.Errorf("%s/%s has no program %s", g.module, g.pkg, g.name)
	}
	return inst, nil
}

// install builds the program into bin. It works in a module of its own, because the settings of every other one are not
// those of the program, and "go install pkg@version" takes no newer modules.
func (g *goProgram) install(ctx context.Context, compiler, work, bin string) error {
	// From 1.17 on, Go does not read what the modules require that nothing here imports; it sets the version that it needs.
	mod := []string{"module build", "go 1.17", "require " + g.module + " " + g.version}
	for _, m := range g.newer {
		mod = append(mod, "require "+m)
	}
	if err := os.WriteFile(filepath.Join(work, "go.mod"), []byte(strings.Join(mod, "\n")), 0o600); err != nil {
		return err
	}
	args := []string{compiler, "install", "-mod=mod", "-ldflags=-s -w", g.module + "/" + g.pkg}
	// Tests that need nothing of it run at the same time, and some of them count seconds.
	if nice, err := exec.LookPath("nice"); err == nil {
		args = append([]string{nice}, args...)
	}
	// Not the context given: it would end the compiler alone, and not what that has started.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), args[0], args[1:]...)
	cmd.Dir = work
	cmd.Env = append(os.Environ(), "GOBIN="+bin, "GOTMPDIR="+work, "GOFLAGS=", "GOWORK=off", "GOOS=", "GOARCH=", "CGO_ENABLED=0")
	cmd.WaitDelay = pingTimeout // for those who hold on to its output
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	p, err := startLocal(cmd, syscall.SIGTERM, syscall.SIGKILL)
	if err != nil {
		return err
	}
	select {
	case <-p.done():
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("build %s: %w", g.module, ctx.Err()), p.kill())
	}
	if !cmd.ProcessState.Success() {
		return fmt.Errorf("go install %s/%s@%s: %v\n%s", g.module, g.pkg, g.version, cmd.ProcessState, bytes.TrimSpace(out.Bytes()))
	}
	return nil
}
