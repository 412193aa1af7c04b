// Package remote lets an agent call an agent on another server as a sub-agent:
//
//	clerk := &remote.Agent{URL: "https://agents.example.com", Token: token, Agent: "clerk"}
//	boss := &helix.Agent{
//		Name:      "boss",
//		Model:     model,
//		SubAgents: []helix.SubAgent{clerk.SubAgent()},
//	}
//
// The model gets the tool subagent__clerk. The clerk's chunks appear in the caller's
// stream, each exactly once, even if connections drop or either server is killed and
// restarted. If a call within the clerk waits for a person, the caller waits, and the
// answer is submitted to the caller. Stopping the caller stops the clerk as soon as its
// server is reachable.
//
// The other server must have the same version of the API of package server. Sessions
// there belong to the user of the token.
package remote
