package files

import (
	"embed"
	"testing"
	"testing/synctest"
	"time"

	"github.com/helixagents/helix/skill"
)

//go:embed testdata
var testdata embed.FS

// Embedded files are scanned once, because they cannot change.
func TestEmbeddedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := FS(testdata)
		var first *scan
		for range 3 {
			if list, err := p.List(t.Context(), skill.Scope{}); err != nil || len(list) != 1 {
				t.Fatal(list, err)
			}
			if _, err := p.Load(t.Context(), skill.Scope{}, "none"); err == nil {
				t.Fatal("there is a skill none")
			}
			if first == nil {
				first = p.last
			}
			if p.last != first {
				t.Error("they were scanned again")
			}
			time.Sleep(time.Hour)
		}
	})
}
