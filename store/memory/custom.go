package memory

import (
	"slices"

	"github.com/helixagents/helix/session"
)

// custom is a session's custom state together with what checkpoints need to give
// an earlier one back. A checkpoint does not copy the state: it keeps the
// operations since the one before, and a whole document only when the operations
// since the last whole one outweigh it. So a step costs what it writes, and
// going back to a checkpoint costs at most about twice the state's size.
type custom struct {
	doc session.CustomState
	// sizes has the bytes under each key and size their sum. They are counted along
	// because measuring the document costs its length.
	sizes map[string]int
	size  int

	last      *version // the state at the last checkpoint; nil forces a whole one
	chain     int      // bytes of operations from the last whole version up to last
	since     []session.Op
	sinceSize int // bytes of since
}

// version is custom state at a checkpoint: whole, or base with operations
// performed on it. Versions never change, so checkpoints and clones share them.
type version struct {
	whole *session.CustomState
	base  *version
	ops   []session.Op
}

// newCustom begins with a document that nobody else holds.
func newCustom(doc session.CustomState) custom {
	c := custom{doc: doc, sizes: make(map[string]int, doc.Len())}
	for key, value := range doc.All() {
		c.resize(key, len(key)+len(value))
	}
	return c
}

// apply performs operations that nobody else will change. When they cannot be
// performed nothing has changed.
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

// mark is the version of the state as it is now.
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

// document puts the state together. The result shares its values with the store.
func (v *version) document() session.CustomState {
	var newer []*version
	for ; v.whole == nil; v = v.base {
		newer = append(newer, v)
	}
	doc := v.whole.Clone()
	for _, v := range slices.Backward(newer) {
		// The same operations were performed on the same document before.
		_ = doc.Apply(session.Writes{Ops: v.ops})
	}
	return doc
}
