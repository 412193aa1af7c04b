package dbos

import (
	"errors"
	"time"

	transact "github.com/dbos-inc/dbos-transact-golang/dbos"

	"github.com/helixagents/helix/session"
)

// Workflows that are of no use any more are looked for so often, at most so many at a
// time.
const (
	cleanEvery = time.Hour
	cleanPage  = 500
)

// clean deletes such workflows until DBOS is shut down.
func (d *driver) clean() {
	every := min(cleanEvery, d.cfg.Retention)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for d.dbos.Err() == nil {
		err := d.deleteAll(func(*transact.WorkflowStatus) bool { return true },
			transact.WithFilterCompletedBefore(time.Now().Add(-d.cfg.Retention)))
		// A process may have died after the end of a turn and before DBOS was told, or its
		// session was deleted: nobody goes on with it, and it would count for the queue's
		// limits for ever.
		err = errors.Join(err, d.deleteAll(d.forsaken,
			transact.WithFilterStatus(transact.WorkflowStatusPending), transact.WithFilterCreatedBefore(time.Now().Add(-every))))
		if err != nil && d.dbos.Err() == nil {
			d.cfg.Logger.WarnContext(d.dbos, "old workflows not deleted", "error", err)
		}
		select {
		case <-ticker.C:
		case <-d.dbos.Done():
		}
	}
}

// deleteAll deletes those of this deployment's workflows that a filter finds and that
// are of no use.
func (d *driver) deleteAll(useless func(*transact.WorkflowStatus) bool, filter ...transact.ListWorkflowsOption) error {
	for kept := 0; ; {
		rows, err := transact.ListWorkflows(d.dbos, append(filter, transact.WithFilterName(workflowName),
			transact.WithFilterApplicationName(d.cfg.Prefix), transact.WithFilterOffset(kept), transact.WithFilterLimit(cleanPage),
			transact.WithFilterLoadInput(false), transact.WithFilterLoadOutput(false))...)
		if err != nil {
			return err
		}
		var ids []string
		for i := range rows {
			if useless(&rows[i]) {
				ids = append(ids, rows[i].ID)
			}
		}
		if len(ids) > 0 {
			err = transact.DeleteWorkflows(d.dbos, ids)
		}
		if kept += len(rows) - len(ids); err != nil || len(rows) < cleanPage {
			return err
		}
	}
}

// forsaken reports whether the run of a workflow has ended, or is gone.
func (d *driver) forsaken(row *transact.WorkflowStatus) bool {
	attribute := func(name string) string {
		value, _ := row.Attributes[name].(string)
		return value
	}
	sessions := d.cfg.Backend.Sessions().Tenant(attribute("tenant"))
	run, err := sessions.Run(d.dbos, attribute("session"), attribute(runAttribute))
	return errors.Is(err, session.ErrNotFound) || (err == nil && run.Status != session.RunRunning)
}
