package bake

import (
	"strings"
	"testing"

	"github.com/helixagents/helix/internal/gitserver"
	"github.com/helixagents/helix/internal/testshare"
)

// A small pack with a large object does not fill the memory.
func TestMemory(t *testing.T) {
	t.Parallel()
	testshare.SkipUnless(t, 2, 4)
	server := gitserver.Start(t)
	repo := server.Repository(t, "large")
	repo.Commit("main", gitserver.Files{"large": gitserver.Text(strings.Repeat("x", 64<<20))})
	r, err := newRepository(t.Context(), t.TempDir(), remote{url: repo.URL, scheme: "http"}, "")
	if err != nil {
		t.Fatal(err)
	}
	r.maxMemory = 48 << 20
	if _, err := r.get(t.Context(), pin{}); err == nil || !strings.Contains(strings.ToLower(err.Error()), "out of memory") {
		t.Errorf("%v", err)
	}
	if size := r.size(); size > 4<<20 {
		t.Errorf("the pack has %d bytes", size)
	}
}
