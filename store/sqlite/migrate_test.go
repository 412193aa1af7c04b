package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/lite"
)

func TestOpenTogether(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "helix.db")
	const n = 10
	var (
		backends [n]*Backend
		errs     [n]error
		done     sync.WaitGroup
	)
	gate := make(chan struct{})
	for i := range n {
		done.Go(func() {
			<-gate
			if backends[i], errs[i] = Open(path); errs[i] == nil {
				errs[i] = session.Create(t.Context(), backends[i].Sessions(), &session.State{ID: fmt.Sprint(i), Agent: "a", Status: session.Active})
			}
		})
	}
	close(gate)
	done.Wait()
	for i, b := range backends {
		if errs[i] != nil {
			t.Errorf("open %d: %v", i, errs[i])
		}
		if b != nil {
			t.Cleanup(func() { _ = b.Close() })
		}
	}
	if t.Failed() {
		return
	}
	page, err := backends[0].Sessions().List(t.Context(), session.Query{})
	if err != nil || len(page.Items) != n {
		t.Errorf("%d sessions, %v", len(page.Items), err)
	}
	var applied int
	err = backends[0].read(t.Context(), "count", func(c lite.Conn) error {
		r, err := c.One("SELECT count(*) FROM helix_migrations")
		if err == nil {
			applied = r.Int()
		}
		return err
	})
	if steps, _ := lite.Migrations(); err != nil || applied != len(steps) {
		t.Errorf("%d of %d migrations are recorded, %v", applied, len(steps), err)
	}
}

func TestNewerDatabase(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "helix.db")
	pretend := func(number, readableFrom int) {
		t.Helper()
		b, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		err = b.write(t.Context(), "pretend", func(t *lite.Tx) error {
			_, err := t.Exec("INSERT INTO helix_migrations (number, name, applied_at, readable_from) VALUES (?, 'later', 0, ?)", number, readableFrom)
			return err
		})
		if err = errors.Join(err, b.Close()); err != nil {
			t.Fatal(err)
		}
	}
	steps, err := lite.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	pretend(98, len(steps)) // newer, but this program can use it
	pretend(99, 99)
	_, err = Open(path)
	if !errors.Is(err, session.ErrNotSupported) || !strings.Contains(err.Error(), "schema 99") {
		t.Errorf("a newer database: %v", err)
	}
}

func TestNoMigrate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "helix.db")
	if _, err := OpenConfig(Config{Path: path, NoMigrate: true}); !errors.Is(err, session.ErrNotSupported) {
		t.Errorf("a file that does not exist: %v", err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the file was created")
	}
	for _, applied := range []bool{false, true} {
		steps, err := Migrations(path)
		if err != nil || len(steps) == 0 || steps[0].Applied() != applied {
			t.Errorf("the migrations are %+v, %v", steps, err)
		}
		openPath(t, path)
	}
	b, err := OpenConfig(Config{Path: path, NoMigrate: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage.db")
	if err := os.WriteFile(garbage, []byte(strings.Repeat("not a database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		config Config
		want   error
	}{
		"no path":           {Config{}, session.ErrInvalid},
		"memory":            {Config{Path: ":memory:"}, session.ErrInvalid},
		"synchronous":       {Config{Path: filepath.Join(dir, "x.db"), Synchronous: "sometimes"}, session.ErrInvalid},
		"missing directory": {Config{Path: filepath.Join(dir, "no", "such", "x.db")}, session.ErrUnavailable},
		"no database":       {Config{Path: garbage}, session.ErrCorrupt},
	} {
		if _, err := OpenConfig(c.config); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
}

// TestForeignFile requires an error for a file that is not a database, or not a
// database of Helix.
func TestForeignFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	garbage, foreign := filepath.Join(dir, "garbage.db"), filepath.Join(dir, "foreign.db")
	if err := os.WriteFile(garbage, []byte(strings.Repeat("not a database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := open(foreign)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Script("CREATE TABLE sessions (name TEXT)"), c.close()); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		garbage: "the file is not a SQLite database", foreign: `is a SQLite database, but not one of Helix: it has the table "sessions"`,
	} {
		if _, err := OpenConfig(Config{Path: path}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("opening %s: %v", filepath.Base(path), err)
		}
		if _, err := Migrations(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the migrations of %s: %v", filepath.Base(path), err)
		}
	}
}

func TestReadOnly(t *testing.T) {
	t.Parallel()
	_, err := Open(filepath.Join(t.TempDir(), "no", "such", "x.db"))
	if !errors.Is(err, session.ErrUnavailable) || session.IsRetryable(err) || !strings.Contains(err.Error(), "check that") {
		t.Errorf("a file that cannot be created: %v", err)
	}
	if os.Geteuid() == 0 {
		return // who may write everything
	}
	path := filepath.Join(t.TempDir(), "helix.db")
	b, err := Open(path)
	if err == nil {
		err = errors.Join(b.Close(), os.Chmod(path, 0o400))
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err = Open(path)
	if err == nil {
		err = errors.Join(session.Create(t.Context(), b.Sessions(), &session.State{ID: "a", Agent: "a", Status: session.Active}), b.Close())
	}
	if !errors.Is(err, session.ErrUnavailable) || session.IsRetryable(err) {
		t.Errorf("a read-only file: %v", err)
	}
}

func TestOddPath(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a b?c#d%20e&é.db")
	openPath(t, path)
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}
