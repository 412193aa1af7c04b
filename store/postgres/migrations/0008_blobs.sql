-- Bytes that belong to sessions. A blob is kept once per tenant, in pieces. A session, the root of its tree, has a row for each
-- of its blobs; unused_at is when a session last dropped one, NULL once it is known to be used again.
CREATE TABLE helix.blobs (
    number    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant    text COLLATE "C" NOT NULL,
    ref       text COLLATE "C" NOT NULL,
    size      bigint NOT NULL,
    unused_at timestamptz
);

CREATE UNIQUE INDEX blobs_by_ref ON helix.blobs (tenant, ref);
CREATE INDEX blobs_unused ON helix.blobs (unused_at, number) WHERE unused_at IS NOT NULL;

CREATE TABLE helix.blob_pieces (
    blob   bigint NOT NULL,
    number bigint NOT NULL,
    body   bytea  NOT NULL,
    PRIMARY KEY (blob, number)
);

-- Bytes are mostly compressed or random: to compress them again costs time and gains little.
ALTER TABLE helix.blob_pieces ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE TABLE helix.blob_refs (
    session bigint NOT NULL,
    blob    bigint NOT NULL,
    PRIMARY KEY (session, blob)
);

CREATE INDEX blob_refs_by_blob ON helix.blob_refs (blob);

CREATE TABLE helix.blob_totals (
    session bigint PRIMARY KEY,
    bytes   bigint NOT NULL
);

-- A program without this migration would clone and delete sessions without their blobs. So from the first blob on, the
-- database is readable from here; before that, such programs may go on using it. The role that puts a blob need not be
-- one that may migrate.
CREATE FUNCTION helix.note_blob() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
    UPDATE helix.migrations SET readable_from = 8 WHERE number = 8 AND readable_from < 8;
    RETURN NULL;
END
$$;

CREATE TRIGGER blobs_readable AFTER INSERT ON helix.blobs FOR EACH ROW EXECUTE FUNCTION helix.note_blob();
