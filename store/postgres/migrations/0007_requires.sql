-- The abilities that a process must have to work on the current run: their names, with spaces between.
ALTER TABLE helix.sessions ADD COLUMN run_requires text COLLATE "C" NOT NULL DEFAULT '';
