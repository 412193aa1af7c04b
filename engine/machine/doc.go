// Package machine decides what a turn does next. It does no I/O, reads no clock
// and draws no random numbers: a [Machine] asks for effects, takes their results,
// and asks for more, so that a durable engine can replay it.
//
// A turn proceeds in waves. The machine returns effects that may run at the same
// time; the runtime carries them out, wherever and however durably it likes, and
// passes all results back in the wave's order:
//
//	m, wave := machine.New(key, runID, position)
//	for {
//		next, end := m.Next(run(wave))
//		if end != nil {
//			return end
//		}
//		wave = next
//	}
package machine
