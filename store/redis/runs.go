package redis

import (
	"context"
	"strings"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

// encodeRun encodes the record of a run that starts.
func encodeRun(run *session.Run) ([]byte, error) {
	doc, err := session.Encode(run)
	if err != nil {
		return nil, session.ErrInvalid.WithCause(err, "run %s cannot be encoded", run.ID)
	}
	return doc, nil
}

// endRun writes an outcome to the run's record and to the session, together with
// what commits have added to the record.
func (w *batch) endRun(id, runID string, o *session.Outcome) error {
	var finished session.State
	finished.ID = id
	finished.Finish(o)
	end, err := stored.EncodeEnding(&finished)
	if err != nil {
		return err
	}
	outcome, output, err := stored.EncodeOutcome(runID, o)
	if err != nil {
		return err
	}
	sets := o.Status == session.RunCompleted || o.Status == session.RunFailed
	w.do("outcome", keyDoc+keyRuns, string(o.Status), end, o.SuspendedStep, flag(sets), output, outcome)
	return nil
}

// decodeRun builds a run's record; nil if there is none.
func (h *header) decodeRun(part any) (*session.Run, error) {
	parts := list(part)
	if len(parts) < 5 {
		return nil, nil
	}
	turn := text(parts[0])
	run := &session.Run{}
	if err := session.Decode("session "+h.ID+": run of turn "+turn, []byte(text(parts[1])), run); err != nil {
		return nil, err
	}
	outcome := text(parts[2])
	if outcome == "" {
		if run.ID == h.CurrentRunID {
			run.StepCount, run.CompletionReason = h.runSteps, h.runReason
			run.Usage = run.Usage.Add(h.runUsage)
			run.Attempts, run.ProgressVersion = h.attempts, h.progress
		}
		return run, nil
	}
	run.Outcome = &session.Outcome{}
	if err := session.Decode("session "+h.ID+": outcome of turn "+turn, []byte(outcome), run.Outcome); err != nil {
		return nil, err
	}
	run.Status, run.Outcome.Output = run.Outcome.Status, bytesOf(text(parts[3]))
	progress := strings.Split(text(parts[4]), "\x00")
	if len(progress) != 6 {
		return nil, session.ErrCorrupt.WithMessage("session %s: the progress of turn %s cannot be decoded", h.ID, turn)
	}
	run.StepCount, run.CompletionReason = int(number(progress[0])), session.CompletionReason(progress[1])
	run.Usage = run.Usage.Add(usageOf(progress[2]))
	run.Attempts, run.ProgressVersion, run.EndedAt = int(number(progress[3])), number(progress[4]), moment(progress[5])
	return run, nil
}

func (s *sessions) readRun(ctx context.Context, id, by, key, name string) (*session.Run, error) {
	q := query()
	q.do("run", keyRuns, by, key)
	v, err := s.read(ctx, id, "read "+name, q)
	if err != nil {
		return nil, err
	}
	run, err := v.header.decodeRun(v.parts[0])
	if err == nil && run == nil {
		err = notFound("session %s: %s", id, name)
	}
	return run, err
}

// Run implements [session.Runs].
func (s *sessions) Run(ctx context.Context, id, runID string) (*session.Run, error) {
	return s.readRun(ctx, id, "i", runID, "run "+runID)
}

// RunByRequest implements [session.Runs].
func (s *sessions) RunByRequest(ctx context.Context, id, requestID string) (*session.Run, error) {
	return s.readRun(ctx, id, "q", requestID, "run of request "+requestID)
}

// CurrentRun implements [session.Runs].
func (s *sessions) CurrentRun(ctx context.Context, id string) (*session.Run, error) {
	return s.readRun(ctx, id, "", "", "current run")
}

// Runs implements [session.Runs]. Turns are contiguous, so the position of a page
// is known without counting.
func (s *sessions) Runs(ctx context.Context, id string, request session.PageRequest) (page session.Page[session.Run], err error) {
	v, err := s.read(ctx, id, "list runs", query())
	if err != nil {
		return page, err
	}
	total := v.header.Turn
	page, after, err := stored.DensePage[session.Run](request, total)
	if err != nil {
		return page, err
	}
	last := min(after+page.Limit, total)
	if after >= last {
		return page, nil
	}
	q := query()
	q.do("runs", keyRuns, after+1, last)
	if v, err = s.read(ctx, id, "list runs", q); err != nil {
		return page, err
	}
	for _, part := range list(v.parts[0]) {
		run, err := v.header.decodeRun(part)
		if err != nil {
			return session.Page[session.Run]{}, err
		}
		page.Items = append(page.Items, *run)
	}
	stored.FinishDense(&page, total)
	return page, nil
}
