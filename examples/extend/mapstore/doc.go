// Package mapstore is a store in the smallest form that passes the published suite:
// Go maps behind one mutex. It imports only public packages, so it shows what a
// store for another database has to do.
//
// # What the contract demands
//
//   - Each write is atomic. Here a write changes a copy of the session's record (a
//     draft) and puts it in the place of the old one at the end. A write that fails
//     drops its draft.
//   - The domain decides, the store stores. Commit.Guard, StartRun.Guard, Edit.Guard,
//     TakeOver.Guard and State.CheckFence say whether a write is allowed; StartRun.Begin,
//     TakeOver.Apply, Edit.Apply and Pending.Accept say what it changes. A store calls
//     them between reading and writing, within one transaction.
//   - What a caller passes in or gets back shares no memory with the store. Here
//     values are copied at that border, see copied.
//   - Messages and embedded JSON come back as the bytes that were stored, because the
//     prompt caches of model providers compare bytes.
//   - Each failure has a class: *session.Error with a code that callers test with
//     errors.Is.
//
// # What it leaves out
//
// A store that is meant to be used has an index where this one visits every session
// (listings, sweeps, trees), keeps data beyond the life of the process, and makes a
// commit whose cost does not depend on the length of the session.
package mapstore
