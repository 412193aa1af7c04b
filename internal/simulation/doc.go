// Package simulation plays a fleet of processes in fake time, with faults, and checks what it leaves.
//
// Several runtimes share one store in a bubble of [testing/synctest]. A seed decides what people say, answer and stop,
// what models and tools do and how long they take, and which faults there are: processes that are killed, stopped for a
// while or replaced, a store that is away, slow or loses its replies, and a clock that is set. When the faults are over,
// everything must come to its end, and what is in the store must agree with what people were told and with what a service
// outside has counted.
//
// A seed repeats the faults, but not every interleaving of goroutines, which is the scheduler's: a failure that a seed
// has shown once may take some repetitions to come back.
//
// The tests simulate other fleets for each commit. To repeat one, or to simulate for longer:
//
//	make sim SEED=7 MINUTES=60
//
// If it fails and the environment variable HELIX_SIM_LOG names a file, what happened is written there.
package simulation
