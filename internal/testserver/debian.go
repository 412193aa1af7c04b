package testserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// fetchTimeout is how long fetching packages may take, waiting for another process that does the same included.
const fetchTimeout = 10 * time.Minute

// debian is a directory with programs from Debian packages that were fetched and unpacked, not installed: no root is
// needed, no service starts, and removing the directory removes everything.
type debian struct{ dir string }

// envCache names another directory than the usual one.
const envCache = "HELIX_TEST_CACHE"

// newDebian returns the cache that the tests of this user share.
func newDebian() (*debian, error) {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return nil, errors.New("this is not Debian or one of its descendants")
	}
	dir, err := cacheDir()
	if err != nil {
		return nil, err
	}
	// Programs fit the libraries of the release that they were fetched on.
	return &debian{dir: filepath.Join(dir, release()+"-"+runtime.GOARCH)}, nil
}

// cacheDir is where everything that was fetched is kept.
func cacheDir() (string, error) {
	if dir := os.Getenv(envCache); dir != "" {
		return dir, nil
	}
	if os.Getuid() == 0 {
		// Where the user that Postgres runs as can read it, unlike root's own cache.
		return "/var/cache/helix-testserver", nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "helix-testserver"), nil
}

// release names this version of the operating system.
func release() string {
	text, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "unknown"
	}
	values := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[name] = strings.Trim(value, `"`)
	}
	return values["ID"] + values["VERSION_ID"]
}

// postgres returns Postgres from the cache, which is filled first if it has to be.
func (d *debian) postgres(ctx context.Context) (*installation, error) {
	root, err := d.unpack(ctx, "postgres", postgresPackages)
	if err != nil {
		return nil, err
	}
	for _, dir := range newestFirst(filepath.Join(root, "usr", "lib", "postgresql", "*", "bin")) {
		if inst := findIn(dir, "postgres", "initdb"); inst != nil {
			inst.env = libraryPath(root)
			return inst, nil
		}
	}
	return nil, fmt.Errorf("the packages in %s hold no postgres", root)
}

// redis returns Redis from the cache, which is filled first if it has to be.
func (d *debian) redis(ctx context.Context) (*installation, error) {
	root, err := d.unpack(ctx, "redis", redisPackages)
	if err != nil {
		return nil, err
	}
	inst := findIn(filepath.Join(root, "usr", "bin"), "redis-server")
	if inst == nil {
		return nil, fmt.Errorf("the packages in %s hold no redis", root)
	}
	inst.env = libraryPath(root)
	return inst, nil
}

// pgbouncer returns PgBouncer from the cache, which is filled first if it has to be.
func (d *debian) pgbouncer(ctx context.Context) (*installation, error) {
	root, err := d.unpack(ctx, "pgbouncer", pgbouncerPackages)
	if err != nil {
		return nil, err
	}
	inst := findIn(filepath.Join(root, "usr", "sbin"), "pgbouncer")
	if inst == nil {
		return nil, fmt.Errorf("the packages in %s hold no pgbouncer", root)
	}
	inst.env = libraryPath(root)
	return inst, nil
}

// postgresPackages asks which version of Postgres the release has: the package postgresql is empty and depends on it.
func postgresPackages(ctx context.Context, a *apt) ([]string, error) {
	out, err := a.run(ctx, "apt-cache", "depends", "--important", "postgresql")
	if err != nil {
		return nil, err
	}
	for word := range strings.FieldsSeq(out) {
		if version, ok := strings.CutPrefix(word, "postgresql-"); ok && version != "" && strings.Trim(version, "0123456789") == "" {
			return []string{word}, nil
		}
	}
	return nil, errors.New("there is no package postgresql")
}

// redisPackages names both packages: the server is a link in one to a program in the other.
func redisPackages(context.Context, *apt) ([]string, error) {
	return []string{"redis-server", "redis-tools"}, nil
}

func pgbouncerPackages(context.Context, *apt) ([]string, error) { return []string{"pgbouncer"}, nil }

// unpack returns a directory that holds the packages and everything that they need and this machine lacks.
func (d *debian) unpack(ctx context.Context, name string, packages func(context.Context, *apt) ([]string, error)) (root string, err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout) // waits: longer than a test may take, once for each machine
	defer cancel()
	if err := os.MkdirAll(d.dir, 0o755); err != nil {
		return "", err
	}
	// The tests of several packages start at the same time, and all need the same.
	lock, err := lockFile(ctx, filepath.Join(d.dir, name+".lock"))
	if err != nil {
		return "", err
	}
	defer lock.Close()

	root = filepath.Join(d.dir, name)
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	fmt.Fprintf(os.Stderr, "testserver: fetching Debian packages for %s into %s\n", name, root)
	work, err := os.MkdirTemp(d.dir, name+"-*")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	a, err := newApt(ctx, work)
	if err != nil {
		return "", err
	}
	names, err := packages(ctx, a)
	if err != nil {
		return "", err
	}
	partial := filepath.Join(work, "root")
	if err := a.unpack(ctx, partial, names); err != nil {
		return "", err
	}
	// Under its name only when it is complete.
	return root, os.Rename(partial, root)
}

// libraryPath lets programs find the libraries that were unpacked with them.
func libraryPath(root string) []string {
	var dirs []string
	for _, pattern := range []string{"usr/lib/*-linux-gnu*", "lib/*-linux-gnu*", "usr/lib/*-linux-gnu*/pulseaudio"} {
		if found, err := filepath.Glob(filepath.Join(root, pattern)); err == nil {
			dirs = append(dirs, found...)
		}
	}
	if len(dirs) == 0 {
		return nil
	}
	return []string{"LD_LIBRARY_PATH=" + strings.Join(dirs, ":")}
}
