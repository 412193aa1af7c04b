package redis

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

// encodeCall encodes a call as a row, whose document does not contain the fields
// that are kept in attributes.
func encodeCall(call *session.Call) (*stored.Call, error) {
	return stored.EncodeCall(call, func(c *session.Call) { c.Status, c.BegunAt, c.SettledAt = "", time.Time{}, time.Time{} })
}

// resultMeta returns what the store itself needs of a call's result.
func resultMeta(call *session.Call) string {
	if call.Result == nil {
		return ""
	}
	return messageMeta(call.Result)
}

func decodeCall(id, callID string, r row) (session.Call, error) {
	body := stored.Call{Doc: []byte(r['d']), Result: r.body('r'), Writes: r.body('w')}
	call, err := body.Decode(id, callID)
	call.Status, call.BegunAt, call.SettledAt = session.CallStatus(r['s']), r.time('b'), r.time('e')
	return call, err
}

func (w *batch) addCalls(calls []session.Call) error {
	if len(calls) == 0 {
		return nil
	}
	args, err := callArgs(make([]any, 0, 10*len(calls)), calls)
	if err == nil {
		w.do("calls", keyCalls, args...)
	}
	return err
}

// callArgs adds the ten parts of each row.
func callArgs(args []any, calls []session.Call) ([]any, error) {
	for i := range calls {
		call := &calls[i]
		row, err := encodeCall(call)
		if err != nil {
			return nil, err
		}
		status, begun, settled := call.Status, "", ""
		if status == "" {
			status = session.CallOpen
		}
		if status != session.CallOpen {
			begun = orNow(call.BegunAt)
		}
		if status == session.CallSettled {
			settled = orNow(call.SettledAt)
		}
		args = append(args, call.MessageID, call.ID, call.Index, string(status), begun, settled, row.Doc, row.Result, resultMeta(call), row.Writes)
	}
	return args, nil
}

// callError explains why a call was not claimed or settled.
func (s *sessions) callError(id, messageID, callID string, version int64, err error) error {
	r, refused := errors.AsType[*refusal](err)
	if !refused {
		return err
	}
	switch r.why {
	case "version":
		return r.header.atVersion(version)
	case "nocall":
		out := notFound("session %s: call %s of message %s", id, callID, messageID)
		out.Calls = []string{callID}
		return out
	}
	return r.domain(id)
}

// Claim implements [session.Calls].
func (s *sessions) Claim(
	ctx context.Context, id string, version int64, fence session.Fence, messageID, callID string,
) (session.Call, bool, error) {
	w := &batch{}
	w.do("fence", "", fence.Owner, fence.Epoch)
	w.do("version", "", version)
	w.do("claim", keyCalls, messageID, callID)
	out, err := s.apply(ctx, id, "claim call", s.b.tokens.next(), w)
	if err != nil {
		return session.Call{}, false, s.callError(id, messageID, callID, version, err)
	}
	if len(out.results) == 0 { // a repeated request
		return s.reclaim(ctx, id, messageID, callID)
	}
	call, err := s.callRow(id, callID, out.results[1])
	if err != nil {
		return session.Call{}, false, err
	}
	return call, text(out.results[0]) != "", nil
}

// reclaim reads the row that a claim has left whose answer was lost.
func (s *sessions) reclaim(ctx context.Context, id, messageID, callID string) (session.Call, bool, error) {
	calls, err := s.Calls(ctx, id, messageID)
	if err != nil {
		return session.Call{}, false, err
	}
	for i := range calls {
		if calls[i].ID == callID {
			return calls[i], calls[i].Status == session.CallBegun, nil
		}
	}
	return session.Call{}, false, notFound("session %s: call %s of message %s", id, callID, messageID)
}

func (s *sessions) callRow(id, callID string, flat any) (session.Call, error) {
	for _, r := range rowsOf(fieldsOf(flat)) {
		return decodeCall(id, callID, r)
	}
	return session.Call{}, notFound("session %s: call %s", id, callID)
}

// Settle implements [session.Calls].
func (s *sessions) Settle(ctx context.Context, id string, fence session.Fence, settled session.Call) (session.Call, error) {
	settled.Status = session.CallSettled
	if err := settled.Check(); err != nil {
		return session.Call{}, err
	}
	row, err := encodeCall(&settled)
	if err != nil {
		return session.Call{}, err
	}
	if settled.Extra == nil {
		row.Doc = nil // the row keeps its own
	}
	w := &batch{}
	w.do("fence", "", fence.Owner, fence.Epoch)
	w.do("settle", keyCalls, settled.MessageID, settled.ID, row.Doc, row.Result, resultMeta(&settled), row.Writes)
	out, err := s.apply(ctx, id, "settle call", "", w)
	if err != nil {
		return session.Call{}, s.callError(id, settled.MessageID, settled.ID, 0, err)
	}
	return s.callRow(id, settled.ID, out.results[0])
}

