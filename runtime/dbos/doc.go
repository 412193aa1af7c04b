// Package dbos runs agents as durable workflows of DBOS, on Postgres or SQLite.
//
// Every turn is a workflow, and every effect of it is one step. The turn of a sub-agent is
// a workflow of its own. The content of a conversation stays in the backend: DBOS records
// ids and small values only.
//
//	rt, err := dbos.New(dbos.Config{
//		RuntimeOptions: helix.RuntimeOptions{Backend: backend, Agents: []*helix.Agent{agent}},
//		DatabaseURL:    "postgres://…",
//		ExecutorID:     hostname, // of a process that always restarts under the same name
//	})
//	…
//	defer rt.Shutdown(ctx)
//	run, err := rt.Execute(ctx, agent, helix.Input{Message: helix.UserText("Hello!")})
//
// # Where a turn runs
//
// One process at a time works on a turn. It holds the turn in memory and renews its lease.
// It is the process that was asked to run the agent or, with a [Queue], the one that
// dequeues the turn.
//
// When a process dies, another process continues its turns, and finished effects do not
// run again. A process that starts with the same ExecutorID finds the pending workflows,
// has DBOS run them, and takes each turn over at the first effect that is not recorded.
// Any other process that knows the agent takes the turn over when its lease has expired,
// and starts its workflow again under the same id. If the first process was only slow, its
// writes are refused and it stops working on the turn.
//
// # Workflows
//
// The workflow of a session's first turn has the id <prefix>__<agent>__<session>;
// later ones end in __turn-N, or in __resume-N if the turn resumed a suspended one.
// Attributes name the run, the session, the tenant and the agent. Stop a turn with
// Interrupt or Abort: a workflow that is cancelled or deleted with the tools of DBOS is
// started again.
package dbos
