package sqlite

import (
	"errors"
	"testing"
	"time"

	"github.com/helixagents/helix/store/internal/migrate"
)

// Outdate adds a migration whose result no earlier program can use.
func Outdate(t testing.TB, path string) {
	t.Helper()
	c, err := open(path, "busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Exec("BEGIN IMMEDIATE")
	if err == nil {
		err = apply(c, migrate.Step{Number: 99, Name: "0099_later", Text: "CREATE TABLE later (x)", ReadableFrom: 99}, time.Now())
	}
	if err == nil {
		_, err = c.Exec("COMMIT")
	}
	if err = errors.Join(err, c.close()); err != nil {
		t.Fatal(err)
	}
}
