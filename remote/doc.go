// Package remote lets an agent call one on another server, as a sub-agent:
//
//	clerk := &remote.Agent{URL: "https://agents.example.com", Token: token, Agent: "clerk"}
//	boss := &helix.Agent{
//		Name:      "boss",
//		Model:     model,
//		SubAgents: []helix.SubAgent{clerk.SubAgent()},
//	}
//
// The model is offered the tool subagent__clerk. What the clerk says and does is
// shown in the caller's stream, each chunk once, also if connections drop or either
// server is killed and started again. A call inside the clerk that waits for a
// person waits at the caller, and is answered there. Stopping the caller stops the
// clerk, as soon as it can be told.
//
// The other server is any that speaks the API of package server, in the same
// version. Sessions there belong to the user that the token stands for.
package remote
