package webtest

import (
	"path/filepath"
	"testing"
)

// The browser's helper tries again what the server says may be tried again, when it
// says so.
func TestHelperTriesAgain(t *testing.T) {
	t.Parallel()
	helper, err := filepath.Abs(filepath.Join("..", "..", "server", "helix.js"))
	if err != nil {
		t.Fatal(err)
	}
	if passed := run(t, "ai7", "retry.mjs", nil, nil, "HELIX_JS="+helper); passed != 5 {
		t.Errorf("%d checks passed", passed)
	}
}
