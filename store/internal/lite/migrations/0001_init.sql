-- Times are nanoseconds since 1970, NULL where there is none. Bodies are BLOBs that hold the exact bytes that were sent.
--
-- The cost of a transaction is mostly the number of pages it touches, so what every commit of a step writes is kept in few
-- tables, in few and small indexes, and under small keys: sessions and streams have numbers, which are never used again,
-- and the rows that a step adds are found under (number << 32) + their own number.

CREATE TABLE sessions (
    number            INTEGER PRIMARY KEY AUTOINCREMENT CHECK (number < 2147483648),
    tenant            TEXT    NOT NULL,
    id                TEXT    NOT NULL,

    -- Rewritten by every commit: none of these may be indexed.
    version           INTEGER NOT NULL,
    step_count        INTEGER NOT NULL,
    resume_count      INTEGER NOT NULL,
    message_count     INTEGER NOT NULL,
    last_commit       TEXT    NOT NULL,
    checkpoint_id     TEXT    NOT NULL, -- the last one that no rewind has undone
    checkpoint_newest TEXT    NOT NULL, -- the one written last, if that is another
    checkpoint_number INTEGER NOT NULL,
    checkpoint_source TEXT    NOT NULL,
    checkpointed_at   INTEGER,
    snapshot_bytes    INTEGER NOT NULL, -- size of the last full snapshot of custom state
    delta_bytes       INTEGER NOT NULL, -- size of the writes since
    run_steps         INTEGER NOT NULL, -- the run in flight: written to its own record when it ends
    run_usage         BLOB,
    run_reason        TEXT    NOT NULL,
    updated_at        INTEGER NOT NULL,

    -- Changed when a turn begins, ends or changes hands.
    status            TEXT    NOT NULL,
    owner             TEXT    NOT NULL,
    epoch             INTEGER NOT NULL,
    lease_until       INTEGER,
    turn              INTEGER NOT NULL,
    current_run       TEXT    NOT NULL,
    run_status        TEXT    NOT NULL,
    run_runtime       TEXT    NOT NULL,
    close_owed_at     INTEGER,

    -- Changed by a direct write only.
    agent             TEXT    NOT NULL,
    user_id           TEXT    NOT NULL,
    parent_id         TEXT    NOT NULL,
    root_id           TEXT    NOT NULL,
    stream_id         TEXT    NOT NULL,
    expires_at        INTEGER,
    created_at        INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX sessions_by_id ON sessions (tenant, id);
CREATE INDEX sessions_by_age    ON sessions (tenant, created_at, id);
CREATE INDEX sessions_by_user   ON sessions (tenant, user_id, created_at, id) WHERE user_id <> '';
CREATE INDEX sessions_by_agent  ON sessions (tenant, agent, created_at, id);
CREATE INDEX sessions_by_status ON sessions (tenant, status, created_at, id);
CREATE INDEX sessions_by_parent ON sessions (tenant, parent_id, created_at, id) WHERE parent_id <> '';
CREATE INDEX sessions_by_owner  ON sessions (tenant, root_id, owner) WHERE root_id <> '' AND owner <> '';

-- What sweeps read, in the order in which they list it.
CREATE INDEX sessions_leased ON sessions (lease_until, tenant, id)
    WHERE lease_until IS NOT NULL AND run_status = 'running' AND root_id = '' AND status <> 'paused';
CREATE INDEX sessions_expiring ON sessions (expires_at, tenant, id)
    WHERE expires_at IS NOT NULL AND status IN ('active', 'interrupted');
CREATE INDEX sessions_owing ON sessions (close_owed_at, tenant, id)
    WHERE close_owed_at IS NOT NULL AND run_status <> 'running';

-- The rest of a session's document, apart because it may be large and rarely changes.
CREATE TABLE session_docs (
    session INTEGER PRIMARY KEY,
    doc     BLOB NOT NULL,
    output  BLOB
) STRICT;

CREATE TABLE session_tags (
    tenant     TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    position   INTEGER NOT NULL,
    tag        TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, session_id, position)
) STRICT, WITHOUT ROWID;

CREATE INDEX session_tags_by_tag ON session_tags (tenant, tag, created_at, session_id);

