-- What a session is doing now, as session.ActivityOf has it. The column is computed when it is read; programs that do not know it
-- keep it right by what they write to the others. No commit of a step changes those.
ALTER TABLE sessions ADD COLUMN activity TEXT GENERATED ALWAYS AS (
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
    END
) VIRTUAL;

CREATE INDEX sessions_by_activity      ON sessions (tenant, activity, created_at, id);
CREATE INDEX sessions_by_user_activity ON sessions (tenant, user_id, activity, created_at, id) WHERE user_id <> '';
