-- Bytes that belong to sessions. A blob is kept once per tenant, in pieces. A session, the root of its tree, has a row for each
-- of its blobs; unused_at is when a session last dropped one, NULL once it is known to be used again.
CREATE TABLE blobs (
    number    INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant    TEXT    NOT NULL,
    ref       TEXT    NOT NULL,
    size      INTEGER NOT NULL,
    unused_at INTEGER
) STRICT;

CREATE UNIQUE INDEX blobs_by_ref ON blobs (tenant, ref);
CREATE INDEX blobs_unused ON blobs (unused_at, number) WHERE unused_at IS NOT NULL;

CREATE TABLE blob_pieces (
    blob   INTEGER NOT NULL,
    number INTEGER NOT NULL,
    body   BLOB    NOT NULL,
    UNIQUE (blob, number)
) STRICT;

CREATE TABLE blob_refs (
    session INTEGER NOT NULL,
    blob    INTEGER NOT NULL,
    PRIMARY KEY (session, blob)
) STRICT, WITHOUT ROWID;

CREATE INDEX blob_refs_by_blob ON blob_refs (blob);

CREATE TABLE blob_totals (
    session INTEGER PRIMARY KEY,
    bytes   INTEGER NOT NULL
) STRICT;

-- A program without this migration would clone and delete sessions without their blobs. So from the first blob on, the
-- database is readable from here; before that, such programs may go on using it.
CREATE TRIGGER blobs_readable AFTER INSERT ON blobs BEGIN
    UPDATE helix_migrations SET readable_from = 8 WHERE number = 8 AND readable_from < 8;
END;
