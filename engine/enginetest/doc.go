// Package enginetest proves, on any backend, that a turn survives being cut off
// anywhere: it stops turns after every effect and around every store write,
// throws away all memory of them, takes them over from the store alone, and
// compares what comes out with what an uninterrupted turn leaves.
package enginetest