CREATE TABLE session_metadata (
    tenant     TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    value      TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, session_id, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX session_metadata_by_value ON session_metadata (tenant, name, value, created_at, session_id);

CREATE TABLE messages (
    key        INTEGER PRIMARY KEY, -- session, number of the message: dense, from 1
    message_id TEXT NOT NULL,
    calls      BLOB,                -- the ids of the calls it makes, as JSON, if any
    body       BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX messages_by_id ON messages (key >> 32, message_id) WHERE message_id <> '';

-- Custom state is the log of what was done to it: a row holds the writes of one version, or a full snapshot once the
-- writes since the last one outweigh it. The same rows give the state now and at any checkpoint.
CREATE TABLE state_log (
    key      INTEGER PRIMARY KEY, -- session, version
    snapshot INTEGER NOT NULL,    -- whether body is the whole state or the writes
    body     BLOB    NOT NULL
) STRICT;

-- The keys of custom state, so that an append can be checked without reading what it appends to.
CREATE TABLE state_keys (
    session INTEGER NOT NULL,
    name    TEXT    NOT NULL,
    is_list INTEGER NOT NULL,
    PRIMARY KEY (session, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE runs (
    key        INTEGER PRIMARY KEY, -- session, turn
    run_id     TEXT NOT NULL,
    request_id TEXT NOT NULL,
    doc        BLOB NOT NULL,
    output     BLOB
) STRICT;

CREATE UNIQUE INDEX runs_by_id      ON runs (key >> 32, run_id);
CREATE UNIQUE INDEX runs_by_request ON runs (key >> 32, request_id) WHERE request_id <> '';

-- A checkpoint names the one written before it: following the links from the session's newest gives the list without an
-- index of its own.
CREATE TABLE checkpoints (
    session         INTEGER NOT NULL,
    checkpoint_id   TEXT    NOT NULL,
    number          INTEGER NOT NULL, -- dense, from 1
    previous        TEXT    NOT NULL,
    run_id          TEXT    NOT NULL,
    turn            INTEGER NOT NULL,
    step            INTEGER NOT NULL,
    status          TEXT    NOT NULL,
    source          TEXT    NOT NULL,
    version         INTEGER NOT NULL,
    message_count   INTEGER NOT NULL,
    stream_sequence INTEGER NOT NULL,
    at              INTEGER NOT NULL,
    undone          INTEGER NOT NULL DEFAULT 0, -- a rewind has dropped messages that it counts
    PRIMARY KEY (session, checkpoint_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE calls (
    session    INTEGER NOT NULL,
    message_id TEXT    NOT NULL,
    call_id    TEXT    NOT NULL,
    position   INTEGER NOT NULL,
    status     TEXT    NOT NULL,
    doc        BLOB    NOT NULL,
    result     BLOB,
    writes     BLOB,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (session, message_id, call_id)
) STRICT, WITHOUT ROWID;

-- Tables with a row number list their rows in the order they were added.
CREATE TABLE pending (
    number     INTEGER PRIMARY KEY,
    tenant     TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    call_id    TEXT    NOT NULL,
    state      TEXT    NOT NULL, -- which may be ahead of doc
    deadline   INTEGER,
    message_id TEXT    NOT NULL, -- the message that makes the call
    doc        BLOB    NOT NULL,
    input      BLOB,
    result     BLOB,
    late       BLOB
) STRICT;

CREATE UNIQUE INDEX pending_by_call ON pending (tenant, session_id, call_id);
CREATE INDEX pending_open ON pending (tenant, session_id) WHERE state IN ('waiting', 'answered');
CREATE INDEX pending_due  ON pending (deadline, tenant, session_id, call_id) WHERE state = 'waiting' AND deadline IS NOT NULL;

CREATE TABLE ownership (
    tenant       TEXT NOT NULL,
    root_id      TEXT NOT NULL,
    call_id      TEXT NOT NULL,
    session_id   TEXT NOT NULL,
    completed_at INTEGER,
    PRIMARY KEY (tenant, root_id, call_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE children (
    number     INTEGER PRIMARY KEY,
    tenant     TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    child_id   TEXT    NOT NULL,
    awaited    INTEGER NOT NULL,
    doc        BLOB    NOT NULL
) STRICT;

CREATE UNIQUE INDEX children_by_id ON children (tenant, session_id, child_id);
CREATE INDEX children_awaited ON children (tenant, session_id) WHERE awaited = 1;

-- A consumed entry stays, without its body, so that sending it again does nothing.
CREATE TABLE inbox (
    number     INTEGER PRIMARY KEY,
    tenant     TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    entry_id   TEXT    NOT NULL,
    consumed   INTEGER NOT NULL,
    sender     TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    body       BLOB,
    at         INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX inbox_by_id ON inbox (tenant, session_id, entry_id);
CREATE INDEX inbox_waiting ON inbox (tenant, session_id) WHERE consumed = 0;

CREATE TABLE wakes (
    tenant     TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    child_id   TEXT    NOT NULL,
    run_id     TEXT    NOT NULL,
    at         INTEGER NOT NULL,
    PRIMARY KEY (tenant, session_id, child_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX wakes_by_age ON wakes (at, tenant, session_id, child_id);

CREATE TABLE stops (
    tenant     TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    run_id     TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    reason     TEXT    NOT NULL,
    at         INTEGER NOT NULL,
    PRIMARY KEY (tenant, session_id, run_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE streams (
    number     INTEGER PRIMARY KEY AUTOINCREMENT CHECK (number < 2147483648),
    tenant     TEXT    NOT NULL,
    stream_id  TEXT    NOT NULL,
    status     TEXT    NOT NULL,
    floor      INTEGER NOT NULL,
    run_id     TEXT    NOT NULL, -- of the session that the stream belongs to
    end_doc    BLOB,
    output     BLOB,
    failure    BLOB,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL -- without appends
) STRICT;

CREATE UNIQUE INDEX streams_by_id ON streams (tenant, stream_id);

-- An append is one row. The latest row also says how far the stream and its producer have come, so nothing else has to be
-- updated; it is therefore never deleted while the stream exists.
CREATE TABLE stream_batches (
    key           INTEGER PRIMARY KEY, -- stream, sequence of the first chunk
    last_sequence INTEGER NOT NULL,
    producer      TEXT    NOT NULL,
    epoch         INTEGER NOT NULL,
    next          INTEGER NOT NULL,    -- the producer's next number
    run_id        TEXT    NOT NULL,    -- the run of all chunks, or '' if they differ
    last_step     INTEGER NOT NULL,
    at            INTEGER NOT NULL,
    pieces        BLOB,                -- how many lines each chunk has, if one was split
    body          BLOB    NOT NULL     -- a line per chunk, or per piece of one, parted by 0x1e
) STRICT;

-- How far each producer has come that did not write the latest batch.
CREATE TABLE stream_producers (
    stream   INTEGER NOT NULL,
    producer TEXT    NOT NULL,
    epoch    INTEGER NOT NULL,
    next     INTEGER NOT NULL,
    PRIMARY KEY (stream, producer)
) STRICT, WITHOUT ROWID;

CREATE TABLE locks (
    name       TEXT    NOT NULL PRIMARY KEY,
    owner      TEXT    NOT NULL,
    token      INTEGER NOT NULL,
    expires_at INTEGER
) STRICT, WITHOUT ROWID;
