// Package postgres keeps sessions, streams and locks in one schema of a
// PostgreSQL database, version 14 or newer. Any number of processes may use the
// same one.
//
// # Writing
//
// A commit is one statement in one round trip, whose cost does not depend on the
// session's length or the size of its state; so is an append to a stream. Both
// lock the row of their session or stream, decide on what it holds, and tell what
// that was when they refuse. A commit with the chunks that go before it is both
// statements, in one transaction and one round trip. Other writes are short
// transactions of two or three round trips.
//
// Leases, deadlines and locks run on the server's clock, which all processes
// share.
//
// # Readers of streams
//
// Readers in the process that writes are told at once. Those in other processes
// are told by NOTIFY, sent apart from writes and at most every few milliseconds
// by a process, and received on one connection that a process opens for its first
// reader. While that connection is missing, and now and then when it is not,
// readers poll: one query for all of them.
//
// # Behind PgBouncer
//
// The backend works behind a pooler in session mode as it does without one. In
// transaction mode a client has a connection of the server for a transaction
// only, so neither prepared statements nor LISTEN can be relied on: set
// [Config.Pooler]. Statements are then described once and sent with their text
// every time, still in one round trip, which costs the server the planning;
// readers of streams in other processes poll. The backend depends on no other
// state of a connection: tables are named with their schema, and locks are those
// of transactions.
//
// With PgBouncer 1.21 or newer and its max_prepared_statements above 0, prepared
// statements do work in transaction mode: leave Pooler unset there, and set
// [Config.NoListen].
package postgres
