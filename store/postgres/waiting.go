package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/session"
)

// inbox is the SQL of a [session.WaitingQuery]: it reads one index in its order.
type inbox struct {
	where string
	order string
	args  []any
}

// waitingCalls selects sessions as [session.Activity.Listed] does. OFFSET makes
// the planner look up each session by itself; for a join it might read all of
// them.
const waitingCalls = `
FROM helix.pending p, LATERAL (SELECT * FROM helix.sessions x WHERE x.number = p.session OFFSET 0) s
WHERE p.tenant = $1 AND p.state = 'waiting' AND ` + activity + ` IN ('running', 'waiting')`

func newInbox(tenant string, q *session.WaitingQuery) *inbox {
	x := &inbox{where: waitingCalls, order: " ORDER BY p.created_at, p.number", args: []any{tenant}}
	if q.UserID != "" {
		x.args = append(x.args, q.UserID)
		x.where += " AND p.user_id = $2 AND p.user_id <> ''"
	}
	if q.NewestFirst {
		x.order = " ORDER BY p.created_at DESC, p.number DESC"
	}
	return x
}

// page returns the query for a number of calls, after a position if there is one.
// The limit is part of the text, as in [listing.page].
func (x *inbox) page(q *session.WaitingQuery, after *session.Position, limit, offset int) (string, []any) {
	text, args := `
SELECT p.number, s.id, s.agent, s.user_id, s.parent_id,`+pendingColumns+x.where, append([]any{}, x.args...)
	if after != nil {
		number, _ := strconv.ParseInt(after.ID, 10, 64)
		args = append(args, time.Unix(0, after.N).UTC(), number)
		sign := " > "
		if q.NewestFirst {
			sign = " < "
		}
		text += fmt.Sprintf(" AND (p.created_at, p.number)%s($%d, $%d)", sign, len(args)-1, len(args))
	}
	text += x.order + " LIMIT " + strconv.Itoa(limit)
	if offset > 0 {
		args = append(args, offset)
		text += " OFFSET $" + strconv.Itoa(len(args))
	}
	return text, args
}

func (x *inbox) count() string { return "SELECT count(*)" + x.where }

const selectLinks = `
SELECT id, user_id, parent_id FROM helix.sessions WHERE tenant = $1 AND id = ANY ($2::text[])`

// waitingAtOnce is how many calls are read at a time if the size of their inputs
// is bounded: calls that do not fit were read in vain.
const waitingAtOnce = 20

// Waiting implements [session.Lister].
func (s *sessions) Waiting(ctx context.Context, query session.WaitingQuery) (page session.Page[session.Waiting], err error) {
	at, resumed, err := query.Position()
	if err != nil {
		return page, err
	}
	err = s.b.read(ctx, "list waiting calls", func(ctx context.Context, t *tx) error {
		page = session.Page[session.Waiting]{Items: []session.Waiting{}, Limit: query.Size(), Offset: query.Skip()}
		x := newInbox(s.tenant, &query)
		if query.Total {
			page.Total = new(int)
			t.ask(func(rows pgx.Rows) error { return rows.Scan(page.Total) }, x.count(), x.args...)
		}
		var after *session.Position
		if resumed {
			after = &at
		}
		links, err := s.readWaiting(ctx, t, x, &query, &page, after)
		if err != nil {
			return err
		}
		page.Items, err = query.FindRoots(page.Items, links, func(ids []string) (map[string]session.Link, error) {
			found := map[string]session.Link{}
			t.ask(func(rows pgx.Rows) error {
				var id string
				var link session.Link
				err := rows.Scan(&id, &link.UserID, &link.ParentID)
				found[id] = link
				return err
			}, selectLinks, s.tenant, ids)
			return found, t.flush(ctx)
		})
		if err != nil {
			return err
		}
		return t.finish(ctx)
	})
	if err != nil {
		return session.Page[session.Waiting]{}, err
	}
	return page, nil
}

// readWaiting reads the calls of a page, and the links of their sessions.
func (s *sessions) readWaiting(
	ctx context.Context, t *tx, x *inbox, query *session.WaitingQuery, page *session.Page[session.Waiting], after *session.Position,
) (map[string]session.Link, error) {
	links, size, skip := map[string]session.Link{}, int64(0), query.Skip()
	for !page.HasMore {
		limit := page.Limit + 1 - len(page.Items)
		if query.MaxBytes > 0 {
			limit = min(limit, waitingAtOnce)
		}
		text, args := x.page(query, after, limit, skip)
		read := 0
		t.ask(func(rows pgx.Rows) error {
			read++
			at, item, link, err := scanWaiting(rows)
			if errors.Is(err, session.ErrCorrupt) { // one bad row must not hide the others
				s.b.config.Logger.WarnContext(ctx, "a waiting call cannot be decoded", "tenant", s.tenant, "session", item.SessionID, "error", err)
				after = at
				return nil
			}
			if err != nil || page.HasMore {
				return err
			}
			size += int64(len(item.Call.Input))
			if len(page.Items) == page.Limit || !query.Fits(len(page.Items), size) {
				page.HasMore, page.Next = true, after.Cursor()
				return nil
			}
			after, links[item.SessionID] = at, link
			page.Items = append(page.Items, item)
			return nil
		}, text, args...)
		if err := t.flush(ctx); err != nil {
			return nil, err
		}
		if read < limit {
			break
		}
		skip = 0
	}
	return links, nil
}

func scanWaiting(rows pgx.Rows) (at *session.Position, item session.Waiting, link session.Link, err error) {
	row := &pendingRow{}
	var state string
	var number int64
	err = rows.Scan(&number, &item.SessionID, &item.Agent, &link.UserID, &link.ParentID,
		&row.callID, &row.messageID, &state, &row.lateNoticed, instant{&row.deadline}, instant{&row.createdAt},
		&row.Doc, &row.Input, &row.Result, &row.Late)
	if err != nil {
		return nil, item, link, err
	}
	at = &session.Position{N: row.createdAt.UnixNano(), ID: strconv.FormatInt(number, 10)}
	row.state = session.PendingState(state)
	p, err := row.decode(item.SessionID)
	if err == nil {
		item.Call = *p
	}
	return at, item, link, err
}
