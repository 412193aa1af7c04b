package server_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/sqlite"
)

// TestReadyAsksTheStore deletes the database under a server, which continues to write
// to it all the same.
func TestReadyAsksTheStore(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "helix.db")
	db, err := sqlite.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	s := serve(t, db, nil, nil)
	call[wire.Health](s, http.StatusOK, http.MethodGet, "/readyz", nil)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	s.refused(http.StatusServiceUnavailable, session.CodeUnavailable, http.MethodGet, "/readyz", nil)
}
