package testserver

import (
	"os"
	"os/exec"
	"testing"

	"github.com/helixagents/helix/internal/testshare"
)

// TestDebianPackages does what a new machine does the first time, whatever is installed on this one.
func TestDebianPackages(t *testing.T) {
	if !testshare.Soak() {
		t.Skip("fetches packages; runs with HELIX_SOAK=1")
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		t.Skip("not on Debian")
	}
	// Not t.TempDir, where the user that Postgres runs as cannot go.
	cache, err := os.MkdirTemp("", "helix-testserver-cache-*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(cache); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv(envCache, cache)
	t.Setenv(envSources, string(fromDebian))

	StartPgBouncer(t, StartPostgres(t).URL())
	StartRedis(t)

	StartPostgres(t) // from the cache
}
