package redis

import (
	"context"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/helixagents/helix/session"
)

// waitingIndex returns the name of the index of calls that wait for people, of all
// users or of one.
func waitingIndex(userID string) string {
	if userID == "" {
		return indexWaiting
	}
	return indexWaiting + "/" + indexed(userID)
}

// waitingHints adds the entries for calls of a session that begin to wait. A
// member is the session and the call; its position is when the entry was added.
func (s *sessions) waitingHints(h *hints, is *session.State, calls []session.Pending, how string) {
	slot := s.b.keys.listing(s.tenant)
	for i := range calls {
		p := &calls[i]
		if p.State != "" && p.State != session.PendingWaiting {
			continue
		}
		member, at := is.ID+callMark+p.CallID, micros(p.CreatedAt)
		h.entries = append(h.entries, hint{slot, waitingIndex(""), member, at, how})
		if is.UserID != "" {
			h.entries = append(h.entries, hint{slot, waitingIndex(is.UserID), member, at, how})
		}
	}
}

// answered removes the entries of calls that no longer wait and never will again,
// because a session has a call only once. Readers remove entries that are left,
// for example after a failure.
func (s *sessions) answered(ctx context.Context, id string, callIDs []string) {
	if len(callIDs) == 0 {
		return
	}
	var h hints
	began := time.Now()
	is, err := s.placeOf(ctx, id)
	if err == nil && is != nil {
		over := make([]session.Pending, len(callIDs))
		for i, callID := range callIDs {
			over[i].CallID = callID
		}
		s.waitingHints(&h, is, over, gone)
		if time.Since(began) > s.b.config.late { // by now the session may be another one
			return
		}
		err = s.b.addHints(ctx, what(id, "remove index entries"), &h)
	}
	if err != nil && ctx.Err() == nil {
		s.b.config.Logger.WarnContext(ctx, "index entries of ended calls could not be removed; readers will remove them", "tenant", s.tenant, "session", id, "error", err)
	}
}

// callMark separates a session from its call in the entries of calls.
const callMark = "\x00"

// waits reads an index of calls that wait.
type waits struct {
	*sessions
	query *session.WaitingQuery
	index string
	scan  scan
	links map[string]session.Link
}

// waited is a call that an index entry refers to, without its input.
type waited struct {
	session.Waiting
	size int64            // of its input
	at   session.Position // of its entry
}

// Waiting implements [session.Lister]. It finds the calls of a page by their
// states, and reads only those.
func (s *sessions) Waiting(ctx context.Context, query session.WaitingQuery) (page session.Page[session.Waiting], err error) {
	at, resumed, err := query.Position()
	if err != nil {
		return page, err
	}
	if err := s.b.begin(ctx, "list waiting calls"); err != nil {
		return page, err
	}
	s.b.fills.want(s.tenant)
	w := waits{sessions: s, query: &query, index: waitingIndex(query.UserID), links: map[string]session.Link{}}
	w.scan = scan{
		client: s.b.client, purpose: "list waiting calls", key: s.b.keys.listing(s.tenant) + w.index,
		lowest: "-inf", highest: "+inf", newestFirst: query.NewestFirst,
	}
	if query.Total {
		total, all := 0, w
		all.links = nil
		if err := all.each(ctx, maxScanBatch, func(*waited) bool { total++; return true }); err != nil {
			return page, err
		}
		page.Total = &total
	}
	if resumed {
		w.scan.last = &goredis.Z{Score: float64(at.N), Member: at.ID}
	}
	page.Items, page.Offset, page.Limit = []session.Waiting{}, query.Skip(), query.Size()
	skip, size, last := query.Skip(), int64(0), session.Position{}
	err = w.each(ctx, page.Limit+min(skip, maxScanBatch)+1, func(found *waited) bool {
		if skip > 0 {
			skip--
			return true
		}
		size += found.size
		if len(page.Items) == page.Limit || !query.Fits(len(page.Items), size) {
			page.HasMore, page.Next = true, last.Cursor()
			return false
		}
		page.Items, last = append(page.Items, found.Waiting), found.at
		return true
	})
	if err == nil {
		page.Items, err = s.readCalls(ctx, page.Items)
	}
	if err == nil {
		page.Items, err = query.FindRoots(page.Items, w.links, func(ids []string) (map[string]session.Link, error) { return s.readLinks(ctx, ids) })
	}
	if err != nil {
		return session.Page[session.Waiting]{}, err
	}
	return page, nil
}

