// Package helix is a framework for durable AI agents: conversations that survive
// crashes and deploys, streams that a reader can drop and pick up again, runs
// that can be stopped, resumed, retried and branched, on one session model whose
// promises hold on every store and every runtime.
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
// A tool may be carried out where the user is ([OnClient]) or need an [Approval].
// Its run then suspends until the call is answered with Submit, from any process;
// see [Approve] and [ToolResult]. An agent may call others: a [SubAgent] is a tool
// and a session per call, a [Companion] lives on and remembers. They may wait for
// people too, at any depth, and are answered and resumed at the root.
//
// # What is promised
//
// Every step is committed atomically. A process may be killed at any instant:
// another one, or the same after a restart, takes the run over and continues it
// from its last commit. A tool call is run again after a crash only if it is
// marked ReadOnly or Idempotent; otherwise the model is told that its outcome is
// unknown.
//
// Failures are values of [Error] with a code; match the sentinels of this
// package with [errors.Is].
package helix
