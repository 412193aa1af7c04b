// Package helix is a framework for durable AI agents: conversations that survive
// crashes and deploys, streams that a reader can leave and resume, and runs that can
// be stopped, resumed, retried and branched. Every store and every runtime gives the
// same guarantees.
//
// # Defining an agent
//
// An [Agent] is data: a name, instructions, a model, tools, and optionally typed
// state and typed output. A [Tool] wraps a Go function with [Func]; its input
// schema is inferred from the function's type and enforced.
//
// # Running it
//
// An [Executor] runs agents. Package runtime/local runs them in this process on
// any backend; Execute, Resume and Retry return a [Run] to stream and wait for.
//
//	db, err := sqlite.Open("helix.db")
//	rt, err := local.New(local.Config{Backend: db, Agents: []*helix.Agent{agent}})
//	run, err := rt.Execute(ctx, agent, helix.Input{Message: helix.UserText("Hello")})
//	for item, err := range run.Stream(ctx) { … }
//	res, err := run.Result(ctx)
//
// # People and other agents
//
// A tool may run on the client ([OnClient]) or require an [Approval]. Its run then
// suspends until Submit answers the call, from any process; see [Approve] and
// [ToolResult]. An agent may call others: a [SubAgent] is a tool with a new session
// per call, a [Companion] keeps its session and remembers. They may wait for people,
// too, at any depth; answer and resume them at the root session.
//
// # Guarantees
//
// Every step is committed atomically. A process may be killed at any time: another
// one, or the same one after a restart, recovers the run and continues it from its
// last commit. After a crash a tool call runs again only if its tool is ReadOnly or
// Idempotent; otherwise the model learns that the outcome is unknown.
//
// Errors are values of [Error] with a code; match the sentinels of this package with
// [errors.Is].
package helix
