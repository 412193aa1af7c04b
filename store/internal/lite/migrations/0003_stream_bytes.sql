-- How many bytes the batches of a stream have, up to and with this one, as far as they were counted; and how many of these
-- were trimmed. A program that does not know the columns begins the count anew: it is too small then, never too large.
ALTER TABLE stream_batches ADD COLUMN total_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE streams ADD COLUMN trimmed_bytes INTEGER NOT NULL DEFAULT 0;
