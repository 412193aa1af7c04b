package server

import (
	"net"
	"slices"
	"sync"
	"time"
)

// reloads remembers which pages were given a chat without the reply that was being
// written. A page that opens reads the messages first and the stream then; if the reply
// ends in between, the stream is still shown to it, because it has nothing else of the
// reply. A page that was given the whole reply must not be shown it again: clients append
// what they are sent. Requests do not say which page they are from, so those of one
// browser are taken to ask for streams in the order in which they asked for messages.
type reloads struct {
	mu    sync.Mutex
	given map[browser][]given
	order []browser // oldest first
}

// browser is who asks, as far as requests tell, and for which session.
type browser struct {
	tenant, user, session, agent, address string
}

// given is what a page was given: everything, or all but the reply of a run.
type given struct {
	lacks string
	at    time.Time
}

const (
	reloadTime  = time.Minute     // within which a page asks for the stream
	reloadHaste = 2 * time.Second // within which it does if another page opens, too
	maxBrowsers = 10_000
	maxPages    = 16
)

func (x *exchange) browser(sessionID string) browser {
	address, _, err := net.SplitHostPort(x.r.RemoteAddr)
	if err != nil {
		address = x.r.RemoteAddr
	}
	agent := x.r.UserAgent()
	return browser{x.who.Tenant, x.who.User, sessionID, agent[:min(len(agent), 200)], address}
}

// opens notes what a page was given: all but the reply of a run, or everything if that is
// empty.
func (r *reloads) opens(by browser, lacks string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pages, known := r.given[by]
	if !known && lacks == "" {
		return // nobody lacks anything
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
		if len(r.order) == maxBrowsers {
			delete(r.given, r.order[0])
			r.order = r.order[1:]
		}
		r.order = append(r.order, by)
	}
	r.given[by] = append(pages, given{lacks, now})
}

// resumes notes that a page asks for the stream, and reports whether it lacks the reply
// of a run.
func (r *reloads) resumes(by browser, run string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	pages := r.given[by]
	if len(pages) == 0 {
		return false
	}
	r.given[by] = pages[1:]
	return pages[0].lacks == run && time.Since(pages[0].at) < reloadTime
}
