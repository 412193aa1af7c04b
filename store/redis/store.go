package redis

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/helixagents/helix/session"
)

// sessions is the session store of one tenant.
type sessions struct {
	b      *Backend
	tenant string
}

var _ session.Store = (*sessions)(nil)

// Tenant implements [session.Store].
func (s *sessions) Tenant(tenant string) session.Store { return &sessions{s.b, orDefault(tenant)} }

// Now implements [session.Turns].
func (s *sessions) Now(ctx context.Context) (time.Time, error) {
	if err := s.b.begin(ctx, "read the clock"); err != nil {
		return time.Time{}, err
	}
	return s.b.now(ctx)
}

func orDefault(tenant string) string {
	if tenant == "" {
		return session.DefaultTenant
	}
	return tenant
}

// what names an operation in errors.
func what(id, verb string) string { return "session " + id + ": " + verb }

func (s *sessions) prefix(id string) string { return s.b.keys.session(s.tenant, id) }

// view is a set of parts of a session, read at one moment.
type view struct {
	now time.Time
	// header is nil if there is no session.
	header *header
	parts  []any
}

// query starts a read of parts of a session, which always includes its header.
func query() *batch {
	q := &batch{}
	q.do("all", keyHeader, keyHeader)
	return q
}

// leaseQuery is query for a caller that is about to take a session's lease.
func leaseQuery() *batch {
	q := query()
	q.current = true
	return q
}

// look reads parts of a session in one round trip.
func (s *sessions) look(ctx context.Context, id, verb string, q *batch) (*view, error) {
	name := what(id, verb)
	if err := s.b.begin(ctx, name); err != nil {
		return nil, err
	}
	eval := s.b.eval
	if q.current {
		eval = s.b.evalCurrent
	}
	out, err := eval(ctx, readSession, q.names(s.prefix(id)), append([]any{string(q.letters), s.b.stamp()}, q.args...))
	if err != nil {
		return nil, failure(name, err)
	}
	parts := list(out)
	v := &view{now: moment(text(parts[0]))}
	if len(parts) == 1 {
		return v, nil
	}
	v.header, v.parts = newHeader(s.tenant, id, fieldsOf(parts[1])), parts[2:]
	s.b.places.put(s.tenant, id, place{v.header.raw["created"], v.header.UserID})
	return v, nil
}

// read is look for a session that must exist.
func (s *sessions) read(ctx context.Context, id, verb string, q *batch) (*view, error) {
	v, err := s.look(ctx, id, verb, q)
	if err == nil && v.header == nil {
		err = session.NotFound(id)
	}
	return v, err
}

// done is the result of a change of a session.
type done struct {
	session.Committed
	results []any
}

// refusal reports a change that the session did not allow. Nothing has changed.
type refusal struct {
	why    string
	about  []string
	header *header // nil if there is no session
	now    time.Time
}

func (r *refusal) Error() string { return "refused: " + r.why }

// domain returns the refusal as an error of the domain, as far as the session
// alone determines it.
func (r *refusal) domain(id string) error {
	about := ""
	if len(r.about) > 0 {
		about = r.about[0]
	}
	switch r.why {
	case "missing":
		return session.NotFound(id)
	case "exists":
		return session.Exists(&r.header.State)
	case "fence":
		return r.header.CheckFence(session.Fence{}) // which nobody holds
	case "keep":
		return session.Invalid("message count", "is more than the session's %d messages", r.header.MessageCount)
	case "unsettled":
		err := session.Invalid("promoted call", "%q has not been settled", about)
		err.Calls = r.about
		return err
	case "duplicate":
		return session.Invalid("message id", "%q is already in the transcript", about)
	case "notlist":
		return notList(about)
	case "answered":
		err := session.ErrAnswered.WithMessage("session %s: calls %v were answered in the meantime", id, r.about).WithSaw(r.header.Saw())
		err.Calls = r.about
		return err
	case "checkpoint":
		return session.ErrExists.WithMessage("session %s: checkpoint %s already exists", id, about).WithSaw(r.header.Saw())
	}
	return session.ErrInternal.WithMessage("session %s: the store refused a change: %s", id, r.why)
}

func notList(key string) error {
	return session.Invalid("state key", "%q is not a list, so nothing can be appended to it", key)
}

// apply applies operations to a session in one round trip. A token identifies the
// request, for operations that must not be applied twice. What the session does
// not allow is a *refusal.
func (s *sessions) apply(ctx context.Context, id, verb, token string, w *batch) (*done, error) {
	name := what(id, verb)
	if err := s.b.begin(ctx, name); err != nil {
		return nil, err
	}
	r := s.writing(id, token, w)
	s.b.evalAll(ctx, r)
	return s.outcome(id, name, r)
}

