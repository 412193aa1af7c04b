package helixtest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/helixagents/helix"
)

// withModels returns a copy of an agent, and of those that it may call, with the models of
// the test. Agents may call each other in circles.
func (s *setup) withModels(agent *helix.Agent) (*helix.Agent, error) {
	doubles := map[*helix.Agent]*helix.Agent{}
	unused := maps.Clone(s.below)
	for _, one := range agent.Reaches() {
		double := *one
		if model, ok := s.below[one.Name]; ok && one != agent {
			double.Model, double.ModelFunc = model, nil
			delete(unused, one.Name)
		}
		doubles[one] = &double
	}
	for name := range unused {
		return nil, fmt.Errorf("WithModel: %s calls no agent named %q", agent.Name, name)
	}
	for _, double := range doubles {
		double.SubAgents, double.Companions = slices.Clone(double.SubAgents), slices.Clone(double.Companions)
		for i := range double.SubAgents {
			if sub := &double.SubAgents[i]; sub.Agent != nil {
				sub.Agent = doubles[sub.Agent]
			}
		}
		for i := range double.Companions {
			if companion := &double.Companions[i]; companion.Agent != nil {
				companion.Agent = doubles[companion.Agent]
			}
		}
	}
	root := doubles[agent]
	root.Model, root.ModelFunc = s.model, nil
	return root, nil
}
