package server

import (
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// reloads tracks which pages received a chat without the reply in progress. A page that
// opens reads the messages first and the stream second. If the reply ends in between, the
// stream is still sent, because the page has nothing else of the reply. A page that has the
// whole reply must not receive it again, because clients append what they receive. Requests
// do not identify their page, so the requests of one browser are assumed to ask for streams
// in the order in which they asked for messages.
type reloads struct {
	mu    sync.Mutex
	given map[browser][]given
	order []browser // oldest first
}

// browser identifies the sender and the session, as far as requests allow.
type browser struct {
	tenant, user, session, agent, address string
}

// given is what a page received: everything, or all but the reply of a run.
type given struct {
	lacks string
	at    time.Time
}

const (
	reloadTime  = time.Minute     // within which a page requests the stream
	reloadHaste = 2 * time.Second // within which it does so if another page opens, too
	maxBrowsers = 2_000
	// maxOwnBrowsers is the maximum per user, over all sessions.
	maxOwnBrowsers = 64
	maxPages       = 16
)

func (x *exchange) browser(sessionID string) browser {
	address, _, err := net.SplitHostPort(x.r.RemoteAddr)
	if err != nil {
		address = x.r.RemoteAddr
	}
	agent := x.r.UserAgent()
	// Clone: a substring would keep the whole header in memory.
	return browser{x.who.Tenant, x.who.User, sessionID, strings.Clone(agent[:min(len(agent), 200)]), address}
}

// opens records what a page received: all but the reply of the run lacks, or everything if
// lacks is empty.
func (r *reloads) opens(by browser, lacks string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pages, known := r.given[by]
	if !known && lacks == "" {
		return // no page lacks anything
	}
	now := time.Now()
	pages = slices.DeleteFunc(pages, func(g given) bool { return now.Sub(g.at) > reloadHaste })
	if len(pages) == maxPages {
		pages = pages[1:]
	}
	if !known {
		if r.given == nil {
			r.given = map[browser][]given{}
		}
		r.makeRoom(by, now)
		r.order = append(r.order, by)
	}
	r.given[by] = append(pages, given{lacks, now})
}

// makeRoom removes pages that will not request a stream any more, and the oldest beyond the
// limits per user and in total. The caller holds the lock.
func (r *reloads) makeRoom(by browser, now time.Time) {
	var own []browser
	for _, other := range slices.Clone(r.order) {
		pages := r.given[other]
		if len(pages) == 0 || now.Sub(pages[len(pages)-1].at) > reloadTime {
			r.forget(other)
		} else if other.tenant == by.tenant && other.user == by.user {
			own = append(own, other)
		}
	}
	if len(own) >= maxOwnBrowsers {
		r.forget(own[0])
	}
	if len(r.order) >= maxBrowsers {
		r.forget(r.order[0])
	}
}

// forget forgets a browser. The caller holds the lock.
func (r *reloads) forget(by browser) {
	delete(r.given, by)
	if at := slices.Index(r.order, by); at >= 0 {
		r.order = slices.Delete(r.order, at, at+1)
	}
}

// resumes records that a page requests the stream, and reports whether it lacks the reply
// of a run.
func (r *reloads) resumes(by browser, run string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	pages := r.given[by]
	if len(pages) == 0 {
		return false
	}
	if r.given[by] = pages[1:]; len(pages) == 1 {
		r.forget(by)
	}
	return pages[0].lacks == run && time.Since(pages[0].at) < reloadTime
}
