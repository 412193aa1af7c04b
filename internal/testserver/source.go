package testserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// source is a way to get a server.
type source string

const (
	fromInstalled source = "installed" // programs on this machine
	fromDebian    source = "debian"    // packages, fetched and unpacked
	fromGo        source = "go"        // built from a Go module
	fromDocker    source = "docker"
)

// envSources lists the sources to try, separated by commas, where the usual ones will not do.
const envSources = "HELIX_TEST_SERVERS_FROM"

func sources() []source {
	if list := os.Getenv(envSources); list != "" {
		var from []source
		for s := range strings.SplitSeq(list, ",") {
			from = append(from, source(s))
		}
		return from
	}
	if skipServers() {
		return []source{fromInstalled}
	}
	return []source{fromInstalled, fromDebian, fromGo, fromDocker}
}

// recipe says how to get one kind of server from each source.
type recipe struct {
	server    string
	find      func(context.Context) *installation
	fetch     func(context.Context, *debian) (*installation, error) // nil if there is no package
	build     func(context.Context) (*installation, error)          // nil if it is not a Go program
	local     func(*installation) (*program, error)
	container func() *program // nil if there is no image
	// For the message that nothing worked: what to install, and which variable to set, if there is one.
	install, env string
}

// program returns the server from the first source that has it.
func (r *recipe) program(ctx context.Context) (*program, error) {
	missing := &missingError{server: r.server, install: r.install, env: r.env}
	for _, from := range sources() {
		p, err := r.programFrom(ctx, from)
		if err == nil {
			return p, nil
		}
		missing.tried = append(missing.tried, fmt.Sprintf("%s: %v", from, err))
	}
	return nil, missing
}

func (r *recipe) programFrom(ctx context.Context, from source) (*program, error) {
	switch from {
	case fromInstalled:
		inst := r.find(ctx)
		if inst == nil {
			return nil, errors.New("not found")
		}
		return r.local(inst)
	case fromDebian:
		if r.fetch == nil {
			return nil, errors.New("there is no package")
		}
		d, err := newDebian()
		if err != nil {
			return nil, err
		}
		inst, err := r.fetch(ctx, d)
		if err != nil {
			return nil, err
		}
		return r.local(inst)
	case fromGo:
		if r.build == nil {
			return nil, errors.New("it is not written in Go")
		}
		inst, err := r.build(ctx)
		if err != nil {
			return nil, err
		}
		return r.local(inst)
	case fromDocker:
		if r.container == nil {
			return nil, errors.New("there is no image")
		}
		if err := checkDocker(ctx); err != nil {
			return nil, err
		}
		return r.container(), nil
	default:
		return nil, fmt.Errorf("%s knows only %s, %s, %s and %s", envSources, fromInstalled, fromDebian, fromGo, fromDocker)
	}
}

// missingError says that a server cannot be had, and what to do.
type missingError struct {
	server, install, env string
	tried                []string
}

func (e *missingError) Error() string {
	running := ""
	if e.env != "" {
		running = ", or set " + e.env + " to the URL of a running one"
	}
	return fmt.Sprintf("no %s can be had\n%s\ninstall %s%s, or set %s=1 to skip the tests that need it",
		e.server, strings.Join(e.tried, "\n"), e.install, running, envSkip)
}
