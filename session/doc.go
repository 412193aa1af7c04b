// Package session defines the domain of Helix: what a conversation consists of,
// and what a store must guarantee about it.
//
// # The model
//
// A [State] is one conversation, keyed by tenant and session id. Everything else
// belongs to it: the [Message] transcript, the [Run] records (one per Execute,
// Resume or Retry), the [Checkpoint] chain, the [Call] rows of the step in flight,
// [Pending] entries that wait for people, and [ChildRef] links to sub-agents.
//
// # Writing
//
// A turn writes through two operations only: [Turns.StartRun] opens it and
// [Turns.Commit] advances it. Both apply a [Change] atomically or not at all,
// fenced by version and lease. Custom state is written as [Writes], a list of
// operations on top-level keys, so that the cost of a commit does not grow with
// the session.
//
// # Errors
//
// Every failure is an [*Error] with a [Code]. Sentinels such as [ErrStale] are
// values of it and match by code, so they survive being stored and read back.
//
// The package imports only the standard library and performs no I/O.
package session
