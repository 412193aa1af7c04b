package skills

import (
	"context"
	"errors"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/skill"
)

// maxLogged is how many problems are remembered, so that each is logged once.
const maxLogged = 1000

// warning returns what readers of the stream see of a problem: not where on the server's
// disk it is. That is logged once.
func (x *Extension) warning(ctx context.Context, p *skill.Problem) string {
	shown, full := p.Public(), p.Error()
	if shown != full && x.isNew(full) {
		x.cfg.Logger.WarnContext(ctx, "skill.problem", "problem", full)
	}
	return shown
}

// isNew reports whether a problem is told for the first time.
func (x *Extension) isNew(problem string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.logged[problem] {
		return false
	}
	if len(x.logged) >= maxLogged {
		clear(x.logged)
	}
	x.logged[problem] = true
	return true
}

// failure returns what the model, and with it the user, is told if a skill cannot be read.
// What a provider says about the machine that it runs on is logged.
func (x *Extension) failure(ctx context.Context, name string, err error) error {
	if ctx.Err() != nil {
		return err
	}
	if errors.Is(err, session.ErrNotFound) || errors.Is(err, session.ErrInvalid) {
		e := *session.AsError(err)
		e.Cause = nil
		return &e
	}
	x.cfg.Logger.WarnContext(ctx, "skill.failed", "skill", name, "error", err)
	if p, ok := errors.AsType[*skill.Problem](err); ok {
		return session.ErrInvalid.WithMessage("the skill %.80q cannot be used: %s", name, p.Public())
	}
	return session.ErrUnavailable.WithMessage("the skill %.80q cannot be read at the moment", name)
}
