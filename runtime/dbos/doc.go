// Package dbos runs agents as durable workflows of DBOS, on Postgres or SQLite.
//
// Every turn is a workflow, every effect of it one step; agents that work for
// others are workflows of their own. What is said stays in the backend: DBOS holds
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
// A turn is worked on by one process at a time, which holds it in memory and renews
// its lease: the one that was asked for it, or, with a [Queue], the one that takes it
// out of the queue.
//
// When a process dies, its turns are gone on with, and each finished effect stands. A
// process that is started under the same ExecutorID finds their workflows pending,
// has DBOS run them, and takes the turns over as it comes to the first effect that is
// not recorded. Any other process that knows the agent sees the lease expire, takes
// the turn over and starts its workflow anew, under the same id. A process that was
// only slow finds its writes refused and leaves the turn alone.
//
// # Workflows
//
// The workflow of a session's first turn has the id <prefix>__<agent>__<session>;
// later ones end in __turn-N, or __resume-N if the turn went on with what had
// suspended. Attributes name the run, the session, the tenant and the agent. A turn
// is stopped with Interrupt or Abort; a workflow that is cancelled or deleted by
// means of DBOS is started again.
package dbos
