// Package temporal runs agents on Temporal: its server records how far each turn has
// come and, when a process dies, has another one continue the turn.
//
//	c, err := client.Dial(client.Options{HostPort: "127.0.0.1:7233"})
//	rt, err := temporal.New(temporal.Config{
//		RuntimeOptions: helix.RuntimeOptions{Backend: db, Agents: []*helix.Agent{agent}},
//		Client:         c,
//	})
//
// A runtime starts turns and works on them; with NoWorker it only starts them, and other
// processes work on them. Every run is a workflow. Its id is made of the prefix, the
// agent, the session and the turn. The run of a sub-agent is a child workflow. A session
// that waits for people has no workflow: the answer is in the store, and resuming the
// session starts the next workflow.
//
// The content of a conversation stays in the store. Temporal's history has ids and small
// values, however large messages and results are.
//
// The effects of a turn are activities. All of them run in the process that holds the
// turn in memory, which has a task queue of its own. If that process dies or shuts down,
// the workflow has another process take the turn over. A call that was started and is
// neither ReadOnly nor Idempotent does not run again: the model is told that its outcome
// is unknown.
package temporal
