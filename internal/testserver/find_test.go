package testserver

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fakeProgram writes a program that prints a line.
func fakeProgram(t *testing.T, path, says string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho '"+says+"'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

func fakePostgres(t *testing.T, version string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	fakeProgram(t, filepath.Join(dir, "postgres"), "postgres (PostgreSQL) "+version)
	fakeProgram(t, filepath.Join(dir, "initdb"), "")
	return dir
}

func TestFindPostgresPassesOverOldOnes(t *testing.T) {
	old, beta := fakePostgres(t, "13.20"), fakePostgres(t, "19beta1 (Debian 19~beta1)")
	t.Setenv("PATH", strings.Join([]string{old, beta}, string(filepath.ListSeparator)))
	inst := findPostgres(t.Context())
	if inst == nil || inst.path("initdb") != filepath.Join(beta, "initdb") {
		t.Errorf("found %v, want the one in %s", inst, beta)
	}
}

func TestFindTemporalPassesOverOldOnes(t *testing.T) {
	old, silent, recent := t.TempDir(), t.TempDir(), t.TempDir()
	fakeProgram(t, filepath.Join(old, "temporal"), "temporal version 1.4.1 (Server 1.28.0, UI 2.39.0)")
	fakeProgram(t, filepath.Join(silent, "temporal"), "temporal, a program of another kind")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("PATH", strings.Join([]string{old, silent}, string(filepath.ListSeparator)))
	for _, dir := range []string{"/usr/local/bin", "/opt/homebrew/bin"} {
		if findIn(dir, "temporal") != nil {
			t.Skipf("there is one in %s", dir)
		}
	}
	if inst := findTemporal(t.Context()); inst != nil {
		t.Errorf("found %v, which is too old or none", inst.programs)
	}
	for _, version := range []string{"1.29.1", "1.30.0", "2.0.0"} {
		// One that Go has built does not know its own version.
		fakeProgram(t, filepath.Join(recent, "temporal"), "temporal version 0.0.0-DEV (Server "+version+", UI 2.42.1)")
		t.Setenv("PATH", strings.Join([]string{old, silent, recent}, string(filepath.ListSeparator)))
		if inst := findTemporal(t.Context()); inst == nil || inst.path("temporal") != filepath.Join(recent, "temporal") {
			t.Errorf("found %v, want the one with server %s", inst, version)
		}
	}
}

func TestNewestFirst(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, version := range []string{"9.6", "14", "17", "local"} {
		if err := os.MkdirAll(filepath.Join(root, version, "bin"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, dir := range newestFirst(filepath.Join(root, "*", "bin")) {
		got = append(got, filepath.Base(filepath.Dir(dir)))
	}
	if want := []string{"17", "14", "9.6", "local"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestFindIn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fakeProgram(t, filepath.Join(dir, "postgres"), "")
	if inst := findIn(dir, "postgres", "initdb"); inst != nil {
		t.Errorf("found %v although initdb is missing", inst.programs)
	}
	if err := os.WriteFile(filepath.Join(dir, "initdb"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if inst := findIn(dir, "postgres", "initdb"); inst != nil {
		t.Errorf("found %v although initdb cannot be executed", inst.programs)
	}
}

func TestMissingServerSaysWhatToDo(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv(envSources, "debian,docker,elsewhere")
	_, err := startPostgres(t.Context(), nil)
	for _, want := range []string{"debian: ", "docker: not installed", "elsewhere: ", "install postgresql", envPostgres, envSkip} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v\ndoes not mention %q", err, want)
		}
	}
}

// TestMissingPooler: there is neither an image of it nor a variable that names one.
func TestMissingPooler(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv(envSources, "debian,docker")
	_, err := startPgBouncer(t.Context(), "postgres://postgres@127.0.0.1:1/postgres", nil)
	for _, want := range []string{"debian: ", "docker: there is no image", "install pgbouncer, or set " + envSkip} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v\ndoes not mention %q", err, want)
		}
	}
}

// TestMissingTemporal: it is built, and comes neither as a package nor as an image.
func TestMissingTemporal(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv(envCache, t.TempDir())
	t.Setenv(envSources, "debian,go,docker")
	_, err := startTemporal(t.Context(), false, nil)
	for _, want := range []string{
		"debian: there is no package", "go: ", "docker: there is no image", "install the Temporal CLI", envTemporal, envSkip,
	} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v\ndoes not mention %q", err, want)
		}
	}
}

func TestSources(t *testing.T) {
	for _, test := range []struct{ list, skip, want string }{
		{"", "", "[installed debian go docker]"},
		{"", "1", "[installed]"},
		{"docker,installed", "1", "[docker installed]"},
	} {
		t.Setenv(envSources, test.list)
		t.Setenv(envSkip, test.skip)
		if got := fmt.Sprint(sources()); got != test.want {
			t.Errorf("with %+v: got %s", test, got)
		}
	}
}
