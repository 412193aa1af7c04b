-- Work that follows commits. A task that somebody holds is due when the hold expires, so that one column says when it can be
-- claimed; a task that was given up is not in the indexes of due ones.
CREATE TABLE helix.tasks (
    tenant      text COLLATE "C" NOT NULL,
    session_id  text COLLATE "C" NOT NULL, -- '' for a task without one
    id          text COLLATE "C" NOT NULL,
    kind        text COLLATE "C" NOT NULL,
    agent       text COLLATE "C" NOT NULL,
    run_id      text   NOT NULL,
    body        bytea,
    due_at      timestamptz NOT NULL,
    created_at  timestamptz NOT NULL,
    owner       text   NOT NULL,
    attempts    bigint NOT NULL,
    last_error  text   NOT NULL,
    given_up_at timestamptz,
    PRIMARY KEY (tenant, session_id, id)
);

CREATE INDEX tasks_due      ON helix.tasks (due_at, tenant, session_id, id) WHERE given_up_at IS NULL;
CREATE INDEX tasks_by_kind  ON helix.tasks (agent, kind, tenant, due_at, session_id, id) WHERE given_up_at IS NULL;
CREATE INDEX tasks_given_up ON helix.tasks (given_up_at, tenant, session_id, id) WHERE given_up_at IS NOT NULL;
CREATE INDEX tasks_given_up_by_id ON helix.tasks (tenant, session_id, id) WHERE given_up_at IS NOT NULL;
