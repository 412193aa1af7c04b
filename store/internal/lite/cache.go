package lite

import (
	"time"

	"github.com/helixagents/helix/session"
)

// maxCached bounds each part of the cache.
const maxCached = 4096

// Cache keeps the rows that the writer has written last, so that a session's next
// commit and a stream's next append need not read what this process has just
// written: reading a row costs about as much as writing it. It belongs to the
// writer alone, holds only what is committed or about to be, and is emptied when a
// transaction is undone or another process has written.
type Cache struct {
	headers map[session.Key]header
	streams map[StreamKey]streamHead
}

// NewCache is an empty cache.
func NewCache() *Cache {
	return &Cache{headers: map[session.Key]header{}, streams: map[StreamKey]streamHead{}}
}

// Clear empties the cache.
func (c *Cache) Clear() {
	clear(c.headers)
	clear(c.streams)
}

// remember keeps a session's row as it was just written, without what the row does
// not hold.
func (c *Cache) remember(h *header) {
	if len(c.headers) >= maxCached {
		clear(c.headers)
	}
	kept := *h
	kept.doc = nil
	kept.takeDoc(&session.State{})
	kept.Custom, kept.Tags, kept.Metadata = session.CustomState{}, nil, nil
	kept.UpdatedAt = time.Time{} // nobody decides anything on it
	c.headers[session.Key{Tenant: h.Tenant, ID: h.ID}] = kept
}

// header is a session's row, the caller's to change; nil if it is not known.
func (c *Cache) header(tenant, id string) *header {
	h, ok := c.headers[session.Key{Tenant: tenant, ID: id}]
	if !ok {
		return nil
	}
	return &h
}

// forget drops a session's row, because something was written about it elsewhere.
func (c *Cache) forget(tenant, id string) {
	delete(c.headers, session.Key{Tenant: tenant, ID: id})
}

// rememberStream keeps a stream as its latest append left it.
func (c *Cache) rememberStream(key StreamKey, h *streamHead) {
	if len(c.streams) >= maxCached {
		clear(c.streams)
	}
	c.streams[key] = *h
}

// stream is a stream as the producer that wrote last left it; nil if that is not
// known.
func (c *Cache) stream(key StreamKey, producer string) *streamHead {
	h, ok := c.streams[key]
	if !ok || h.writer != producer {
		return nil
	}
	h.producer = &h.writerState
	return &h
}
