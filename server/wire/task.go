package wire

import "github.com/helixagents/helix/session"

// Tasks is the response to GET /tasks.
type Tasks = session.Page[session.Task]

// TaskName is the body of POST /tasks/retry and POST /tasks/drop, and the response to
// both. A task that belongs to no session has no session id.
type TaskName = session.TaskRef