// readCalls reads the calls of a page, and omits those that no longer wait since
// their states were read, or cannot be decoded.
func (s *sessions) readCalls(ctx context.Context, items []session.Waiting) ([]session.Waiting, error) {
	pipe := s.b.client.Pipeline()
	rows := make([]*goredis.SliceCmd, len(items))
	for i := range items {
		fields := make([]string, 0, len(pendingAttributes))
		for _, attribute := range pendingAttributes {
			fields = append(fields, items[i].Call.CallID+"\x00"+string(attribute))
		}
		rows[i] = pipe.HMGet(ctx, s.prefix(items[i].SessionID)+keyOpen, fields...)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	out := items[:0]
	for i, item := range items {
		attributes, err := rows[i].Result()
		if err != nil {
			return nil, failure("list waiting calls", err)
		}
		r := row{}
		for j, attribute := range pendingAttributes {
			r[byte(attribute)] = text(attributes[j])
		}
		if session.PendingState(r['s']) != session.PendingWaiting {
			continue
		}
		p, err := decodePending(item.SessionID, item.Call.CallID, r)
		if err != nil { // one bad row must not hide the others
			s.b.config.Logger.WarnContext(ctx, "a waiting call cannot be decoded", "tenant", s.tenant, "session", item.SessionID, "error", err)
			continue
		}
		item.Call = *p
		out = append(out, item)
	}
	return out, nil
}

// each yields the calls that wait until yield returns false.
func (w *waits) each(ctx context.Context, size int, yield func(*waited) bool) error {
	return scanEach(ctx, &w.scan, size, w.verify, yield)
}

// verify reads the states of the entries' calls; nil for calls that are not to be
// listed. It removes entries of calls that no longer wait.
func (w *waits) verify(ctx context.Context, entries []goredis.Z) ([]*waited, error) {
	began := time.Now()
	pipe := w.b.client.Pipeline()
	headers, states, sizes := make([]*goredis.SliceCmd, len(entries)), make([]*goredis.SliceCmd, len(entries)), make([]*goredis.Cmd, len(entries))
	for i, z := range entries {
		id, callID, _ := strings.Cut(text(z.Member), callMark)
		headers[i] = pipe.HMGet(ctx, w.prefix(id)+keyHeader, listed...)
		states[i] = pipe.HMGet(ctx, w.prefix(id)+keyOpen, callID+"\x00s")
		sizes[i] = pipe.Do(ctx, "hstrlen", w.prefix(id)+keyOpen, callID+"\x00i")
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	out := make([]*waited, len(entries))
	var wrong []correction
	for i, z := range entries {
		values, err := headers[i].Result()
		if err != nil {
			return nil, failure("list waiting calls", err)
		}
		state, err := states[i].Result()
		if err != nil {
			return nil, failure("list waiting calls", err)
		}
		size, err := sizes[i].Int64()
		if err != nil {
			return nil, failure("list waiting calls", err)
		}
		id, callID, _ := strings.Cut(text(z.Member), callMark)
		raw := make(map[string]string, len(values))
		for j, value := range values {
			raw[listed[j]] = text(value)
		}
		h := newHeader(w.tenant, id, raw)
		if raw["v"] == "" || session.PendingState(text(state[0])) != session.PendingWaiting || (w.query.UserID != "" && h.UserID != w.query.UserID) {
			wrong = append(wrong, correction{hint{w.b.keys.listing(w.tenant), w.index, text(z.Member), score(z.Score), inPlace}, ""})
			continue
		}
		if !h.activity().Listed() {
			continue
		}
		if w.links != nil {
			w.links[id] = session.Link{UserID: h.UserID, ParentID: h.ParentID}
		}
		out[i] = &waited{
			session.Waiting{Call: session.Pending{CallID: callID}, SessionID: id, Agent: h.Agent},
			size,
			session.Position{N: int64(z.Score), ID: text(z.Member)},
		}
	}
	w.b.settle(ctx, began, wrong)
	return out, nil
}

// readLinks reads the users and parents of sessions.
func (s *sessions) readLinks(ctx context.Context, ids []string) (map[string]session.Link, error) {
	pipe := s.b.client.Pipeline()
	cmds := make([]*goredis.SliceCmd, len(ids))
	for i, id := range ids {
		cmds[i] = pipe.HMGet(ctx, s.prefix(id)+keyHeader, "v", "user", "parent")
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	out := make(map[string]session.Link, len(ids))
	for i, id := range ids {
		values, err := cmds[i].Result()
		if err != nil {
			return nil, failure("list waiting calls", err)
		}
		if values[0] != nil {
			out[id] = session.Link{UserID: text(values[1]), ParentID: text(values[2])}
		}
	}
	return out, nil
}
