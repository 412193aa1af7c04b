package temporal

import (
	"testing"
	"time"
)

// Others lose patience with the process that holds a turn since they were first asked, and not
// while it is heard.
func TestTimeAsked(t *testing.T) {
	t.Parallel()
	first := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		heard, now, want time.Duration // since it was first asked
	}{
		{0, 0, 0},
		{0, 7 * time.Second, 7 * time.Second},
		{time.Minute, time.Minute + 4*time.Second, 0}, // the server has just noticed
		{time.Minute, time.Minute + 12*time.Second, 0},
		{time.Minute, time.Minute + 20*time.Second, 8 * time.Second},
		{-time.Minute, 7 * time.Second, 7 * time.Second},
	} {
		if got := timeAsked(first, first.Add(c.heard), first.Add(c.now), 6*time.Second); got != c.want {
			t.Errorf("first asked at 0 s, the holder was last heard at %s: at %s it has been asked for %s, not %s", c.heard, c.now, got, c.want)
		}
	}
}
