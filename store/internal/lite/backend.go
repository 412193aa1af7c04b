package lite

import (
	"log/slog"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/lock"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/coldsql"
	"github.com/helixagents/helix/store/internal/feed"
	"github.com/helixagents/helix/stream"
)

// Backend stores sessions, streams, blobs and locks in a database.
type Backend struct {
	Database
	Readers  *feed.Hub[StreamKey] // the readers of streams
	Logger   *slog.Logger
	MaxChunk int // the largest encoded chunk of a stream, in bytes
}

// Sessions returns the session store of the default tenant.
func (b *Backend) Sessions() session.Store { return b.tenantStore(session.DefaultTenant) }

// Streams returns the stream manager of the default tenant.
func (b *Backend) Streams() stream.Manager { return &streams{b, session.DefaultTenant} }

// Blobs returns the blob store of the default tenant.
func (b *Backend) Blobs() blob.Store {
	return coldsql.Blobs{Database: b, Name: session.DefaultTenant}
}

// Locks returns the lock manager.
func (b *Backend) Locks() lock.Manager { return &locks{b} }

const (
	selectAny = `SELECT 1 FROM sessions LIMIT 1`

	// No lock has an empty name.
	writeNothing = `
INSERT INTO locks (name, owner, token) VALUES ('', '', 1)
ON CONFLICT DO UPDATE SET token = token + 1`
)

// TryRead reads a row to test whether the database can be read.
func TryRead(c Conn) error {
	_, err := c.One(selectAny)
	return err
}

// TryWrite writes a row that nobody reads to test whether the database can be
// written.
func TryWrite(t *Tx) error {
	_, err := t.Exec(writeNothing)
	return err
}
