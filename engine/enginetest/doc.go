// Package enginetest proves, on any backend, that a turn survives an interruption at
// any point: it stops turns after every effect and around every store write, discards
// all memory of them, recovers them from the store alone, and compares the outcome
// with that of an uninterrupted turn.
package enginetest
