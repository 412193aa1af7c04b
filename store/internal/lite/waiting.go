package lite

import (
	"context"
	"errors"

	"github.com/helixagents/helix/session"
)

// waitingQuery returns the SQL of a [session.WaitingQuery], which reads one index
// in its order. Its parameters are the tenant, the user if the query names one,
// the number of the last entry of the previous page if resumed is set, a limit and
// an offset.
func waitingQuery(q *session.WaitingQuery, resumed bool) string {
	text, order := waitingCalls, "ASC"
	if q.UserID != "" {
		text = waitingCallsOfUser
	}
	if q.NewestFirst {
		order = "DESC"
	}
	switch {
	case resumed && q.NewestFirst:
		text += " AND p.number < ?"
	case resumed:
		text += " AND p.number > ?"
	}
	return `
SELECT p.number, s.id, s.agent, s.user_id, s.parent_id, p.call_id, p.doc, p.state, p.input, p.result, p.late
` + text + " ORDER BY p.number " + order + " LIMIT ? OFFSET ?"
}

const (
	waitingCalls       = `FROM pending p INDEXED BY pending_waiting` + joinWaiting
	waitingCallsOfUser = `FROM pending p INDEXED BY pending_waiting_by_user` + joinWaiting + ` AND p.user_id = ? AND p.user_id <> ''`

	// [session.Activity.Listed] says which sessions are included.
	joinWaiting = `
CROSS JOIN sessions s ON s.tenant = p.tenant AND s.id = p.session_id
WHERE p.tenant = ? AND p.state = 'waiting' AND +s.activity IN ('running', 'waiting')`

	selectLink = `
SELECT user_id, parent_id FROM sessions WHERE tenant = ? AND id = ?`
)

// Waiting implements [session.Lister].
func (s *sessions) Waiting(ctx context.Context, query session.WaitingQuery) (page session.Page[session.Waiting], err error) {
	at, resumed, err := query.Position()
	if err != nil {
		return page, err
	}
	page = session.Page[session.Waiting]{Items: []session.Waiting{}, Limit: query.Size(), Offset: query.Skip()}
	err = s.b.Read(ctx, "list waiting calls", func(c Conn) error {
		page.Items, page.HasMore, page.Next = page.Items[:0], false, ""
		args := []any{s.tenant}
		if query.UserID != "" {
			args = append(args, query.UserID)
		}
		if query.Total {
			counted := waitingCalls
			if query.UserID != "" {
				counted = waitingCallsOfUser
			}
			r, err := c.One("SELECT count(*) "+counted, args...)
			if err != nil {
				return err
			}
			page.Total = new(r.Int())
		}
		if resumed {
			args = append(args, at.N)
		}
		links := map[string]session.Link{}
		var last, size int64
		read := 0
		for r, err := range c.Query(waitingQuery(&query, resumed), append(args, page.Limit+1, query.Skip())...) {
			if err != nil {
				return err
			}
			number := r.Int64()
			read++
			item := session.Waiting{SessionID: r.Text(), Agent: r.Text()}
			links[item.SessionID] = session.Link{UserID: r.Text(), ParentID: r.Text()}
			p, err := decodePending(item.SessionID, r)
			if errors.Is(err, session.ErrCorrupt) { // one bad row must not hide the others
				s.b.Logger.WarnContext(ctx, "a waiting call cannot be decoded", "tenant", s.tenant, "session", item.SessionID, "error", err)
				last = number
				continue
			}
			if err != nil {
				return err
			}
			size += int64(len(p.Input))
			if len(page.Items) == page.Limit || !query.Fits(len(page.Items), size) {
				page.HasMore, page.Next = true, session.Position{N: last}.Cursor()
				break
			}
			item.Call, last = *p, number
			page.Items = append(page.Items, item)
		}
		if read > page.Limit && !page.HasMore { // a skipped row has replaced the last one
			page.HasMore, page.Next = true, session.Position{N: last}.Cursor()
		}
		page.Items, err = query.FindRoots(page.Items, links, func(ids []string) (map[string]session.Link, error) {
			found := map[string]session.Link{}
			for _, id := range ids {
				r, err := c.One(selectLink, s.tenant, id)
				if err != nil {
					return nil, err
				}
				if r != nil {
					found[id] = session.Link{UserID: r.Text(), ParentID: r.Text()}
				}
			}
			return found, nil
		})
		return err
	})
	if err != nil {
		return session.Page[session.Waiting]{}, err
	}
	return page, nil
}
