// Package runtimetest is the conformance suite of runtimes. Every runtime passes it, on
// every backend.
//
// A [Scenario] tests one behaviour, which its Doc states in one line. The test of a runtime
// runs all of them:
//
//	func TestScenarios(t *testing.T) {
//		runtimetest.Run(t, runtimetest.Config{
//			NewBackend: func(t testing.TB) store.Backend {
//				backend := memory.New(memory.Config{})
//				t.Cleanup(func() { backend.Close() })
//				return backend
//			},
//			NewRuntime: func(t testing.TB, _ string, opts helix.RuntimeOptions) helix.Runtime {
//				rt, err := mine.New(opts)
//				if err != nil {
//					t.Fatal(err)
//				}
//				return rt
//			},
//		})
//	}
//
// Scenarios use only [helix.Runtime], the backend's interfaces and scripted models, so that
// every runtime and every store runs the same list. They spend most of their time waiting:
// a higher -parallel makes the suite faster. One scenario has 300 runs in progress at the
// same time; a runtime that limits how many effects it carries out at once needs a limit
// above that.
//
// After each scenario, the suite checks every session that it created: the transcript is
// valid for a model, folding the stream gives the transcript, chunks are numbered densely
// from 1, and the turns of the runs are contiguous.
package runtimetest
