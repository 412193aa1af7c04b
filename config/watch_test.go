package config_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix/config"
	"github.com/helixagents/helix/internal/eventually"
)

type seen struct {
	file *config.File
	err  error
}

func agents(names ...string) string {
	text := "version: 1\nagents:\n"
	for _, name := range names {
		text += "  " + name + ": {model: demo}\n"
	}
	return text
}

// put replaces a file at once, as editors do.
func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "helix.yaml")
	put(t, path, agents("one"))
	file, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	changes := make(chan seen, 10)
	done := make(chan struct{})
	go func() {
		defer close(done)
		config.Watch(ctx, path, time.Millisecond, file, func(f *config.File, err error) { changes <- seen{f, err} })
	}()
	next := func() seen {
		t.Helper()
		return eventually.Receive(t, "a change is seen", changes)
	}

	put(t, path, agents("two")) // of the same size, and within the same tick of many clocks
	if got := next(); got.err != nil || got.file.Agents[0].Name != "two" {
		t.Errorf("a change: %+v", got)
	}
	put(t, path, agents("not valid"))
	if got := next(); got.file != nil || !strings.Contains(got.err.Error(), path+":3:3: agents.not valid") {
		t.Errorf("a change that is refused: %+v", got)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got := next(); got.file != nil || !errors.Is(got.err, fs.ErrNotExist) {
		t.Errorf("a file that is gone: %+v", got)
	}
	put(t, path, agents("two", "three"))
	if got := next(); got.err != nil || len(got.file.Agents) != 2 {
		t.Errorf("a file that is back: %+v", got)
	}
	cancel()
	<-done
	if len(changes) > 0 {
		t.Errorf("more changes were told than made: %+v", <-changes)
	}
}

func TestWatchTellsWhatIsThereFirst(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "helix.yaml")
	put(t, path, agents("one"))
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	config.Watch(ctx, path, time.Millisecond, nil, func(f *config.File, err error) {
		calls++
		if err != nil || f.Agents[0].Name != "one" {
			t.Errorf("%+v, %v", f, err)
		}
		cancel()
	})
	if calls != 1 {
		t.Errorf("told %d times", calls)
	}
}
