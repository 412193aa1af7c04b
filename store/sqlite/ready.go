package sqlite

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/lite"
)

// Ready implements [store.Backend]. A deleted or replaced file can still be
// written by processes that have it open, but the writes are lost.
func (b *Backend) Ready(ctx context.Context) error {
	if err := b.inPlace(); err != nil {
		return err
	}
	err := b.read(ctx, "read the database", func(c lite.Conn) error {
		if err := lite.TryRead(c); err != nil {
			return err
		}
		r, err := c.One("PRAGMA user_version")
		if err != nil {
			return err
		}
		return b.guard.Note(r.Int())
	})
	if err != nil {
		return err
	}
	return b.writes.Check(ctx, func(ctx context.Context) error { return b.write(ctx, "write the database", b.tryWrite) })
}

// inPlace returns an error if the path no longer refers to the file that was
// opened.
func (b *Backend) inPlace() error {
	now, err := os.Stat(b.path)
	switch {
	case err == nil && os.SameFile(now, b.file):
		return nil
	case err == nil:
		err = errors.New("another file has replaced it")
	case errors.Is(err, fs.ErrNotExist):
		err = errors.New("it was deleted")
	}
	out := session.ErrUnavailable.WithCause(err, "database %s: the file that this program has open is no longer at this path; restart the program", b.config.Path)
	out.Retryable = false
	return out
}

// minFree is how many pages must be free: about as many as a step writes.
const minFree = 16

// tryWrite writes a row that nobody reads, if the file has enough room for a step.
func (b *Backend) tryWrite(t *lite.Tx) error {
	var pages [3]int64
	for i, pragma := range []string{"PRAGMA max_page_count", "PRAGMA page_count", "PRAGMA freelist_count"} {
		r, err := t.One(pragma)
		if err != nil {
			return err
		}
		pages[i] = r.Int64()
	}
	if pages[0]-pages[1]+pages[2] < minFree {
		return session.ErrUnavailable.WithMessage("database %s is full; raise its limit, or delete sessions", b.config.Path)
	}
	return lite.TryWrite(t)
}