// Ask implements [session.Calls]. The rows are read, the question decided, and
// everything written unless one of them has changed.
func (s *sessions) Ask(ctx context.Context, id string, fence session.Fence, ask session.Ask) error {
	if err := ask.Check(); err != nil {
		return err
	}
	messageID := ask.Call.MessageID
	q := func() *batch {
		q := query()
		q.do("calls", keyCalls, messageID)
		return q
	}
	_, err := s.edit(ctx, id, "ask", q, func(v *view) (*plan, error) {
		if v.header == nil {
			return nil, session.NotFound(id)
		}
		if err := v.header.CheckFence(fence); err != nil {
			return nil, err
		}
		calls, err := decodeCalls(id, messageID, v.parts[0])
		if err != nil {
			return nil, err
		}
		was := slices.Clone(calls)
		changed, err := ask.Apply(id, calls)
		if err != nil || len(changed) == 0 {
			return nil, err
		}
		p := &plan{}
		p.do("fence", "", fence.Owner, fence.Epoch)
		for _, i := range changed {
			if err := p.reopen(&was[i], &calls[i]); err != nil {
				return nil, err
			}
		}
		entries := []session.Pending{ask.Pending}
		if err := p.addPending(id, v.header.CurrentRunID, entries); err != nil {
			return nil, err
		}
		p.batch.resolve(ask.Resolve)
		s.changeHints(&p.hints, id, &session.Change{Pending: entries}, v.now)
		s.waitingHints(&p.hints, &v.header.State, entries, asOfNow)
		return p, nil
	})
	if err == nil {
		s.afterChange(ctx, id, &session.Change{Resolve: ask.Resolve})
	}
	return err
}

// reopen writes the row of a call that is open again, unless it has changed since it
// was read.
func (p *plan) reopen(was, is *session.Call) error {
	row, err := encodeCall(is)
	if err != nil {
		return err
	}
	name := is.MessageID + "\x00" + is.ID + "\x00"
	p.do("match", keyCalls, keyCalls, name+"s", string(was.Status), name+"b", micros(was.BegunAt))
	p.do("hset", keyCalls, keyCalls, name+"s", string(is.Status), name+"d", row.Doc)
	p.do("hdel", keyCalls, keyCalls, name+"b", name+"v")
	return nil
}

// Calls implements [session.Calls].
func (s *sessions) Calls(ctx context.Context, id, messageID string) ([]session.Call, error) {
	q := query()
	q.do("calls", keyCalls, messageID)
	v, err := s.read(ctx, id, "list calls", q)
	if err != nil {
		return nil, err
	}
	return decodeCalls(id, messageID, v.parts[0])
}

// decodeCalls lists the rows of a message, in call order.
func decodeCalls(id, messageID string, flat any) ([]session.Call, error) {
	calls := []session.Call{}
	for key, r := range rowsOf(fieldsOf(flat)) {
		call, err := decodeCall(id, strings.TrimPrefix(key, messageID+"\x00"), r)
		if err != nil {
			return nil, err
		}
		calls = append(calls, call)
	}
	slices.SortFunc(calls, func(a, b session.Call) int { return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.ID, b.ID)) })
	return calls, nil
}

// CleanCalls implements [session.Calls]. It examines the sessions that have had a
// run since it last found them without rows.
func (s *sessions) CleanCalls(ctx context.Context, before time.Time) (int, error) {
	const name = "clean calls"
	if err := s.b.begin(ctx, name); err != nil {
		return 0, err
	}
	found, err := s.b.client.ZRangeWithScores(ctx, s.b.keys.listing(s.tenant)+indexCalls, 0, -1).Result()
	if err != nil {
		return 0, failure(name, err)
	}
	total := 0
	for part := range slices.Chunk(found, 100) {
		n, err := s.cleanCalls(ctx, name, before, part)
		if total += n; err != nil {
			return total, err
		}
	}
	return total, nil
}

// cleanCalls cleans some of the sessions that may have rows.
func (s *sessions) cleanCalls(ctx context.Context, name string, before time.Time, found []goredis.Z) (total int, err error) {
	began := time.Now()
	var empty []correction
	for _, z := range found {
		id := text(z.Member)
		untrue := correction{hint{s.b.keys.listing(s.tenant), indexCalls, id, score(z.Score), inPlace}, ""}
		w := &batch{}
		w.do("cleancalls", keyCalls+keyMetas+keyDoc, micros(before))
		out, err := s.apply(ctx, id, name, "", w)
		r, refused := errors.AsType[*refusal](err)
		switch {
		case refused && r.why == "missing":
			empty = append(empty, untrue)
			continue
		case err != nil:
			return total, failure(name, err)
		}
		total += int(number(text(out.results[0])))
		if number(text(out.results[1])) > 0 {
			continue
		}
		v, err := s.look(ctx, id, name, query())
		if err != nil {
			return total, err
		}
		if v.header == nil || !v.header.isRunning() {
			empty = append(empty, untrue)
		}
	}
	s.b.settle(ctx, began, empty)
	return total, nil
}
