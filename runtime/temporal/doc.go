// Package temporal runs agents on Temporal: its server remembers how far each turn
// has come, and when a process dies has another one go on.
//
//	c, err := client.Dial(client.Options{HostPort: "127.0.0.1:7233"})
//	rt, err := temporal.New(temporal.Config{
//		RuntimeOptions: helix.RuntimeOptions{Backend: db, Agents: []*helix.Agent{agent}},
//		Client:         c,
//	})
//
// A runtime starts turns and works on them; with NoWorker it only starts them, and
// processes that have a runtime of their own work on them. Every run is a workflow,
// whose id is made of the prefix, the agent, the session and the turn; that of an
// agent which works for another is a child workflow. A turn that waits for people
// has no workflow: the answer is in the store, and resuming it starts the next one.
//
// What a conversation holds stays in the store. Temporal's history has ids and small
// values, however large messages and results are.
//
// The effects of a turn are activities, all on the process that holds the turn in
// memory, which has a task queue of its own for them. If it dies or closes, the
// workflow has another process take the turn over. A call that was begun and is
// neither ReadOnly nor Idempotent is then answered as one whose outcome is unknown,
// and never begun again.
package temporal
