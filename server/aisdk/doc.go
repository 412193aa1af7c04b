// Package aisdk translates between Helix and Vercel's AI SDK: a session's chunks
// become the UI message stream that useChat reads, its transcript becomes UI
// messages, and what useChat sends becomes input and answers. It does no I/O.
//
// A UI message from the assistant is everything between two messages of the user:
// all steps of the turn and of the runs that resumed it. Its id is derived from
// the message of the user, so it is the same live, after a reload and in history,
// whichever process runs the turn and however often a step was tried.
//
// There is one way from Helix to the parts of a UI message: chunks. An [Encoder]
// makes them, live from what a run streams and, for what is committed, from the
// transcript; [Apply] makes parts of them as the client does. So a reload shows
// what was streamed.
//
// # Tools
//
// Every call is a dynamic tool. A call that waits for a person stops at
// input-available, if it is for the client, or at approval-requested. Calls of
// sub-agents that wait are parts of the same message, with the id under which
// they are answered, so that addToolOutput and addToolApprovalResponse work on
// them. While the run is suspended the call of the sub-agent itself has the output
// {"status":"waiting"}: the client's helpers, which send the answers once every
// call of the step is done, would wait for it otherwise. A message that is
// complete ends in a step of its own if its last one had calls, so that the same
// helpers do not send it again.
//
// A client that does not say its version is sent what every version reads. An approval
// is then a data part, and the call's output {"approvalId","approved","reason"}, given
// with addToolOutput, is the decision.
//
// # Data parts
//
//	data-subagent       what an agent that was called does; its id is that of its session
//	data-subagent-text  (transient) a piece of its text
//	data-output         the structured output
//	data-state-patch    (transient) changes of custom state, RFC 6902
//	data-approval       an approval, for clients that do not say that they are of version 6 or 7
//	data-dropped        (transient) parts that were taken back: a model call was tried again
//	data-<name>         an event of the application
//
// What the transcript does not hold, the application's events and what sub-agents
// did, is gone after a reload once its step is committed.
package aisdk
