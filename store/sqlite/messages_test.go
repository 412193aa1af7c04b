package sqlite

import (
	"runtime"
	"strings"
	"testing"

	"github.com/helixagents/helix/session"
)

// TestPageReadsWhatItShows requires that a page with a limit in bytes needs about
// as much memory. It does not run in parallel, because the memory of other tests
// would count.
func TestPageReadsWhatItShows(t *testing.T) { //nolint:paralleltest // see above
	b, ctx := openTest(t), t.Context()
	if err := session.Create(ctx, b.Sessions(), &session.State{ID: "a", Agent: "a", Status: session.Active}); err != nil {
		t.Fatal(err)
	}
	for range 30 {
		if _, err := session.AppendMessages(ctx, b.Sessions(), "a", []session.Message{session.UserText(strings.Repeat("x", 1<<20))}); err != nil {
			t.Fatal(err)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	page, err := b.Sessions().Messages(ctx, "a", session.PageRequest{Limit: session.MaxPageSize, MaxBytes: 2 << 20})
	runtime.ReadMemStats(&after)
	if err != nil || len(page.Items) != 1 || !page.HasMore {
		t.Fatalf("a page of 2 MiB has %d messages, %v", len(page.Items), err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 20<<20 {
		t.Errorf("a page of 2 MiB took %d bytes of memory", took)
	}
}
