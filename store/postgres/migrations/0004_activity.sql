-- What a session is doing now, as session.ActivityOf has it. The expression is that of the queries which use the indexes
-- (list.go). No commit of a step changes these columns. A column of its own would have the table written anew. The condition on
-- the number is always true: it keeps the planner from considering the index for commits, which ask for a tenant and an id, too.
CREATE INDEX sessions_by_activity ON helix.sessions (tenant, (
    CASE status
        WHEN 'completed' THEN 'done'
        WHEN 'failed' THEN 'failed'
        WHEN 'active' THEN
            CASE run_status
                WHEN '' THEN 'new'
                WHEN 'running' THEN 'running'
                WHEN 'completed' THEN 'done'
                WHEN 'failed' THEN 'failed'
                WHEN 'interrupted' THEN 'stopped'
                ELSE 'waiting'
            END
        ELSE 'stopped'
    END), created_at, id) WHERE number > 0;

CREATE INDEX sessions_by_user_activity ON helix.sessions (tenant, user_id, (
    CASE status
        WHEN 'completed' THEN 'done'
        WHEN 'failed' THEN 'failed'
        WHEN 'active' THEN
            CASE run_status
                WHEN '' THEN 'new'
                WHEN 'running' THEN 'running'
                WHEN 'completed' THEN 'done'
                WHEN 'failed' THEN 'failed'
                WHEN 'interrupted' THEN 'stopped'
                ELSE 'waiting'
            END
        ELSE 'stopped'
    END), created_at, id) WHERE user_id <> '';
