-- How many runs a user has at once is asked at every start. No commit of a step changes these columns. The condition on the
-- number is always true: it keeps the planner from considering the index for commits, which ask for a run that is running, too.
CREATE INDEX sessions_running ON helix.sessions (tenant, user_id, created_at, id) WHERE run_status = 'running' AND number > 0;
