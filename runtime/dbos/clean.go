package dbos

import (
	"errors"
	"time"

	transact "github.com/dbos-inc/dbos-transact-golang/dbos"

	"github.com/helixagents/helix/session"
)

// Every cleanEvery, old workflows are deleted, in pages of cleanPage.
const (
	cleanEvery = time.Hour
	cleanPage  = 500
)

// clean deletes workflows that are no longer needed, until DBOS is shut down.
func (d *driver) clean() {
	every := min(cleanEvery, d.cfg.Retention)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for d.dbos.Err() == nil {
		err := d.deleteAll(func(*transact.WorkflowStatus) bool { return true },
			transact.WithFilterCompletedBefore(time.Now().Add(-d.cfg.Retention)))
		// A process may have died between the end of a turn and the end of its workflow, or
		// the session was deleted. No process would continue such a workflow, and it would
		// count against the queue's limits forever.
		err = errors.Join(err, d.deleteAll(d.ended,
			transact.WithFilterStatus(transact.WorkflowStatusPending), transact.WithFilterCreatedBefore(time.Now().Add(-every))))
		if err != nil && d.dbos.Err() == nil {
			d.cfg.Logger.WarnContext(d.dbos, "workflows.not_deleted", "error", err)
		}
		select {
		case <-ticker.C:
		case <-d.dbos.Done():
		}
	}
}

// deleteAll deletes the workflows of this deployment that the filter matches and for which
// useless reports true.
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

// ended reports whether the run of a workflow has ended or was deleted.
func (d *driver) ended(row *transact.WorkflowStatus) bool {
	attribute := func(name string) string {
		value, _ := row.Attributes[name].(string)
		return value
	}
	sessions := d.cfg.Backend.Sessions().Tenant(attribute("tenant"))
	run, err := sessions.Run(d.dbos, attribute("session"), attribute(runAttribute))
	return errors.Is(err, session.ErrNotFound) || (err == nil && run.Status != session.RunRunning)
}