// writing returns the script that changes a session, with its arguments.
func (s *sessions) writing(id, token string, w *batch) *run {
	w.use(keyHeader[0])
	args := append([]any{string(w.letters), s.b.stamp(), token}, w.args...)
	return &run{script: writeSession, keys: w.names(s.prefix(id)), args: args}
}

// outcome reads the answer of a script that changes a session.
func (s *sessions) outcome(id, name string, r *run) (*done, error) {
	if r.err != nil {
		return nil, failure(name, r.err)
	}
	return s.decide(id, r.out)
}

// decide reads what a script decided. The script for steps returns a success in
// one string: its kind and time, then the session's position.
func (s *sessions) decide(id string, answer any) (*done, error) {
	if told, ok := answer.(string); ok {
		parts := strings.Split(told, "\x00")
		s.b.seen.Store(number(parts[1]))
		return newDone(number(parts[0]), parts[2:]), nil
	}
	parts := list(answer)
	s.b.seen.Store(number(text(parts[1])))
	kind, _ := parts[0].(int64)
	if kind != 0 {
		d := newDone(kind, strings.Split(text(parts[2]), "\x00"))
		d.results = parts[3:]
		return d, nil
	}
	why := list(parts[2])
	r := &refusal{why: text(why[0]), now: moment(text(parts[1]))}
	for _, about := range why[1:] {
		r.about = append(r.about, text(about))
	}
	if raw := fieldsOf(parts[3]); len(raw) > 0 {
		r.header = newHeader(s.tenant, id, raw)
	}
	return nil, r
}

func newDone(kind int64, stands []string) *done {
	d := &done{}
	d.Repeated = kind == 2
	d.Version, d.MessageCount, d.CheckpointID = number(stands[0]), int(number(stands[1])), stands[2]
	d.Inbox = number(stands[3]) > 0
	if kind := stands[4]; kind != "" {
		d.Stop = &session.Stop{Kind: session.StopKind(kind), Reason: stands[5], At: moment(stands[6])}
	}
	return d
}

// write is apply for operations that may be applied twice. It converts the
// refusals that need no further explanation.
func (s *sessions) write(ctx context.Context, id, verb string, w *batch) error {
	_, err := s.apply(ctx, id, verb, "", w)
	if r, refused := errors.AsType[*refusal](err); refused {
		return r.domain(id)
	}
	return err
}

// maxEdits is how often a decision is repeated because the session has changed
// since it was read. Each time another process has made progress.
const maxEdits = 1000

// plan is a decision about a session: the operations, and the index entries that
// must exist before.
type plan struct {
	batch
	hints hints
	// then is a script of the same slot that is sent along, or nil. It must check that
	// the operations were applied.
	then *run
}

// edit reads a session, lets decide plan a change and applies it, unless the
// session has changed in between: then it starts again. A plan without operations
// changes nothing.
func (s *sessions) edit(ctx context.Context, id, verb string, q func() *batch, decide func(*view) (*plan, error)) (*done, error) {
	token := s.b.tokens.next()
	for range maxEdits {
		v, err := s.look(ctx, id, verb, q())
		if err != nil {
			return nil, err
		}
		p, err := decide(v)
		if err != nil || p == nil {
			return nil, err
		}
		out, err := s.carryOut(ctx, id, verb, token, p)
		r, refused := errors.AsType[*refusal](err)
		switch {
		case !refused:
			return out, err
		case r.why != "moved" && r.why != "exists" && r.why != "missing":
			return nil, r.domain(id)
		}
	}
	return nil, session.ErrUnavailable.WithMessage("%s: the session changed too often", what(id, verb))
}

// carryOut adds a plan's index entries, then applies its change.
func (s *sessions) carryOut(ctx context.Context, id, verb, token string, p *plan) (*done, error) {
	name := what(id, verb)
	if err := s.b.begin(ctx, name); err != nil {
		return nil, err
	}
	r := s.writing(id, token, &p.batch)
	runs := []*run{r}
	if p.then != nil {
		runs = append(runs, p.then)
	}
	if err := s.b.evalBehind(ctx, name, &p.hints, runs...); err != nil {
		return nil, err
	}
	out, err := s.outcome(id, name, r)
	if r, refused := errors.AsType[*refusal](err); refused && r.why == "exists" {
		if err := s.b.putBack(ctx, name, &p.hints, r.header.raw["created"]); err != nil {
			return nil, err
		}
	}
	return out, err
}
