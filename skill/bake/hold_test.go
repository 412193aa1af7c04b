package bake

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

// Two names of one directory are one, and a directory that is taken lets go of the others.
func TestHoldAll(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b, link := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "link")
	for _, one := range []string{a, b} {
		if err := os.Mkdir(one, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("a", link); err != nil {
		t.Fatal(err)
	}
	release, err := holdAll(a, link, a)
	if err != nil {
		t.Fatal(err)
	}
	for _, dirs := range [][]string{{a, b}, {b, a}, {b, link}} {
		if _, err := holdAll(dirs...); !errors.Is(err, ErrBusy) {
			t.Errorf("%v: %v", dirs, err)
		}
	}
	releaseOther, err := holdAll(b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holdAll(a, b); !errors.Is(err, ErrBusy) {
		t.Error(err)
	}
	releaseOther()
	release()
	// Of two that want both, in whatever order, one proceeds.
	for range 100 {
		errs := make([]error, 2)
		var start, tried, ended sync.WaitGroup
		start.Add(2)
		tried.Add(2)
		for i, dirs := range [][]string{{a, b}, {b, a}} {
			ended.Go(func() {
				start.Done()
				start.Wait()
				release, err := holdAll(dirs...)
				errs[i] = err
				tried.Done()
				tried.Wait()
				if err == nil {
					release()
				}
			})
		}
		ended.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("not exactly one proceeds: %v", errs)
		}
	}
}

// Two syncs that write the same directory with different locks do not run at once.
func TestTwoSyncsWithTwoLocks(t *testing.T) {
	t.Parallel()
	p := setup(t)
	repo := p.server.Repository(t, "skills")
	repo.Commit("main", pdf())
	p.manifest(map[string]Source{"office": {Type: TypeGit, URL: repo.URL}})
	other := p.cfg
	other.Lock = filepath.Join(t.TempDir(), DefaultLock)
	p.cfg.Out = filepath.Join(p.dir, "not", "yet", "skills")
	other.Out = p.cfg.Out
	var begun atomic.Bool
	var second error
	p.server.Gate(func(http.ResponseWriter, *http.Request) bool {
		if begun.CompareAndSwap(false, true) { // while the first waits for the answer
			_, second = Sync(t.Context(), other)
		}
		return true
	})
	p.sync()
	if !errors.Is(second, ErrBusy) {
		t.Errorf("the second: %v", second)
	}
	if problems := p.check(); problems != "" {
		t.Error(problems)
	}
}
