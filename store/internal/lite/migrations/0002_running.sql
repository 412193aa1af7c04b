-- How many runs a user has at once is asked at every start. No commit of a step changes these columns.
CREATE INDEX sessions_running ON sessions (tenant, user_id, created_at, id) WHERE run_status = 'running';
