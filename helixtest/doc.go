// Package helixtest runs agents in tests: on a memory backend, with a scripted
// model instead of the agent's.
//
//	func TestResearcher(t *testing.T) {
//		m := scripted.New(
//			scripted.Call("search", `{"query":"compass"}`),
//			scripted.Finish(Report{Summary: "…"}),
//		)
//		res := helixtest.Run(t, researcher, helixtest.With(m), "Who invented the compass?")
//		report := helixtest.Output[Report](t, res)
//		…
//	}
//
// [Run] runs one turn to its end and returns everything to check: how it ended, the
// transcript, the tool calls, the state and the stream. The script must fit: a step
// that was never played fails the test, and so does a model call for which the
// script has no step.
//
// A run that fails is a result, not a failed test, so that a test can expect
// it; check [helix.Result.Status], or use [Output] and [State], which fail the test.
//
// If a turn waits for people, Run returns, with the waiting calls in
// [helix.Result.Pending]. [Resume] answers and continues it with the rest of the
// script:
//
//	res := helixtest.Run(t, clerk, helixtest.With(m), "Refund order 7.")
//	res = helixtest.Resume(t, res, helixtest.Approve("refund"))
//
// A conversation of several turns is several calls of Run, each with the script
// of its turn; see [Continue].
package helixtest
