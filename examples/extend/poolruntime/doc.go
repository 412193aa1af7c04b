// Package poolruntime is a runtime in the smallest form that passes the published
// suite: a fixed number of workers that take effects from one queue. It imports only
// public packages, so it shows what a runtime on another engine has to do.
//
// # What a runtime does
//
// Package runtime/host has what all runtimes share: the executor, leases, recovery and
// the sweep. A runtime adds a host.Driver, which says where the effects of a turn run.
// Package engine/machine says which effects come next, and the host's handler carries
// one out. So a driver is a loop:
//
//   - machine.New returns the first wave of effects.
//   - The driver carries out all effects of a wave, in any order or at the same time.
//   - Machine.Next gets the results in the order of the wave and returns the next wave,
//     or the end.
//
// # What the contract demands
//
//   - A driver decides nothing. A failure of the model or of a tool is a value in a
//     result; a Go error means that the effect could not be carried out, and that the
//     turn is released for another process to recover.
//   - A call of another agent has two parts. First that agent's turn is driven to its
//     end, then the call itself is carried out. Whatever waits for the first part must
//     not hold what the agent's turn needs, here a worker.
//   - Drive returns before the turn has ended, and each turn is finished exactly once.
package poolruntime
