package engine

import (
	"slices"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/session"
)

// requires lists the abilities that a process must have to work on runs of an agent:
// those of all agents that it can reach. A remote agent may ask questions, too, and so
// may the tools of extensions, which are not known yet.
func requires(agent *helix.Agent) []string {
	all := []*helix.Agent{agent}
	if len(agent.SubAgents) > 0 || len(agent.Companions) > 0 {
		all = agent.Reaches()
	}
	var names []string
	if slices.ContainsFunc(all, mayAsk) {
		names = append(names, session.FeatureQuestion)
	}
	if slices.ContainsFunc(all, func(a *helix.Agent) bool { return a.Context != nil }) {
		names = append(names, session.FeatureContext)
	}
	return names
}

// mayAsk reports whether calls of an agent may ask questions.
func mayAsk(a *helix.Agent) bool {
	return len(a.Extensions) > 0 || slices.ContainsFunc(a.Tools, func(t helix.Tool) bool { return t.Asks }) ||
		slices.ContainsFunc(a.SubAgents, func(s helix.SubAgent) bool { return s.Remote != nil })
}

// Supports reports whether this process has all abilities that a run requires. A
// process that lacks one leaves the session alone.
func (h *Handler) Supports(requires []string) bool {
	return session.CheckFeatures("", requires, h.cfg.Features) == nil
}

// checkSupport returns an error if this process must not work on a session, because
// the session's run requires what the process lacks. The transcript of a session that
// has completed or failed requires nothing.
func (h *Handler) checkSupport(state *session.State) error {
	if state.Status == session.Completed || state.Status == session.Failed {
		return nil
	}
	return session.CheckFeatures(state.ID, state.Requires, h.cfg.Features)
}
