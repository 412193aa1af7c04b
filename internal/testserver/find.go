package testserver

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/helixagents/helix/internal/eventually"
)

// installation is where a server's programs are.
type installation struct {
	programs map[string]string // by name
	env      []string          // what they need besides
}

func (i *installation) path(program string) string { return i.programs[program] }

// environ is the environment that programs run in. It is not the tests' own, in which variables like PGDATA or LANG
// would change what a server does.
func (i *installation) environ() []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}, i.env...)
}

// oldestPostgres is the first major version that Helix supports.
const oldestPostgres = 14

// findPostgres looks for an installed Postgres; nil if there is none.
func findPostgres(ctx context.Context) *installation {
	// Where distributions keep Postgres, each version in a directory of its own.
	kept := newestFirst("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin",
		"/usr/local/opt/postgresql@*/bin", "/opt/homebrew/opt/postgresql@*/bin")
	for _, dir := range append(pathDirs(), kept...) {
		inst := findIn(dir, "postgres", "initdb")
		if inst != nil && postgresVersion(ctx, inst) >= oldestPostgres {
			return inst
		}
	}
	return nil
}

// postgresVersion asks a Postgres for its major version; 0 if it does not say.
func postgresVersion(ctx context.Context, inst *installation) int {
	ctx, cancel := context.WithTimeout(ctx, eventually.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, inst.path("postgres"), "--version")
	cmd.Env = inst.environ()
	out, err := cmd.Output()
	if err != nil {
		return 0
	}
	var major int
	if _, err := fmt.Sscanf(string(out), "postgres (PostgreSQL) %d", &major); err != nil {
		return 0
	}
	return major
}

// findRedis looks for an installed Redis, or the Valkey that it has become elsewhere; nil if there is none.
func findRedis(context.Context) *installation {
	for _, dir := range append(pathDirs(), "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin") {
		for _, name := range []string{"redis-server", "valkey-server"} {
			if inst := findIn(dir, name); inst != nil {
				return &installation{programs: map[string]string{"redis-server": inst.path(name)}}
			}
		}
	}
	return nil
}

// findPgBouncer looks for an installed PgBouncer; nil if there is none.
func findPgBouncer(context.Context) *installation {
	// Some users do not have the directories for servers in their PATH.
	for _, dir := range append(pathDirs(), "/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/opt/homebrew/bin") {
		if inst := findIn(dir, "pgbouncer"); inst != nil {
			return inst
		}
	}
	return nil
}

// oldestTemporal is the first version of the server that the tests were run with.
const oldestTemporal = "1.29"

// findTemporal looks for an installed Temporal CLI; nil if there is none.
func findTemporal(ctx context.Context) *installation {
	dirs := append(pathDirs(), "/usr/local/bin", "/opt/homebrew/bin")
	if home, err := os.UserHomeDir(); err == nil {
		dirs = append(dirs, filepath.Join(home, ".temporalio", "bin")) // where its own installer puts it
	}
	for _, dir := range dirs {
		inst := findIn(dir, "temporal")
		if inst != nil && temporalNewEnough(ctx, inst) {
			return inst
		}
	}
	return nil
}

// temporalNewEnough asks a CLI for the version of the server inside it; its own is not known to one that Go has built.
func temporalNewEnough(ctx context.Context, inst *installation) bool {
	ctx, cancel := context.WithTimeout(ctx, eventually.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, inst.path("temporal"), "--version")
	cmd.Env = inst.environ()
	out, err := cmd.Output()
	if err != nil {
		return false
	}
	_, version, _ := strings.Cut(string(out), "(Server ")
	var major, minor, oldestMajor, oldestMinor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return false
	}
	if _, err := fmt.Sscanf(oldestTemporal, "%d.%d", &oldestMajor, &oldestMinor); err != nil {
		return false
	}
	return major > oldestMajor || major == oldestMajor && minor >= oldestMinor
}

// findIn returns what is in dir if it has all the programs, and nil otherwise.
func findIn(dir string, names ...string) *installation {
	programs := map[string]string{}
	for _, name := range names {
		path, err := exec.LookPath(filepath.Join(dir, name))
		if err != nil {
			return nil
		}
		programs[name] = path
	}
	return &installation{programs: programs}
}

// pathDirs lists the directories of PATH.
func pathDirs() []string {
	return slices.DeleteFunc(filepath.SplitList(os.Getenv("PATH")), func(dir string) bool { return !filepath.IsAbs(dir) })
}

// newestFirst lists the directories that match the patterns, by the version in their names.
func newestFirst(patterns ...string) []string {
	var found []string
	for _, pattern := range patterns {
		if dirs, err := filepath.Glob(pattern); err == nil {
			found = append(found, dirs...)
		}
	}
	slices.SortStableFunc(found, func(a, b string) int { return cmp.Compare(versionIn(b), versionIn(a)) })
	return found
}

// versionIn reads the version out of a path like /usr/lib/postgresql/17/bin; 0 if it has none.
func versionIn(dir string) int {
	name := filepath.Base(filepath.Dir(dir))
	version, err := strconv.Atoi(name[len(strings.TrimRight(name, "0123456789")):])
	if err != nil {
		return 0
	}
	return version
}
