package redis

import (
	"context"
	"errors"
	"slices"

	"github.com/helixagents/helix/session"
)

// A conversation at rest, with all agents below it, expires [Config.SessionTTL]
// after its last change. Its sessions are in several slots, so they are marked one
// after the other, the conversation's own first. Whoever starts a run of any of
// them first removes the marks, and a start is refused and repeated if a mark was
// set after it looked. If a process dies in between, some keys do not expire, or a
// sub-agent's keys expire when those of the conversation's next rest would.

// rests makes a conversation expire if none of its sessions runs or waits. It is
// called after every change of the document of one of its sessions. If it fails,
// the keys are kept.
func (s *sessions) rests(ctx context.Context, id string) {
	if s.b.config.SessionTTL <= 0 {
		return
	}
	if err := s.expire(ctx, id); err != nil && ctx.Err() == nil && !errors.Is(err, session.ErrNotFound) {
		s.b.config.Logger.WarnContext(ctx, "a session's time to live could not be set", "tenant", s.tenant, "session", id, "error", err)
	}
}

func (s *sessions) expire(ctx context.Context, id string) error {
	tree, err := s.conversation(ctx, id)
	if err != nil {
		return err
	}
	for _, member := range tree { // checks first, so that busy conversations need no marks
		q := query()
		q.do("all", keyBlobs, keyBlobs)
		v, err := s.look(ctx, member, "look up", q)
		if err != nil {
			return err
		}
		if v.header != nil && !v.header.atRest() {
			return nil
		}
		if v.header != nil {
			if err := s.blobsExpire(ctx, v); err != nil {
				return err
			}
		}
	}
	ttl, streams := s.b.config.SessionTTL.Milliseconds(), flag(s.b.config.StreamTTL > 0)
	for i, member := range tree {
		w := &batch{}
		w.do("mortal", sessionLetters, ttl, streams)
		_, err := s.apply(ctx, member, "expire", "", w)
		r, refused := errors.AsType[*refusal](err)
		switch {
		case refused && i > 0 && r.why == "busy":
			return s.keep(ctx, tree)
		case refused:
			if i == 0 {
				return nil
			}
		case err != nil:
			return err
		}
	}
	v, err := s.look(ctx, tree[0], "look up", query())
	if err == nil && v.header != nil && v.header.raw["mortal"] != "1" { // a run has begun in the meantime
		return s.keep(ctx, tree)
	}
	return err
}

// atRest reports whether the session neither runs nor waits, nor will after it is
// resumed, and its stream is closed.
func (h *header) atRest() bool {
	over := h.Status == session.Completed || h.Status == session.Failed || h.Status == session.Interrupted
	return (over || h.runStatus == "" || !h.runStatus.Suspended()) && !h.isRunning() && !h.ClosePending
}

// stay prevents the conversation of a session that is about to change from
// expiring, if it would.
func (s *sessions) stay(ctx context.Context, h *header) error {
	if h == nil || h.raw["mortal"] != "1" {
		return nil
	}
	tree, err := s.conversation(ctx, h.ID)
	if err != nil {
		return err
	}
	return s.keep(ctx, tree)
}

// stayForRun is stay for a run that is about to begin. The run of a new session
// belongs to its caller's conversation.
func (s *sessions) stayForRun(ctx context.Context, start *session.StartRun, h *header) error {
	if start.Create == nil || start.Create.ParentID == "" || s.b.config.SessionTTL <= 0 {
		return s.stay(ctx, h)
	}
	v, err := s.look(ctx, start.Create.ParentID, "look up", query())
	if err != nil {
		return err
	}
	return s.stay(ctx, v.header)
}

// stayFor is stay for a change of status after which the session may wait again.
func (s *sessions) stayFor(ctx context.Context, p *plan, h *header, is *session.State) error {
	if session.ActivityOf(is.Status, h.runStatus) != session.ActivityWaiting {
		return nil
	}
	p.do("same", "", "mortal", "")
	return s.stay(ctx, h)
}

func (s *sessions) keep(ctx context.Context, tree []string) error {
	for _, member := range slices.Backward(tree) {
		w := &batch{}
		w.do("immortal", sessionLetters)
		_, err := s.apply(ctx, member, "keep", "", w)
		if r, refused := errors.AsType[*refusal](err); refused && r.why == "missing" {
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// conversation lists the sessions of the conversation that a session belongs to,
// the conversation's own first.
func (s *sessions) conversation(ctx context.Context, id string) ([]string, error) {
	root, err := s.rootOf(ctx, id)
	if err != nil {
		return nil, err
	}
	return s.tree(ctx, root)
}

// rootOf returns the session at the top of the tree that a session belongs to.
func (s *sessions) rootOf(ctx context.Context, id string) (string, error) {
	links, err := s.readLinks(ctx, []string{id})
	if err != nil {
		return "", err
	}
	for range maxCallers {
		parent := links[id].ParentID
		if parent == "" {
			break
		}
		if links, err = s.readLinks(ctx, []string{parent}); err != nil {
			return "", err
		}
		if _, found := links[parent]; !found {
			break
		}
		id = parent
	}
	return id, nil
}

// maxCallers bounds how many callers above a session are followed.
const maxCallers = 64
