package engine

import (
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/skill"
)

// Eviction lifts the limit of results to another one, except where the result is not evicted
// or is the output of the run.
func TestMaxResult(t *testing.T) {
	t.Parallel()
	const small = 1_000_000
	policy := &helix.ContextPolicy{EvictOver: 80_000, EvictExcept: []string{"quote"}}
	for name, c := range map[string]struct {
		policy *helix.ContextPolicy
		limit  int
		call   session.Call
		want   int
	}{
		"no policy":                {nil, small, session.Call{Tool: "print"}, small},
		"a policy without it":      {&helix.ContextPolicy{}, small, session.Call{Tool: "print"}, small},
		"evicted":                  {policy, small, session.Call{Tool: "print"}, helix.MaxEvicted},
		"a limit above the other":  {policy, 2 * helix.MaxEvicted, session.Call{Tool: "print"}, 2 * helix.MaxEvicted},
		"an exception":             {policy, small, session.Call{Tool: "quote"}, small},
		"what reads":               {policy, small, session.Call{Tool: helix.ReadResultTool}, small},
		"what reads files":         {policy, small, session.Call{Tool: "workspace_read_file"}, small},
		"a skill":                  {policy, small, session.Call{Tool: skill.LoadTool}, small},
		"a file of a skill":        {policy, small, session.Call{Tool: skill.ReadTool}, small},
		"the output of a run":      {policy, small, session.Call{Tool: "publish", FinishWith: true}, small},
		"the result of an agent":   {policy, small, session.Call{Tool: "subagent__a", Kind: session.CallSubAgent}, helix.MaxEvicted},
		"the answer of a client":   {policy, small, session.Call{Tool: "pick", Kind: session.CallClient}, helix.MaxEvicted},
		"a companion's last words": {policy, small, session.Call{Tool: helix.SendMessageTool, Kind: session.CallCompanion}, helix.MaxEvicted},
	} {
		turn := &turn{agent: &helix.Agent{Context: c.policy}, h: &Handler{cfg: Config{MaxResult: c.limit}}}
		if got := turn.maxResult(&call{Call: c.call}); got != c.want {
			t.Errorf("%s: at most %d bytes, want %d", name, got, c.want)
		}
	}
}
