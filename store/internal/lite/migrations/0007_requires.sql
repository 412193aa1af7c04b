-- The abilities that a process must have to work on the current run: their names, with spaces between.
ALTER TABLE sessions ADD COLUMN run_requires TEXT NOT NULL DEFAULT '';
