package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

func usageArray(u session.Usage) []int64 {
	counts := stored.Usage(&u)
	out := make([]int64, len(counts))
	for i, n := range counts {
		out[i] = *n
	}
	return out
}

func usageOf(a []int64) (u session.Usage) {
	for i, n := range stored.Usage(&u) {
		if i < len(a) {
			*n = a[i]
		}
	}
	return u
}

// usageArg returns the parameter for counts that may be unset.
func usageArg(a []int64) []int64 {
	if a == nil {
		return []int64{}
	}
	return a
}

const insertRunRow = `
INSERT INTO helix.runs (session, turn, run_id, request_id, status, step_count, attempts, progress_version, reason, usage, doc)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`

// insertRun queues the record of a run that begins.
func (s *sessions) insertRun(t *tx, h *header, run *session.Run) error {
	doc, err := session.Encode(run)
	if err != nil {
		return session.ErrInvalid.WithCause(err, "run %s cannot be encoded", run.ID)
	}
	t.exec(insertRunRow, h.number, run.Turn, run.ID, run.RequestID, run.Status, run.StepCount,
		run.Attempts, run.ProgressVersion, run.CompletionReason, usageArray(run.Usage), doc)
	return nil
}

// The progress of a run in flight is in its session's row.
const (
	runColumns = `
       r.run_id, r.doc, r.status, r.step_count, r.attempts, r.progress_version, r.reason, r.usage, r.ended_at, r.outcome, r.output,
       s.current_run, s.run_steps, s.run_reason, s.run_usage`

	byID = `
SELECT` + runColumns + `
FROM helix.sessions s LEFT JOIN helix.runs r ON r.session = s.number AND r.run_id = $3
WHERE s.tenant = $1 AND s.id = $2`

	byRequest = `
SELECT` + runColumns + `
FROM helix.sessions s LEFT JOIN helix.runs r ON r.session = s.number AND r.request_id = $3 AND r.request_id <> ''
WHERE s.tenant = $1 AND s.id = $2`

	current = `
SELECT` + runColumns + `
FROM helix.sessions s LEFT JOIN helix.runs r ON r.session = s.number AND r.run_id = s.current_run
WHERE s.tenant = $1 AND s.id = $2`

	selectRuns = `
SELECT` + runColumns + `, s.turn, r.turn
FROM helix.sessions s
LEFT JOIN LATERAL (
    SELECT * FROM helix.runs r
    WHERE r.session = s.number AND r.turn > least($3, s.turn)
    ORDER BY r.turn
    LIMIT $4
) r ON true
WHERE s.tenant = $1 AND s.id = $2
ORDER BY r.turn`
)

// scanRun reads a run; nil if there is none in the row.
func scanRun(id string, rows pgx.Rows, more ...any) (*session.Run, error) {
	var (
		runID, status, reason *string
		doc, outcome, output  []byte
		steps, attempts       *int
		progress              *int64
		usage, runUsage       []int64
		endedAt               time.Time
		currentRun, runReason string
		runSteps              int
	)
	err := rows.Scan(append([]any{
		&runID, &doc, &status, &steps, &attempts, &progress, &reason, &usage,
		instant{&endedAt},
		&outcome, &output,
		&currentRun, &runSteps, &runReason, &runUsage,
	}, more...)...)
	if err != nil || runID == nil {
		return nil, err
	}
	run := &session.Run{}
	if err := session.Decode("session "+id+": run "+*runID, doc, run); err != nil {
		return nil, err
	}
	run.Status, run.StepCount, run.Attempts, run.ProgressVersion = session.RunStatus(*status), *steps, *attempts, *progress
	run.CompletionReason, run.Usage, run.EndedAt = session.CompletionReason(*reason), usageOf(usage), endedAt
	if outcome != nil {
		run.Outcome = &session.Outcome{}
		if err := session.Decode("session "+id+": outcome of run "+*runID, outcome, run.Outcome); err != nil {
			return nil, err
		}
		run.Outcome.Output = output
	}
	if run.ID == currentRun && run.Status == session.RunRunning {
		run.StepCount, run.CompletionReason, run.Usage = runSteps, session.CompletionReason(runReason), usageOf(runUsage)
	}
	return run, nil
}

func (s *sessions) readRun(ctx context.Context, id, name, query string, args ...any) (run *session.Run, err error) {
	err = s.list(ctx, id, "read "+name, func(rows pgx.Rows) error {
		run, err = scanRun(id, rows)
		return err
	}, query, args...)
	if err == nil && run == nil {
		err = notFound("session %s: %s", id, name)
	}
	return run, err
}

// Run implements [session.Runs].
func (s *sessions) Run(ctx context.Context, id, runID string) (*session.Run, error) {
	return s.readRun(ctx, id, "run "+runID, byID, runID)
}

// RunByRequest implements [session.Runs].
func (s *sessions) RunByRequest(ctx context.Context, id, requestID string) (*session.Run, error) {
	return s.readRun(ctx, id, "run of request "+requestID, byRequest, requestID)
}

// CurrentRun implements [session.Runs].
func (s *sessions) CurrentRun(ctx context.Context, id string) (*session.Run, error) {
	return s.readRun(ctx, id, "a run", current)
}

// Runs implements [session.Runs]. Turns are contiguous, so the position of a page
// is known without counting.
func (s *sessions) Runs(ctx context.Context, id string, request session.PageRequest) (page session.Page[session.Run], err error) {
	after, err := firstOf(request)
	if err != nil {
		return page, err
	}
	var total int
	page = session.Page[session.Run]{Items: []session.Run{}, Limit: request.Size()}
	err = s.list(ctx, id, "list runs", func(rows pgx.Rows) error {
		var turn *int
		run, err := scanRun(id, rows, &total, &turn)
		if err == nil && run != nil {
			page.Items = append(page.Items, *run)
		}
		return err
	}, selectRuns, after, page.Limit)
	if err != nil {
		return session.Page[session.Run]{}, err
	}
	finishDense(&page, request, min(after, total), total)
	return page, nil
}

// firstOf returns the number of items before a page of a listing whose items are
// numbered without gaps, as far as it is known without their total.
func firstOf(request session.PageRequest) (int, error) {
	const most = 1<<31 - 1
	return request.Start(most)
}

// finishDense sets where a page of items numbered 1 to total begins, and whether
// there are items after it.
func finishDense[T any](page *session.Page[T], request session.PageRequest, after, total int) {
	page.Offset = after
	if request.Total {
		page.Total = &total
	}
	stored.FinishDense(page, total)
}
