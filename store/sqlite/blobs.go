package sqlite

import (
	"context"
	"fmt"

	"github.com/helixagents/helix/store/internal/coldsql"
	"github.com/helixagents/helix/store/internal/lite"
)

// blobDatabase is the database of blobs. The first blob makes the file unreadable for
// programs from before blobs, and a trigger records that. Programs that have the file open
// look at its user_version, which no trigger can write.
type blobDatabase struct{ *lite.Backend }

// WriteCold implements [coldsql.Database].
func (d blobDatabase) WriteCold(ctx context.Context, what string, run func(coldsql.Conn) error) error {
	return d.Write(ctx, what, func(t *lite.Tx) error {
		if err := run(d.Cold(t)); err != nil {
			return err
		}
		return raiseVersion(t)
	})
}

// raiseVersion raises the user_version to what is recorded.
func raiseVersion(t *lite.Tx) error {
	r, err := t.One("SELECT max(readable_from) FROM helix_migrations")
	if err != nil {
		return err
	}
	from := r.Int()
	if r, err = t.One("PRAGMA user_version"); err != nil || from <= r.Int() {
		return err
	}
	return t.Script(fmt.Sprintf("PRAGMA user_version = %d", from))
}
