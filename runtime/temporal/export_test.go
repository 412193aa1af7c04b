package temporal

import (
	"log/slog"

	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// Replay holds the workflow to a history: it must ask for what it asked for then.
func Replay(file string) error {
	replayer := worker.NewWorkflowReplayer()
	replayer.RegisterWorkflowWithOptions(turnWorkflow, workflow.RegisterOptions{Name: workflowName})
	return replayer.ReplayWorkflowHistoryFromJSONFile(log.NewStructuredLogger(slog.New(slog.DiscardHandler)), file)
}
