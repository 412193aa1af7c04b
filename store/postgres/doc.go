// Package postgres stores sessions, streams and locks in one schema of a
// PostgreSQL database, version 14 or newer. Any number of processes may use the
// same schema.
//
// # Writing
//
// A commit is one statement in one round trip, whose cost does not depend on the
// session's length or the size of its state; so is an append to a stream. Both
// lock the row of their session or stream, decide on its contents, and return the
// contents when they refuse. A commit together with the chunks before it consists
// of both statements, in one transaction and one round trip. Other writes are
// short transactions of two or three round trips.
//
// Leases, deadlines and locks use the server's clock, which all processes share.
//
// # Readers of streams
//
// Readers in the process that writes are notified immediately. Readers in other
// processes are notified by NOTIFY, which a process sends separately from writes
// and at most every few milliseconds, and receives on one connection that it opens
// for its first reader. While that connection is down, and occasionally while it
// is not, readers poll, with one query for all of them.
//
// # Behind PgBouncer
//
// The backend works behind a pooler in session mode as it does without one. In
// transaction mode a client has a server connection only for a transaction, so
// neither prepared statements nor LISTEN work: set [Config.Pooler]. Statements are
// then described once and sent with their text every time, still in one round
// trip, but the server has to plan them; readers of streams in other processes
// poll. The backend depends on no other state of a connection: tables are named
// with their schema, and locks are those of transactions.
//
// With PgBouncer 1.21 or newer and its max_prepared_statements above 0, prepared
// statements work in transaction mode: leave Pooler unset there, and set
// [Config.NoListen].
package postgres
