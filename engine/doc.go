// Package engine runs turns. It holds what every runtime shares: the [Machine],
// which decides what comes next and touches nothing, and the [Handler], which
// carries out what the machine asks for.
//
// A turn goes in waves. The machine asks for effects that may run at the same
// time; the runtime has the handler carry them out, wherever and however durably
// it likes, and hands all their results back in the wave's order:
//
//	machine, wave := engine.NewMachine(key, runID, position)
//	for {
//		next, end := machine.Next(run(wave))
//		if end != nil {
//			return end
//		}
//		wave = next
//	}
//
// Every effect is idempotent under its [Effect.Key]: carried out again it changes
// nothing and answers the same. A step's reply is committed before any of its
// calls starts, and each call is claimed before it starts and settled when it
// ends, so that whoever takes a turn over knows what may have happened.
//
// A call may have to wait for a person or another agent. [Gather] takes in what
// was answered; if nothing else is left, it suspends the turn with a commit that
// is refused should an answer have come meanwhile. For a [CallChild] the runtime
// first opens the other agent's turn with [Handler.OpenChild] and drives it like
// any other. [Handler.Submit] answers calls without any turn.
package engine
