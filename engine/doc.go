// Package engine runs turns. It holds what every runtime shares: the [Handler],
// which carries out the effects that a turn's [machine.Machine] asks for, and the
// [Handle] through which an application follows a run.
//
// A runtime opens a turn with [Handler.Open], [Handler.Recover] or
// [Handler.OpenChild], makes a machine for it with [machine.New], and passes each
// effect to [Handler.Handle] until the machine reports the end.
//
// Every effect is idempotent under its [machine.Effect.Key]: carried out again it
// changes nothing and returns the same result. A step's reply is committed before
// any of its calls starts, and each call is claimed before it starts and settled
// when it ends, so that the process that recovers a turn knows what may have
// happened.
//
// A call may have to wait for a person or another agent. [machine.Gather] settles
// the calls that have been answered. If nothing can be carried out, it suspends
// the turn with a commit that the store refuses when an answer has arrived
// meanwhile. For a [machine.CallChild] the runtime first opens the other agent's
// turn with [Handler.OpenChild] and drives it like any other. [Handler.Submit]
// answers calls without a turn.
package engine
