// Package helixtest runs agents in tests: on a memory backend, with a scripted
// model in the place of the agent's own.
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
// [Run] runs one turn to its end and gives everything there is to check: how it
// ended, the transcript, the tool calls, the state and the stream. The script
// must fit: a step that was never played fails the test, and so does a question
// that the script has no step for.
//
// A run that fails is a result, not a failed test, so that a test can expect
// it; check [helix.Result.Status], or use [Output] and [State], which insist.
//
// A turn that waits for people gives its result then, with what waits in
// [helix.Result.Pending]. [Resume] answers and continues it with the rest of the
// script:
//
//	res := helixtest.Run(t, clerk, helixtest.With(m), "Refund order 7.")
//	res = helixtest.Resume(t, res, helixtest.Approve("refund"))
//
// A conversation of several turns is several calls of Run, each with the script
// of its turn; see [Continue].
package helixtest
