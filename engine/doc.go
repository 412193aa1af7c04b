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
package engine
