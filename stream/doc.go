// Package stream carries what a run does, as it does it, to whoever watches.
//
// A stream belongs to a root session and outlives its runs. It is a dense
// sequence of [Chunk] values, numbered from 1 by the store; a reader sees only
// chunks that are durable, so it can drop at any moment and pick up again from
// the last sequence it saw without losing or repeating one.
//
// Writers are fenced: a [Producer] states the epoch of its session's lease, a
// lower epoch than the stream has seen is refused, a repeated chunk is ignored and
// a missing one noticed. What a discarded attempt had written stays in the stream, marked by a
// [StepDiscarded] chunk; [Fold] turns chunks into the messages that were
// committed.
package stream
