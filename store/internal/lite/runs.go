package lite

import (
	"context"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

// encodeRun encodes a run's record without its output, which is stored separately
// so that it keeps its bytes.
func encodeRun(run *session.Run) (doc, output []byte, err error) {
	record := *run
	if o := record.Outcome; o != nil {
		rest := *o
		output, rest.Output = rest.Output, nil
		record.Outcome = &rest
	}
	if doc, err = session.Encode(&record); err != nil {
		return nil, nil, session.ErrInvalid.WithCause(err, "run %s cannot be encoded", run.ID)
	}
	return doc, output, nil
}

const insertRunRow = `
INSERT INTO runs (key, run_id, request_id, doc, output) VALUES (?, ?, ?, ?, ?)`

func (s *sessions) insertRun(t *Tx, h *header, run *session.Run) error {
	doc, output, err := encodeRun(run)
	if err != nil {
		return err
	}
	_, err = t.Exec(insertRunRow, rowKey(h.number, int64(run.Turn)), run.ID, run.RequestID, doc, output)
	return err
}

const updateRunRow = `
UPDATE runs SET doc = ?, output = ? WHERE key = ?`

func (s *sessions) updateRun(t *Tx, h *header, run *session.Run) error {
	doc, output, err := encodeRun(run)
	if err != nil {
		return err
	}
	_, err = t.Exec(updateRunRow, doc, output, rowKey(h.number, int64(run.Turn)))
	return err
}

// writeRunChange records what a commit changes about its run in the session's own
// row, which is written anyway.
func (s *sessions) writeRunChange(_ *Tx, h *header, p *plan) error {
	if p.Run == nil {
		return nil
	}
	if p.Run.CompletionReason != "" {
		h.runReason = p.Run.CompletionReason
	}
	if p.Run.Usage == (session.Usage{}) {
		return nil
	}
	usage, err := h.usage()
	if err != nil {
		return err
	}
	usage = usage.Add(p.Run.Usage)
	h.used = &usage
	h.runUsage, err = session.Encode(usage)
	return err
}

// usage returns the usage that commits have recorded for the run in flight.
func (h *header) usage() (session.Usage, error) {
	var usage session.Usage
	switch {
	case len(h.runUsage) == 0:
		return usage, nil
	case h.used != nil:
		return *h.used, nil
	}
	err := session.Decode("session "+h.ID+": usage of run "+h.CurrentRunID, h.runUsage, &usage)
	return usage, err
}

// endRun writes an outcome to the run's record and to the session.
func (s *sessions) endRun(t *Tx, h *header, p *plan) error {
	if err := s.loadDoc(t.Conn, h); err != nil {
		return err
	}
	run, err := s.runBy(t.Conn, h, byID, p.runID)
	if err != nil {
		return err
	}
	if run == nil {
		return session.ErrCorrupt.WithMessage("session %s: the record of run %s is missing", h.ID, p.runID)
	}
	outcome := *p.Outcome
	run.Status, run.Outcome, run.EndedAt = outcome.Status, &outcome, p.now
	if err := s.updateRun(t, h, run); err != nil {
		return err
	}
	h.Finish(&outcome)
	h.closePendingAt = p.now
	h.runStatus = outcome.Status
	h.runUsage = nil
	return s.writeDoc(t, h) // the stop request is consumed; its row is kept so that it can be returned again
}

const (
	selectRun  = `SELECT doc, output FROM runs`
	byID       = selectRun + ` WHERE key >> 32 = ? AND run_id = ?`
	byRequest  = selectRun + ` WHERE key >> 32 = ? AND request_id = ? AND request_id <> ''`
	selectRuns = selectRun + ` WHERE key > ? AND key <= ? ORDER BY key LIMIT ?`
)

// runRecord reads a run as it is stored, or returns nil.
func (s *sessions) runRecord(c Conn, h *header, query, key string) (*session.Run, error) {
	r, err := c.One(query, h.number, key)
	if err != nil || r == nil {
		return nil, err
	}
	return decodeRun(h.ID, r)
}

func decodeRun(id string, r *Row) (*session.Run, error) {
	run := &session.Run{}
	if err := session.Decode("session "+id+": run", r.Bytes(), run); err != nil {
		return nil, err
	}
	if output := r.Bytes(); output != nil && run.Outcome != nil {
		run.Outcome.Output = output
	}
	return run, nil
}

// runBy reads a run, including what its commits have added so far, or returns nil.
func (s *sessions) runBy(c Conn, h *header, query, key string) (*session.Run, error) {
	run, err := s.runRecord(c, h, query, key)
	if err != nil || run == nil {
		return nil, err
	}
	return run, h.addProgress(run)
}

// addProgress adds to a run in flight what the session's row has about it.
func (h *header) addProgress(run *session.Run) error {
	if run.ID != h.CurrentRunID || run.Status != session.RunRunning {
		return nil
	}
	usage, err := h.usage()
	if err != nil {
		return err
	}
	run.StepCount, run.CompletionReason, run.Usage = h.runSteps, h.runReason, run.Usage.Add(usage)
	return nil
}

func (s *sessions) readRun(ctx context.Context, id, query, key, name string) (run *session.Run, err error) {
	err = s.read(ctx, id, "read "+name, func(c Conn, h *header) error {
		if run, err = s.runBy(c, h, query, key); err == nil && run == nil {
			err = notFound("session %s: %s", id, name)
		}
		return err
	})
	return run, err
}

// Run implements [session.Runs].
func (s *sessions) Run(ctx context.Context, id, runID string) (*session.Run, error) {
	return s.readRun(ctx, id, byID, runID, "run "+runID)
}

// RunByRequest implements [session.Runs].
func (s *sessions) RunByRequest(ctx context.Context, id, requestID string) (*session.Run, error) {
	return s.readRun(ctx, id, byRequest, requestID, "run of request "+requestID)
}

// CurrentRun implements [session.Runs].
func (s *sessions) CurrentRun(ctx context.Context, id string) (run *session.Run, err error) {
	err = s.read(ctx, id, "read current run", func(c Conn, h *header) error {
		if run, err = s.runBy(c, h, byID, h.CurrentRunID); err == nil && run == nil {
			err = notFound("session %s: a run", id)
		}
		return err
	})
	return run, err
}

// Runs implements [session.Runs]. Turns are contiguous, so the position of a page
// is known without counting.
func (s *sessions) Runs(ctx context.Context, id string, page session.PageRequest) (out session.Page[session.Run], err error) {
	err = s.read(ctx, id, "list runs", func(c Conn, h *header) error {
		var after int
		if out, after, err = stored.DensePage[session.Run](page, h.Turn); err != nil {
			return err
		}
		for r, err := range c.Query(selectRuns, rowKey(h.number, int64(after)), lastKey(h.number), out.Limit) {
			if err != nil {
				return err
			}
			run, err := decodeRun(id, r)
			if err != nil {
				return err
			}
			if err := h.addProgress(run); err != nil {
				return err
			}
			out.Items = append(out.Items, *run)
		}
		stored.FinishDense(&out, h.Turn)
		return nil
	})
	return out, err
}
