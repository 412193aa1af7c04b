package server

import (
	"container/list"
	"context"
	"sync"
)

// budget limits the memory of request bodies that are being read and decoded, over all
// requests. A body claims memory piece by piece as it arrives.
//
// A body that waits for memory keeps what it has, which could lead to a deadlock. To
// prevent it, the oldest body always gets what it needs: the others leave as much as it may
// still request. When it is done, the next oldest finds at least as much. The same holds
// for the bodies of each identity within its share.
type budget struct {
	share int64 // per identity
	body  int64 // the maximum for one body

	mu     sync.Mutex
	all    account
	shares map[Identity]*account
}

// account is what a group of bodies holds of a limit.
type account struct {
	limit  int64
	held   int64
	claims list.List // of *claim, oldest first
}

// claim is what one body holds. It is in the accounts once it holds or waits for memory.
type claim struct {
	budget *budget
	who    Identity
	share  *account

	held, wants int64
	granted     chan struct{} // closed when wants has been granted
	// inAll and inShare are its elements in the accounts, or nil.
	inAll, inShare *list.Element
}

// newBudget allows total bytes for all bodies and a quarter of that per identity, but never
// less than one body.
func newBudget(total, body int64) *budget {
	body++ // see bodyReader.room
	total = max(total, body)
	return &budget{share: max(total/4, body), body: body, all: account{limit: total}, shares: map[Identity]*account{}}
}

// claim starts a claim that holds nothing.
func (b *budget) claim(who Identity) *claim { return &claim{budget: b, who: who} }

// raise waits until the claim holds size bytes. If ctx ends first, the claim keeps what it
// held before. raise reports whether it had to wait.
func (c *claim) raise(ctx context.Context, size int64) (waited bool, err error) {
	granted := c.budget.ask(c, size)
	select {
	case <-granted:
		return false, nil
	default:
	}
	select {
	case <-granted:
		return true, nil
	case <-ctx.Done():
	}
	if c.budget.withdraw(c) {
		return true, context.Cause(ctx)
	}
	return true, nil // granted at the last moment
}

// release returns everything. It may be called again.
func (c *claim) release() {
	b := c.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.inAll == nil {
		return
	}
	b.all.held -= c.held
	c.share.held -= c.held
	b.all.claims.Remove(c.inAll)
	c.share.claims.Remove(c.inShare)
	if c.share.claims.Len() == 0 {
		delete(b.shares, c.who)
	}
	c.inAll, c.inShare, c.share, c.held, c.wants = nil, nil, nil, 0, 0
	b.grant()
}

func (b *budget) ask(c *claim, size int64) (granted <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.inAll == nil {
		c.share = b.shares[c.who]
		if c.share == nil {
			c.share = &account{limit: b.share}
			b.shares[c.who] = c.share
		}
		c.inAll, c.inShare = b.all.claims.PushBack(c), c.share.claims.PushBack(c)
	}
	c.wants, c.granted = size, make(chan struct{})
	b.try(c)
	return c.granted
}

// withdraw stops the wait of a claim, unless it was granted.
func (b *budget) withdraw(c *claim) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	waits := c.wants > c.held
	c.wants = c.held
	return waits
}

// grant serves waiting claims, oldest first.
func (b *budget) grant() {
	for e := b.all.claims.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*claim); c.wants > c.held {
			b.try(c)
		}
	}
}

// try grants a claim if there is enough memory.
func (b *budget) try(c *claim) {
	more := c.wants - c.held
	if more > 0 && (!b.all.affords(c, more, b.body) || !c.share.affords(c, more, b.body)) {
		return
	}
	b.all.held += more
	c.share.held += more
	c.held = c.wants
	close(c.granted)
}

// affords reports whether a claim may hold more. All but the oldest leave what the oldest
// may still need.
func (a *account) affords(c *claim, more, body int64) bool {
	left := a.limit - a.held - more
	if oldest := a.claims.Front().Value.(*claim); oldest != c {
		return left >= max(0, body-oldest.held)
	}
	return left >= 0
}
