package postgres

import (
	"github.com/helixagents/helix/store/internal/coldsql"
)

// taskParts adds the tasks that follow a change. A task whose id exists stays as it
// is.
func (s *sessions) taskParts(q *statement, d *draft) {
	if q.shape.tasks == 0 {
		return
	}
	n := len(d.Tasks)
	ids, kinds, agents, runs := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	bodies, due := make([][]byte, n), make([]any, n)
	for i := range d.Tasks {
		t := &d.Tasks[i]
		ids[i], kinds[i], agents[i], runs[i], bodies[i], due[i] = t.ID, t.Kind, t.Agent, t.RunID, t.Body, when(t.DueAt)
	}
	rows := q.rows("t", q.shape.tasks, col("id", "text", ids), col("kind", "text", kinds), col("agent", "text", agents),
		col("run_id", "text", runs), col("body", "bytea", bodies), col("due_at", "timestamptz", due))
	q.add(`,
followed AS (
    INSERT INTO helix.tasks (`, coldsql.TaskColumns, `)
    SELECT `, q.tenant, `, `, q.id, `, t.id, t.kind, t.agent, t.run_id, t.body,
           coalesce(t.due_at, `, q.now, `), `, q.now, `, '', 0, '', NULL
    FROM ok, `, rows, `
    ON CONFLICT DO NOTHING
)`)
}
