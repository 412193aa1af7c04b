package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/internal/lite"
	"github.com/helixagents/helix/store/internal/migrate"
)

// Migrations lists the migrations that the file at path has and those that it
// lacks. It changes nothing. A database that has tables, but none of Helix,
// belongs to another program and is refused.
func Migrations(path string) ([]store.Migration, error) {
	steps, err := lite.Migrations()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return migrate.Report(steps, nil), nil
	}
	c, err := open(path, "busy_timeout(10000)", "query_only(true)")
	if err != nil {
		return nil, failure("open "+path, err)
	}
	applied, err := lite.Applied(c)
	if err == nil && len(applied) == 0 {
		err = lite.RefuseForeign(c, path)
	}
	if err = errors.Join(err, c.close()); err != nil {
		return nil, failure("read the migrations of "+path, err)
	}
	return migrate.Report(steps, applied), nil
}

// bringUp applies missing migrations, unless change is false. If several processes
// open a file at once, one of them does the work and the others find it done.
func bringUp(c *conn, change bool, now time.Time) (err error) {
	steps, err := lite.Migrations()
	if err != nil {
		return err
	}
	if lacking, err := lite.Missing(c, steps, change); err != nil || len(lacking) == 0 {
		return err
	}
	if _, err := c.Exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_, rollback := c.Exec("ROLLBACK")
			err = errors.Join(err, rollback)
		}
	}()
	err = lite.Migrate(c, steps, change, func(step migrate.Step) error { return apply(c, step, now) })
	if err != nil {
		return err
	}
	_, err = c.Exec("COMMIT")
	return err
}

// apply applies one migration. Programs that have the file open read its
// user_version, which is in the file's first page, to see whether they can still
// use it.
func apply(c *conn, step migrate.Step, now time.Time) error {
	if err := lite.Apply(c, step, now); err != nil {
		return err
	}
	return c.Script(fmt.Sprintf("PRAGMA user_version = %d", step.ReadableFrom))
}
