// Package runtimetest is the conformance suite of runtimes. Every runtime passes it, on
// every backend.
//
// A [Scenario] tests one behaviour, which its Doc states in one line. The test of a runtime
// runs all of them:
//
//	func TestScenarios(t *testing.T) {
//		runtimetest.Run(t, runtimetest.Config{
//			NewBackend: func(t testing.TB) store.Backend { … },
//			NewRuntime: func(t testing.TB, deployment string, opts helix.RuntimeOptions) helix.Runtime { … },
//		})
//	}
//
// Scenarios use only [helix.Runtime], the backend's interfaces and scripted models, so that
// every runtime and every store runs the same list. After each scenario, the suite checks
// every session that it created: the transcript is valid for a model, folding the stream
// gives the transcript, chunks are numbered densely from 1, and the turns of the runs are
// contiguous.
package runtimetest
