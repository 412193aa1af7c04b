package testserver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/helixagents/helix/internal/eventually"
)

var goProject = &goProgram{
	name: "x", module: "example.com", pkg: "cmd/x", version: "v1.2.3", newer: []string{"example.com/y v2.0.0"}, takes: "no time",
}

// fakeGo puts a compiler first in PATH, and an empty cache in place. The compiler runs a script, which may write to the file
// NOTES.
func fakeGo(t *testing.T, script string) (cache, notes string) {
	t.Helper()
	bin := t.TempDir()
	notes = filepath.Join(t.TempDir(), "notes")
	script = strings.ReplaceAll(script, "NOTES", notes)
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte("#!/bin/sh\nset -e\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	cache = t.TempDir()
	t.Setenv(envCache, cache)
	return cache, notes
}

// TestGoProgramOnce wants a program that several tests need at the same time to be built once, and in a module of its
// own.
func TestGoProgramOnce(t *testing.T) {
	t.Setenv("GOFLAGS", "-mod=vendor")
	cache, notes := fakeGo(t, `echo "$# $1 $4 [$GOFLAGS] $CGO_ENABLED" >>NOTES
		grep require go.mod >>NOTES
		mkdir "$GOBIN"
		: >"$GOBIN/x"; chmod 755 "$GOBIN/x"`)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			inst, err := goProject.build(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := os.Stat(inst.path("x")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	const want = "4 install example.com/cmd/x [] 0\nrequire example.com v1.2.3\nrequire example.com/y v2.0.0\n"
	if got, err := os.ReadFile(notes); err != nil || string(got) != want {
		t.Errorf("go was run: %q, %v", got, err)
	}
	checkCache(t, cache, 2) // the program and its lock
}

func TestGoProgramThatFails(t *testing.T) {
	cache, _ := fakeGo(t, `mkdir "$GOBIN"; : >"$GOBIN/x"; chmod 755 "$GOBIN/x"; echo "no such module" >&2; exit 1`)
	_, err := goProject.build(t.Context())
	if err == nil || !strings.Contains(err.Error(), "example.com/cmd/x@v1.2.3") || !strings.Contains(err.Error(), "no such module") {
		t.Errorf("got %v", err)
	}
	if inst := goProject.built(); inst != nil {
		t.Errorf("what failed looks finished: %v", inst.programs)
	}
	checkCache(t, cache, 1)
}

// TestEnvironmentDoesNotWaitForTemporal, and takes the build along when it ends.
func TestEnvironmentDoesNotWaitForTemporal(t *testing.T) {
	// The compiler never ends, and neither does what it has started.
	cache, notes := fakeGo(t, `mkdir "$GOBIN"; : >"$GOBIN/temporal"; chmod 755 "$GOBIN/temporal"
		sleep 1000 & echo $! >NOTES; wait`)
	t.Setenv(envSources, string(fromGo))
	for _, name := range []string{envPostgres, envRedis, envRedisCluster} {
		t.Setenv(name, "elsewhere")
	}
	t.Setenv(envTemporal, "")

	ctx, cancel := context.WithCancel(t.Context())
	env, stop, err := Environment(ctx)
	cancel() // as the command does
	if err != nil {
		t.Fatal(err)
	}
	if len(env) > 0 {
		t.Errorf("names %v", env)
	}
	var child int
	eventually.Poll(t, "the compiler runs", func() bool {
		text, err := os.ReadFile(notes)
		if err != nil || !strings.HasSuffix(string(text), "\n") {
			return false
		}
		child, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	})
	if inst := temporalCLI.built(); inst != nil {
		t.Errorf("what is not done looks finished: %v", inst.programs)
	}
	waiting, giveUp := context.WithCancel(t.Context())
	giveUp()
	if _, err := temporalCLI.build(waiting); !errors.Is(err, context.Canceled) {
		t.Errorf("who needs it does not wait for it: %v", err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if alive(child) {
		t.Errorf("process %d of the compiler is alive", child)
	}
	checkCache(t, cache, 1)
}

// checkCache wants nothing unfinished to be left in a cache.
func checkCache(t *testing.T, cache string, want int) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(cache, "go", "*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != want {
		t.Errorf("the cache holds %v, want %d files", left, want)
	}
}
