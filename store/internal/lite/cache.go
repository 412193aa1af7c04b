package lite

import (
	"time"

	"github.com/helixagents/helix/session"
)

// maxCached bounds each part of the cache.
const maxCached = 4096

// Cache has the rows that the writer has written last, so that a session's next
// commit and a stream's next append need not read what this process has just
// written: reading a row costs about as much as writing it. Only the writer uses
// it. It contains only rows that are committed or about to be, and is cleared when
// a transaction is undone or another process has written.
type Cache struct {
	headers map[session.Key]header
	streams map[StreamKey]streamHead
}

// NewCache returns an empty cache.
func NewCache() *Cache {
	return &Cache{headers: map[session.Key]header{}, streams: map[StreamKey]streamHead{}}
}

// Clear empties the cache.
func (c *Cache) Clear() {
	clear(c.headers)
	clear(c.streams)
}

// remember stores a session's row as it was just written, without the fields that
// are not in the row.
func (c *Cache) remember(h *header) {
	if len(c.headers) >= maxCached {
		clear(c.headers)
	}
	kept := *h
	kept.doc = nil
	kept.setDoc(&session.State{})
	kept.Custom, kept.Tags, kept.Metadata = session.CustomState{}, nil, nil
	kept.UpdatedAt = time.Time{} // no decision depends on it
	c.headers[session.Key{Tenant: h.Tenant, ID: h.ID}] = kept
}

// header returns a session's row, or nil if it is not cached. The caller may
// change it.
func (c *Cache) header(tenant, id string) *header {
	h, ok := c.headers[session.Key{Tenant: tenant, ID: id}]
	if !ok {
		return nil
	}
	return &h
}

// forget drops a session's row, because another statement has changed the session.
func (c *Cache) forget(tenant, id string) {
	delete(c.headers, session.Key{Tenant: tenant, ID: id})
}

// rememberStream stores a stream's state after its latest append.
func (c *Cache) rememberStream(key StreamKey, h *streamHead) {
	if len(c.streams) >= maxCached {
		clear(c.streams)
	}
	c.streams[key] = *h
}

// stream returns a stream's state after the latest append, if this producer made
// it, or nil.
func (c *Cache) stream(key StreamKey, producer string) *streamHead {
	h, ok := c.streams[key]
	if !ok || h.writer != producer {
		return nil
	}
	h.Producer = &h.WriterState
	return &h
}
