-- How many bytes the batches of a stream have, as far as they were counted: a program that does not know the column appends
-- without counting.
ALTER TABLE helix.streams ADD COLUMN bytes bigint NOT NULL DEFAULT 0;
