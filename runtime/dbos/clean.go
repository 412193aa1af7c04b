package dbos

import (
	"time"

	transact "github.com/dbos-inc/dbos-transact-golang/dbos"
)

// Workflows that have ended are looked for so often, at most so many at a time.
const (
	cleanEvery = time.Hour
	cleanPage  = 500
)

// clean deletes old workflows until DBOS is shut down.
func (d *driver) clean() {
	ticker := time.NewTicker(min(cleanEvery, d.cfg.Retention))
	defer ticker.Stop()
	for d.dbos.Err() == nil {
		rows, err := transact.ListWorkflows(d.dbos, transact.WithFilterName(workflowName),
			transact.WithFilterCompletedBefore(time.Now().Add(-d.cfg.Retention)), transact.WithFilterLimit(cleanPage),
			transact.WithFilterLoadInput(false), transact.WithFilterLoadOutput(false))
		ids := make([]string, len(rows))
		for i := range rows {
			ids[i] = rows[i].ID
		}
		if len(ids) > 0 {
			err = transact.DeleteWorkflows(d.dbos, ids)
		}
		if err != nil && d.dbos.Err() == nil {
			d.cfg.Logger.WarnContext(d.dbos, "old workflows not deleted", "error", err)
		}
		if err == nil && len(ids) == cleanPage {
			continue
		}
		select {
		case <-ticker.C:
		case <-d.dbos.Done():
		}
	}
}
