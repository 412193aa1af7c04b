package temporal

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

func TestAskings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		attempts int
		askers   int
		apart    time.Duration
		want     time.Duration
	}{
		{"the first attempt", 1, 1, time.Second, 0},
		{"one process", 101, 1, 200 * time.Millisecond, 20 * time.Second},
		{"too few for five processes", 29, 5, 200 * time.Millisecond, 0},
		{"enough for five processes", 31, 5, 200 * time.Millisecond, 6 * time.Second},
		{"attempts far apart", 11, 1, time.Minute, 4 * time.Second},
		{"a clock set back", 11, 1, -time.Minute, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var a askings
			now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
			for i := range c.attempts {
				a.note(fmt.Sprint("queue-", i%c.askers), now)
				now = now.Add(c.apart)
				text, err := json.Marshal(a) // as the server passes it on
				if err != nil {
					t.Fatal(err)
				}
				a = askings{}
				if err := json.Unmarshal(text, &a); err != nil {
					t.Fatal(err)
				}
			}
			if got := a.inVain(); got != c.want {
				t.Errorf("the holder has been asked for %s, not %s", got, c.want)
			}
		})
	}
}

// What is passed from one process to the next stays small, however many there are.
func TestAskingsOfManyProcesses(t *testing.T) {
	t.Parallel()
	var a askings
	for i := range 10_000 {
		a.note(fmt.Sprint("queue-", i), time.Now())
	}
	text, err := json.Marshal(a)
	if err != nil || len(text) > 4096 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}
