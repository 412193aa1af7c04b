package lite

import "github.com/helixagents/helix/store/internal/coldsql"

// insertTasks adds the tasks of a change.
func (s *sessions) insertTasks(t *Tx, h *header, p *plan) error {
	for i := range p.Tasks {
		task := p.Tasks[i].AsNew(s.tenant, h.ID, p.now)
		if _, err := t.Exec(coldsql.InsertTask.SQLite, coldsql.TaskValues(&task)...); err != nil {
			return err
		}
	}
	return nil
}
