// Package stream delivers the progress of runs to readers while the runs work.
//
// A stream belongs to a root session and outlives its runs. It is a dense sequence
// of [Chunk] values, numbered from 1 by the store. A reader sees only durable
// chunks, so it can disconnect at any moment and continue after the last sequence
// it saw, without losing or repeating a chunk.
//
// Writers are fenced: a [Producer] states the epoch of its session's lease. A
// stream refuses an epoch lower than the last one, ignores a repeated chunk and
// detects a missing one. Chunks of a discarded attempt stay in the stream and are
// marked by a [StepDiscarded] chunk; [Fold] turns chunks into the committed
// messages.
package stream
