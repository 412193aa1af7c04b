package migrate_test

import (
	"errors"
	"testing"
	"testing/fstest"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/internal/migrate"
)

func files(texts map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for name, text := range texts {
		out["m/"+name] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

func TestSteps(t *testing.T) {
	t.Parallel()
	steps, err := migrate.Steps(files(map[string]string{
		"0001_init.sql": "CREATE", "0002_more.sql": "-- readable from 2\nALTER", "0003_yet.sql": "ALTER",
	}), "m")
	if err != nil || len(steps) != 3 {
		t.Fatalf("got %+v, %v", steps, err)
	}
	for i, from := range []int{1, 2, 2} {
		if steps[i].Number != i+1 || steps[i].ReadableFrom != from {
			t.Errorf("step %d is %+v, want readable from %d", i+1, steps[i], from)
		}
	}
	for _, names := range [][]string{{"0002_a.sql"}, {"0001_a.sql", "0003_b.sql"}, {"one.sql"}} {
		texts := map[string]string{}
		for _, name := range names {
			texts[name] = ""
		}
		if _, err := migrate.Steps(files(texts), "m"); err == nil {
			t.Errorf("%v was accepted", names)
		}
	}
}

func TestMissing(t *testing.T) {
	t.Parallel()
	steps := []migrate.Step{{Number: 1}, {Number: 2}}
	for name, c := range map[string]struct {
		level   migrate.Level
		change  bool
		missing int
		refused bool
	}{
		"empty":                        {migrate.Level{}, true, 2, false},
		"behind":                       {migrate.Level{Number: 1, ReadableFrom: 1}, true, 1, false},
		"outdated, not to be changed":  {migrate.Level{Number: 1, ReadableFrom: 1}, false, 0, true},
		"there":                        {migrate.Level{Number: 2, ReadableFrom: 1}, false, 0, false},
		"newer, usable":                {migrate.Level{Number: 5, ReadableFrom: 2}, true, 0, false},
		"newer than this program uses": {migrate.Level{Number: 5, ReadableFrom: 3}, true, 0, true},
	} {
		missing, err := c.level.Missing(steps, c.change)
		if len(missing) != c.missing || errors.Is(err, session.ErrNotSupported) != c.refused {
			t.Errorf("%s: got %d steps, %v", name, len(missing), err)
		}
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	at := time.Now()
	got := migrate.Report([]migrate.Step{{Number: 1, Name: "0001_a"}, {Number: 2, Name: "0002_b"}},
		[]store.Migration{{Number: 1, Name: "0001_a", AppliedAt: at}, {Number: 7, Name: "0007_x", AppliedAt: at}})
	if len(got) != 3 || !got[0].Applied() || got[1].Applied() || got[1].Name != "0002_b" || !got[2].Newer {
		t.Errorf("got %+v", got)
	}
}
