// Package aisdk translates between Helix and Vercel's AI SDK: a session's chunks
// become the UI message stream that useChat reads, its transcript becomes UI
// messages, and what useChat sends becomes input and answers. It does no I/O.
//
// A UI message from the assistant is everything between two messages of the user:
// all steps of the turn and of the runs that resumed it. Its id is derived from
// the message of the user, so it is the same live, after a reload and in history,
// whichever process runs the turn and however often a step was tried.
//
// Parts of a UI message are always built from chunks. An [Encoder] makes the chunks,
// live from what a run streams and, for what is committed, from the transcript;
// [Message.Apply] makes parts of them as the client does. So a reload shows what was
// streamed.
//
// # Tools
//
// Every call is a dynamic tool. A call that waits for a person stops at
// input-available, if it is for the client, or at approval-requested. Calls of
// sub-agents that wait are parts of the same message, with the id under which
// they are answered, so that addToolOutput and addToolApprovalResponse work on
// them. While the run is suspended the call of the sub-agent itself has the output
// {"status":"waiting"}: the client's helpers, which send the answers once every
// call of the step is done, would wait for it otherwise. If the last
// step of a complete message had calls, an empty step follows, so that the same
// helpers do not send the message again.
//
// A client that names no version gets a format that all versions can read. An approval
// is then a data part, and the call's output {"approvalId","approved","reason"}, given
// with addToolOutput, is the decision.
//
// The output of a call whose result is too large for the conversation is its beginning and
// its end; data-evicted says where the whole is.
//
// # Data parts
//
//	data-subagent       progress of a called agent; the part's id is the agent's session id
//	data-subagent-text  (transient) a piece of its text
//	data-output         the structured output
//	data-state-patch    (transient) changes of custom state, RFC 6902
//	data-evicted        where a large result is: a [Whole]; the part's id is that of the call
//	data-approval       an approval, for clients that do not name version 6 or 7
//	data-dropped        (transient) parts to remove, because a model call was retried
//	data-<name>         an event of the application
//
// After its step is committed, a reload no longer shows what the transcript does not
// hold: the application's events and the progress of sub-agents.
package aisdk
