package enginetest

import (
	"context"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// distant is a turn that calls a remote agent, inside which a call waits for an
// approval.
func distant() scenario {
	return scenario{name: "remote", steps: []scripted.Step{
		scripted.Reply(scripted.Say("Far away."), scripted.Calling("pay", subject{"a"}),
			scripted.Calling("subagent__office", map[string]string{"task": "Stamp it."})),
		scripted.Text("That is all."),
	}}
}

// office is a remote agent: it survives every process. It does its work at once, in
// two runs, which it begins once each.
type office struct {
	mu       sync.Mutex
	session  string
	started  map[string]int // by request
	chunks   []stream.Chunk
	answered bool
	status   helix.RemoteStatus
}

var _ helix.Remote = (*office)(nil)

// say adds chunks to the stream.
func (o *office) say(run string, kinds ...stream.Kind) {
	for _, kind := range kinds {
		o.chunks = append(o.chunks, stream.Chunk{
			Kind: kind, AgentID: o.session, AgentType: "far", At: time.Unix(1_700_000_000, 0).UTC(), Step: 1, RunID: run,
			CallID: "call-stamp", Tool: "stamp", MessageID: string(kind),
		})
	}
	o.status.RunID, o.status.Sequence = run, int64(len(o.chunks))
}

// Start implements [helix.Remote].
func (o *office) Start(_ context.Context, start helix.RemoteStart) (*helix.RemoteRun, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.session = start.SessionID
	if o.started[start.RequestID]++; o.started[start.RequestID] == 1 {
		o.say("far-1", stream.RunStarted, stream.InputReceived, stream.StepStarted, stream.ToolStart, stream.ApprovalRequest, stream.Suspended, stream.RunPaused)
		o.status.Status = session.RunSuspendedClientTool
		o.status.Pending = []session.Pending{{
			CallID: "call-stamp", Tool: "stamp", Kind: session.PendingApproval, ApprovalID: "far-approval", Input: []byte(`{"what":"it"}`),
			Fingerprint: session.Fingerprint("stamp", []byte(`{"what":"it"}`)), State: session.PendingWaiting,
		}}
	}
	return &helix.RemoteRun{SessionID: start.SessionID, RunID: "far-1"}, nil
}

// Resume implements [helix.Remote].
func (o *office) Resume(_ context.Context, sessionID, requestID string) (*helix.RemoteRun, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.started[requestID] == 0 && !o.answered {
		return nil, session.ErrAwaitingInput
	}
	if o.started[requestID]++; o.started[requestID] == 1 {
		o.say("far-2", stream.RunResumed, stream.ToolEnd, stream.StepCommitted, stream.StepStarted, stream.TextDelta, stream.RunCompleted)
		o.status.Status, o.status.Text = session.RunCompleted, "It is stamped."
	}
	return &helix.RemoteRun{SessionID: sessionID, RunID: "far-2"}, nil
}

// Read implements [helix.Remote]: every reading is cut off after four items.
func (o *office) Read(_ context.Context, _ string, from int64) iter.Seq2[stream.Item, error] {
	o.mu.Lock()
	chunks := slices.Clone(o.chunks)
	o.mu.Unlock()
	return func(yield func(stream.Item, error) bool) {
		for i, n := int(from), 0; i < len(chunks); i, n = i+1, n+1 {
			if n == 4 || !yield(stream.Item{Frame: stream.FrameChunk, Sequence: int64(i) + 1, Chunk: &chunks[i]}, nil) {
				return
			}
		}
		yield(stream.Item{Frame: stream.FrameEnd, End: &stream.End{Status: stream.EndPaused}}, nil)
	}
}

// Status implements [helix.Remote].
func (o *office) Status(context.Context, string) (*helix.RemoteStatus, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	status := o.status
	if len(o.chunks) == 0 {
		return nil, session.ErrNotFound
	}
	return &status, nil
}

// Submit implements [helix.Remote].
func (o *office) Submit(_ context.Context, _ string, submission helix.Submission) (*helix.Submitted, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.answered || submission.ApprovalID != "far-approval" {
		return &helix.Submitted{Outcome: session.SubmitAlreadyCompleted}, nil
	}
	o.answered, o.status.Pending = true, nil
	return &helix.Submitted{Outcome: session.SubmitAccepted}, nil
}

// Stop implements [helix.Remote].
func (o *office) Stop(context.Context, string, string, session.StopKind, string) error {
	return session.ErrInvalid.WithMessage("nobody stops it")
}

// standsIn reports whether a session stands in for the office's.
func standsIn(id string) bool { return strings.HasPrefix(id, sessionID+"-remote-") }

// checkOffice requires the stream to have every chunk of the office once, in order.
func (w *world) checkOffice(id string, chunks []stream.Chunk) {
	w.t.Helper()
	var got, want []string
	for i := range chunks {
		if chunks[i].AgentID == id {
			got = append(got, chunks[i].RunID+" "+string(chunks[i].Kind))
		}
	}
	for i := range w.office.chunks {
		want = append(want, w.office.chunks[i].RunID+" "+string(w.office.chunks[i].Kind))
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("the stream has of the remote\n%v\nwant\n%v", got, want)
	}
}
