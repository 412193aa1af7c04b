// Package scripted is a model that plays a written script: for tests, which must
// know what the model will say, and for a demo without an API key.
//
//	m := scripted.New(
//		scripted.Call("search", `{"query":"compass"}`),
//		scripted.Finish(Report{Summary: "…"}),
//	)
//	defer m.Check(t) // fails the test if a step was never played
//
// # Scripts
//
// A script is a list of [Step] values, one per reply. [Text], [Call], [Finish],
// [Fail] and [RateLimited] return the common ones; [Reply] builds any other from
// parts: several calls at once, reasoning, a wait in mid-stream, a failure after
// some pieces. [Func] computes a step from the request, and [Takes] answers
// differently when it is asked again. Several agents share a model through
// [Model.For].
//
// Nothing is checked: broken arguments, unknown tools, empty texts and repeated
// call ids are played as they are written, so that a test can see what becomes
// of them.
//
// # Order
//
// By default steps are played one after the other, which is what a test reads
// like. A test that crashes and resumes uses [Model.ByPosition] instead: the
// number of replies in the request's transcript picks the step, so that a reply
// that was never committed is asked for again, also by a fresh process. With
// [Model.Vary] such a reply differs every time, so that it cannot pass for the
// one that was lost.
package scripted
