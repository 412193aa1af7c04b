package session

import (
	"encoding/json"
	"strconv"
	"time"
)

// RunKind says which call started a run.
type RunKind string

// The ways to start a run.
const (
	RunExecute RunKind = "execute"
	RunResume  RunKind = "resume"
	RunRetry   RunKind = "retry"
)

// Run is the record of one execution within a session. Every Execute, Resume and
// Retry writes exactly one.
type Run struct {
	ID        string    `json:"runId"`
	SessionID string    `json:"sessionId,omitempty"`
	Turn      int       `json:"turn"`
	Kind      RunKind   `json:"kind"`
	Status    RunStatus `json:"status"`
	Agent     string    `json:"agentType,omitempty"`
	// Runtime names the runtime of the run; recovery uses the same runtime.
	Runtime string `json:"runtime,omitempty"`
	// Requires names the abilities that a process must have to work on the run, which are
	// those of all agents that the run can reach. A process that lacks one leaves the
	// session alone; see [CheckFeatures].
	Requires []string `json:"requires,omitempty"`
	// RequestID makes Execute idempotent: at most one run per session has a given
	// request id.
	RequestID     string `json:"requestId,omitempty"`
	PreviousRunID string `json:"previousRunId,omitempty"`
	// CheckpointID is the checkpoint that the session was rewound to for the run.
	CheckpointID string `json:"checkpointId,omitempty"`
	// ResumedFrom is the checkpoint that a resume or retry continues from:
	// CheckpointID, or the latest checkpoint if the session was not rewound.
	ResumedFrom string `json:"resumedFromCheckpointId,omitempty"`
	// StartSequence is the stream's last sequence when the run began: the run's own
	// chunks follow it.
	StartSequence int64 `json:"startSequence"`
	StepCount     int   `json:"stepCount"`
	// Attempts counts how often the run was lost without progress since; see
	// [TakenOver.Attempts].
	Attempts int `json:"attempts,omitempty"`
	// ProgressVersion is the session's version at the last takeover; 0 before the first.
	ProgressVersion  int64            `json:"progressVersion,omitempty"`
	CompletionReason CompletionReason `json:"completionReason,omitempty"`
	Outcome          *Outcome         `json:"outcome,omitempty"`
	Usage            Usage            `json:"usage,omitzero"`
	StartedAt        time.Time        `json:"startedAt,omitzero"`
	EndedAt          time.Time        `json:"endedAt,omitzero"`
	Extra            Extra            `json:"-"`
}

// CompletionReason says why a run completed.
type CompletionReason string

// The reasons recorded on a run.
const (
	ReasonReply    CompletionReason = "reply"     // the model answered without calls
	ReasonFinish   CompletionReason = "finish"    // it called __finish__ or a FinishWith tool
	ReasonStopWhen CompletionReason = "stop_when" // the agent's StopWhen returned true
	ReasonMaxSteps CompletionReason = "max_steps" // the step limit, with or without output
)

// Outcome describes how a run ended, as its last commit recorded it.
type Outcome struct {
	Status RunStatus       `json:"status"`
	Output json.RawMessage `json:"output,omitempty"`
	Error  *Error          `json:"error,omitempty"`
	// Reply is the text of the last assistant message.
	Reply string `json:"reply,omitempty"`
	// FinishReason is why the last reply ended, if the model did not end it on its
	// own: "length" or "content-filter".
	FinishReason  string            `json:"finishReason,omitempty"`
	FailureReason string            `json:"failureReason,omitempty"`
	Interrupt     *InterruptContext `json:"interruptContext,omitempty"`
	SuspendedStep string            `json:"suspendedStepId,omitempty"`
	// Pending lists the waiting calls of every depth below the session.
	Pending  []Pending  `json:"pending,omitempty"`
	Children []ChildRef `json:"children,omitempty"`
}

// Usage counts what a run consumed.
type Usage struct {
	InputTokens      int64 `json:"inputTokens,omitempty"`
	OutputTokens     int64 `json:"outputTokens,omitempty"`
	ReasoningTokens  int64 `json:"reasoningTokens,omitempty"`
	CacheReadTokens  int64 `json:"cacheReadTokens,omitempty"`
	CacheWriteTokens int64 `json:"cacheWriteTokens,omitempty"`
	ModelCalls       int64 `json:"modelCalls,omitempty"`
	ToolCalls        int64 `json:"toolCalls,omitempty"`
}

// AppendJSON appends the usage as JSON. It is written by hand because every commit
// of a step stores it.
func (u Usage) AppendJSON(b []byte) ([]byte, error) {
	b = append(b, '{')
	start := len(b)
	for _, count := range [...]struct {
		name string
		n    int64
	}{
		{"inputTokens", u.InputTokens},
		{"outputTokens", u.OutputTokens},
		{"reasoningTokens", u.ReasoningTokens},
		{"cacheReadTokens", u.CacheReadTokens},
		{"cacheWriteTokens", u.CacheWriteTokens},
		{"modelCalls", u.ModelCalls},
		{"toolCalls", u.ToolCalls},
	} {
		if count.n == 0 {
			continue
		}
		if len(b) > start {
			b = append(b, ',')
		}
		b = append(AppendString(b, count.name), ':')
		b = strconv.AppendInt(b, count.n, 10)
	}
	return append(b, '}'), nil
}

// Add returns the sum of two usages.
func (u Usage) Add(v Usage) Usage {
	u.InputTokens += v.InputTokens
	u.OutputTokens += v.OutputTokens
	u.ReasoningTokens += v.ReasoningTokens
	u.CacheReadTokens += v.CacheReadTokens
	u.CacheWriteTokens += v.CacheWriteTokens
	u.ModelCalls += v.ModelCalls
	u.ToolCalls += v.ToolCalls
	return u
}

// TotalTokens returns the sum of input and output tokens.
func (u Usage) TotalTokens() int64 { return u.InputTokens + u.OutputTokens }

type runJSON Run

type versionedRun struct {
	V int `json:"v"`
	runJSON
}

// MarshalJSON implements [json.Marshaler].
func (r Run) MarshalJSON() ([]byte, error) {
	return encodeWithExtra(&versionedRun{FormatVersion, runJSON(r)}, r.Extra)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (r *Run) UnmarshalJSON(data []byte) error {
	var doc versionedRun
	extra, err := decodeWithExtra(data, &doc)
	if err != nil {
		return err
	}
	*r = Run(doc.runJSON)
	r.Extra = extra
	return checkFormat("run "+r.ID, doc.V)
}
