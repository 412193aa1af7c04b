package stream

import "github.com/helixagents/helix/session"

// Evicted returns where the whole of a result is of which a [ToolEnd] shows a preview, or nil
// if it shows all of it.
func (c *Chunk) Evicted() *session.Evicted {
	if c.Kind != ToolEnd || c.Error != nil {
		return nil
	}
	return session.EvictedFrom(c.Data)
}
