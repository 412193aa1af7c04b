-- Work that follows commits. A task that somebody holds is due when the hold expires, so that one column says when it can be
-- claimed; a task that was given up is not in the indexes of due ones.
CREATE TABLE tasks (
    tenant      TEXT    NOT NULL,
    session_id  TEXT    NOT NULL, -- '' for a task without one
    id          TEXT    NOT NULL,
    kind        TEXT    NOT NULL,
    agent       TEXT    NOT NULL,
    run_id      TEXT    NOT NULL,
    body        BLOB,
    due_at      INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    owner       TEXT    NOT NULL,
    attempts    INTEGER NOT NULL,
    last_error  TEXT    NOT NULL,
    given_up_at INTEGER,
    PRIMARY KEY (tenant, session_id, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX tasks_due      ON tasks (due_at, tenant, session_id, id) WHERE given_up_at IS NULL;
CREATE INDEX tasks_by_kind  ON tasks (agent, kind, tenant, due_at, session_id, id) WHERE given_up_at IS NULL;
CREATE INDEX tasks_given_up ON tasks (given_up_at, tenant, session_id, id) WHERE given_up_at IS NOT NULL;
CREATE INDEX tasks_given_up_by_id ON tasks (tenant, session_id, id) WHERE given_up_at IS NOT NULL;
