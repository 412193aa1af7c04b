package engine

import (
	"context"

	"github.com/helixagents/helix/internal/retry"
	"github.com/helixagents/helix/session"
)

// inputPage is how many messages are read at once to find those that a run began with,
// which are few.
const inputPage = 8

// readInput reads what the run began with, for its extensions. Nothing is read if there are
// none, or if the transcript holds the messages; else only these and a few others, however
// long the session is.
func (t *turn) readInput(ctx context.Context) error {
	if t.tools.extensions == nil {
		return nil
	}
	if _, _, held := t.initialMessages(); held {
		return nil
	}
	first, err := t.firstOfRun(ctx)
	if err != nil {
		return err
	}
	var input []session.Message
	for {
		page, err := t.readMessages(ctx, first+len(input), inputPage)
		if err != nil || len(page) == 0 {
			return err
		}
		for i := range page {
			if endsInput(&page[i], t.run.ID) {
				t.input = input
				return nil
			}
			input = append(input, page[i])
		}
	}
}

// firstOfRun returns how many messages came before the first one of the run. The run's
// messages are the last ones of the session, so the first is found by halving.
func (t *turn) firstOfRun(ctx context.Context) (int, error) {
	low, high := 0, t.transcript.Before()
	for low < high {
		middle := (low + high) / 2
		page, err := t.readMessages(ctx, middle, 1)
		if err != nil {
			return 0, err
		}
		if len(page) > 0 && page[0].RunID != t.run.ID {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low, nil
}

// readMessages reads some messages of the whole history, behind the first before ones.
func (t *turn) readMessages(ctx context.Context, before, limit int) ([]session.Message, error) {
	page, err := retry.Do(ctx, func() (session.Page[session.Message], error) {
		return t.sessions.Messages(ctx, t.key.ID, session.PageRequest{Limit: limit, Offset: before})
	})
	return page.Items, err
}

// resumesStep reports whether a run began in the step in which the run before suspended.
func resumesStep(ctx context.Context, sessions session.Store, id string, run *session.Run) (bool, error) {
	if run.Kind != session.RunResume || run.CheckpointID != "" || run.PreviousRunID == "" {
		return false, nil
	}
	before, err := sessions.Run(ctx, id, run.PreviousRunID)
	if err != nil {
		return false, err
	}
	return before.Status.Suspended(), nil
}
