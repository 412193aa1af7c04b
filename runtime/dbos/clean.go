package dbos

import (
	"context"
	"time"

	transact "github.com/dbos-inc/dbos-transact-golang/dbos"
)

// The records of turns that have ended are looked for so often, at most so many at
// a time.
const (
	cleanEvery = time.Hour
	cleanPage  = 500
)

// clean deletes old workflows, until DBOS is shut down.
func (d *driver) clean() {
	if d.cfg.Retention < 0 {
		return
	}
	d.loops.Go(func() {
		ticker := time.NewTicker(min(cleanEvery, d.cfg.Retention))
		defer ticker.Stop()
		for {
			if err := d.cleanOnce(time.Now().Add(-d.cfg.Retention)); err != nil && d.dbos.Err() == nil {
				d.cfg.Logger.WarnContext(context.Background(), "old workflows not deleted", "error", err)
			}
			select {
			case <-ticker.C:
			case <-d.dbos.Done():
				return
			}
		}
	})
}

func (d *driver) cleanOnce(before time.Time) error {
	for d.dbos.Err() == nil {
		rows, err := transact.ListWorkflows(d.dbos, transact.WithFilterName(workflowName), transact.WithFilterCompletedBefore(before),
			transact.WithFilterLimit(cleanPage), transact.WithFilterLoadInput(false), transact.WithFilterLoadOutput(false))
		if err != nil || len(rows) == 0 {
			return err
		}
		ids := make([]string, len(rows))
		for i := range rows {
			ids[i] = rows[i].ID
		}
		if err := transact.DeleteWorkflows(d.dbos, ids); err != nil {
			return err
		}
	}
	return nil
}
