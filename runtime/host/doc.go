// Package host is what all runtimes share: the executor, the turns that this
// process works on and their leases, and the sweeper. A runtime adds a [Driver].
//
// A turn is worked on by one process at a time, which holds it in memory. Where an
// engine decides which process that is, it hands the turn's effects to [Host.Do],
// which takes the turn over if another process held it before.
package host
