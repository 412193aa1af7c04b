package builtin

import (
	"context"
	"time"

	"github.com/helixagents/helix"
)

// MaxWait is the maximum duration of a call of [Wait].
const MaxWait = 60 * time.Second

type pause struct {
	Task    string  `json:"task,omitempty" jsonschema:"what the time is for"`
	Seconds float64 `json:"seconds" jsonschema:"how long, at most 60"`
}

// passed is the result of a wait. Its times show that a finished wait is not repeated after
// a crash.
type passed struct {
	Task  string `json:"task,omitempty"`
	From  string `json:"from"`
	Until string `json:"until"`
}

// Wait returns a tool that waits for some seconds. It simulates long work, in demos and
// while an agent is being built.
func Wait() helix.Tool {
	return helix.Tool{
		Name: "wait", Description: "Let some seconds pass, for a task that takes its time.", Idempotent: true,
		Execute: helix.Func(func(ctx context.Context, _ *helix.Call, in pause) (passed, error) {
			if in.Seconds < 0 || in.Seconds > MaxWait.Seconds() {
				return passed{}, helix.ErrInvalid.WithMessage("seconds is %g, but must be between 0 and %g", in.Seconds, MaxWait.Seconds())
			}
			const clock = "15:04:05"
			out := passed{Task: in.Task, From: time.Now().Format(clock)}
			timer := time.NewTimer(time.Duration(in.Seconds * float64(time.Second)))
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done():
				return passed{}, context.Cause(ctx)
			}
			out.Until = time.Now().Format(clock)
			return out, nil
		}),
	}
}
