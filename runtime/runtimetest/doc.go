// Package runtimetest is the suite that every runtime passes, on every backend.
//
// A behaviour of a runtime is a [Scenario]: it gets an executor and a backend and
// says in one line what it holds them to. A runtime runs them all:
//
//	func TestRuntime(t *testing.T) {
//		runtimetest.Run(t, runtimetest.Config{
//			NewBackend:  func(t testing.TB) store.Backend { … },
//			NewExecutor: func(t testing.TB, b store.Backend, opts runtimetest.Options) runtimetest.Executor { … },
//		})
//	}
//
// Scenarios use nothing but [helix.Executor], the backend's interfaces and
// scripted models, so that a later runtime or store runs the very same list.
// After each of them, every session it made is held to what is true of all
// sessions: the transcript is one that a model accepts, folding the stream gives
// it, chunks are numbered densely from 1, and the runs' turns are contiguous.
package runtimetest
