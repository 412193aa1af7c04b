package memory

import (
	"slices"

	"github.com/helixagents/helix/session"
)

// custom is a session's custom state, with what checkpoints need to restore
// earlier ones. A checkpoint does not copy the state: it keeps the operations
// since the previous checkpoint, and a whole document only when the operations
// since the last whole one outweigh it. The cost of a step thus depends on what it
// writes, and restoring a checkpoint costs at most about twice the state's size.
type custom struct {
	doc session.CustomState
	// sizes has the bytes under each key, and size is their sum. They are maintained
	// with every write because measuring the document takes time proportional to its
	// length.
	sizes map[string]int
	size  int

	last      *version // the state at the last checkpoint; nil forces a whole one
	chain     int      // bytes of operations from the last whole version up to last
	since     []session.Op
	sinceSize int // bytes of since
}

// version is custom state at a checkpoint: whole, or base plus operations.
// Versions never change, so checkpoints and clones share them.
type version struct {
	whole *session.CustomState
	base  *version
	ops   []session.Op
}

// newCustom starts with a document that nobody else references.
func newCustom(doc session.CustomState) custom {
	c := custom{doc: doc, sizes: make(map[string]int, doc.Len())}
	for key, value := range doc.All() {
		c.resize(key, len(key)+len(value))
	}
	return c
}

// apply performs operations that nobody else will change. If it fails, nothing has
// changed.
func (c *custom) apply(w session.Writes) error {
	if w.Empty() {
		return nil
	}
	if err := c.doc.Apply(w); err != nil {
		return err
	}
	for i := range w.Ops {
		switch op := &w.Ops[i]; op.Kind {
		case session.OpDelete:
			c.resize(op.Key, 0)
		case session.OpReplace:
			c.resize(op.Key, len(op.Key)+len(op.Value))
		case session.OpAppend:
			if len(op.Items) == 0 {
				continue
			}
			n := c.sizes[op.Key]
			if n == 0 {
				n = len(op.Key) + len("[]")
			}
			for _, item := range op.Items {
				n += len(item)
			}
			c.resize(op.Key, n)
		}
	}
	c.since = append(c.since, w.Ops...)
	c.sinceSize += w.Size()
	return nil
}

func (c *custom) resize(key string, n int) {
	c.size += n - c.sizes[key]
	if n == 0 {
		delete(c.sizes, key)
		return
	}
	c.sizes[key] = n
}

// mark returns the version of the current state.
func (c *custom) mark() *version {
	switch {
	case c.last != nil && len(c.since) == 0:
		return c.last
	case c.last == nil || c.chain+c.sinceSize > c.size:
		whole := c.doc.Clone()
		c.last, c.chain = &version{whole: &whole}, 0
	default:
		c.last = &version{base: c.last, ops: c.since}
		c.chain += c.sinceSize
	}
	c.since, c.sinceSize = nil, 0
	return c.last
}

// document builds the state. The result shares its values with the store.
func (v *version) document() session.CustomState {
	var newer []*version
	for ; v.whole == nil; v = v.base {
		newer = append(newer, v)
	}
	doc := v.whole.Clone()
	for _, v := range slices.Backward(newer) {
		// These operations have already succeeded on this document.
		_ = doc.Apply(session.Writes{Ops: v.ops})
	}
	return doc
}
