package server

import (
	"context"
	"fmt"
	"net/http"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/skill"
)

// skills lists the skills of an agent. They may differ from user to user, so those of the
// request's identity are listed, and nothing is kept.
func (x *exchange) skills() error {
	agent, err := x.server.agent("name", x.r.PathValue("name"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(x.r.Context(), listLimit)
	defer cancel()
	scope := skill.Scope{Tenant: x.who.Tenant, UserID: x.who.User, Agent: agent.Name}
	out := wire.Skills{Items: []wire.Skill{}}
	for _, extension := range agent.Extensions {
		list, err := skillsOf(ctx, extension, scope)
		if err != nil {
			return session.ErrUnavailable.WithCause(err, "the skills of %s cannot be listed at the moment", agent.Name)
		}
		for _, m := range list {
			out.Items = append(out.Items, wire.Skill(m))
		}
	}
	x.json(http.StatusOK, out)
	return nil
}

// skillsOf lists the skills of an extension, if it has some. A panic is an error.
func skillsOf(ctx context.Context, extension helix.Extension, scope skill.Scope) (list []skill.Metadata, err error) {
	lister, ok := extension.(skill.Lister)
	if !ok {
		return nil, nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return lister.Skills(ctx, scope)
}
