-- "helix." stands for the configured schema. Bodies are bytea that holds the exact bytes that were sent. Text that is
-- compared or ordered is COLLATE "C": bytewise, as every store orders it.
--
-- Sessions and streams have numbers, which are never used again and are the keys of the rows that belong to them. Whoever
-- writes such rows locks the session's row first, and raises its version or, outside a turn's commits, its count
-- "touched": so that one-statement operations notice that what they saw of other tables is out of date.

CREATE SEQUENCE helix.session_numbers;

CREATE TABLE helix.sessions (
    number            bigint PRIMARY KEY,
    tenant            text COLLATE "C" NOT NULL,
    id                text COLLATE "C" NOT NULL,

    -- Rewritten by every commit: none of these may be indexed, so that the row is updated in its page.
    version           bigint  NOT NULL,
    touched           bigint  NOT NULL DEFAULT 0,
    step_count        integer NOT NULL,
    resume_count      integer NOT NULL,
    message_count     integer NOT NULL,
    last_commit       text    NOT NULL,
    checkpoint_id     text    NOT NULL, -- the last one that no rewind has undone
    checkpoint_number integer NOT NULL, -- how many were ever written
    checkpoint_source text    NOT NULL,
    checkpointed_at   timestamptz,
    snapshot_bytes    bigint  NOT NULL, -- size of the last full snapshot of custom state
    delta_bytes       bigint  NOT NULL, -- size of the writes since
    inbox_waiting     integer NOT NULL, -- entries of the inbox not yet taken in
    stop_kind         text    NOT NULL, -- the request to stop the current run, if there is one
    stop_reason       text    NOT NULL,
    stop_at           timestamptz,
    run_steps         integer NOT NULL, -- the run in flight: written to its own record when it ends
    run_usage         bigint[] NOT NULL,
    run_reason        text    NOT NULL,
    updated_at        timestamptz NOT NULL,

    -- Changed when a turn begins, ends or changes hands.
    status            text COLLATE "C" NOT NULL,
    owner             text COLLATE "C" NOT NULL,
    epoch             bigint  NOT NULL,
    lease_until       timestamptz,
    turn              integer NOT NULL,
    current_run       text COLLATE "C" NOT NULL,
    run_status        text COLLATE "C" NOT NULL,
    run_runtime       text    NOT NULL,
    close_owed_at     timestamptz,

    -- Changed by a direct write only.
    agent             text COLLATE "C" NOT NULL,
    user_id           text COLLATE "C" NOT NULL,
    parent_id         text COLLATE "C" NOT NULL,
    root_id           text COLLATE "C" NOT NULL,
    stream_id         text    NOT NULL,
    expires_at        timestamptz,
    created_at        timestamptz NOT NULL
) WITH (fillfactor = 60);

CREATE INDEX sessions_by_age    ON helix.sessions (tenant, created_at, id);
CREATE INDEX sessions_by_user   ON helix.sessions (tenant, user_id, created_at, id) WHERE user_id <> '';
CREATE INDEX sessions_by_agent  ON helix.sessions (tenant, agent, created_at, id);
CREATE INDEX sessions_by_status ON helix.sessions (tenant, status, created_at, id);
CREATE INDEX sessions_by_parent ON helix.sessions (tenant, parent_id, created_at, id) WHERE parent_id <> '';
CREATE INDEX sessions_by_owner  ON helix.sessions (tenant, root_id, owner) WHERE root_id <> '' AND owner <> '';

-- What sweeps read, in the order in which they list it.
CREATE INDEX sessions_leased ON helix.sessions (lease_until, tenant, id)
    WHERE lease_until IS NOT NULL AND run_status = 'running' AND root_id = '' AND status <> 'paused';
CREATE INDEX sessions_expiring ON helix.sessions (expires_at, tenant, id)
    WHERE expires_at IS NOT NULL AND status IN ('active', 'interrupted');
CREATE INDEX sessions_owing ON helix.sessions (close_owed_at, tenant, id)
    WHERE close_owed_at IS NOT NULL AND run_status <> 'running';

-- The last one, because of indexes that seem equally good, as all do before the table was analyzed, the planner takes that.
CREATE UNIQUE INDEX sessions_by_id ON helix.sessions (tenant, id);

-- A session's row as it is at the moment, and not as it was when the statement began that asks: that is what VOLATILE means
-- for what a function reads. A commit that is refused tells by it what the row holds, or by the second, which costs less to
-- have in a statement.
CREATE FUNCTION helix.session_now(tenant text, id text) RETURNS SETOF helix.sessions LANGUAGE sql VOLATILE ROWS 1 AS $$
    SELECT s.* FROM helix.sessions s WHERE s.tenant = $1 AND s.id = $2
$$;

CREATE FUNCTION helix.session_row(tenant text, id text) RETURNS json LANGUAGE sql VOLATILE AS $$
    SELECT row_to_json(s) FROM helix.sessions s WHERE s.tenant = $1 AND s.id = $2
$$;

-- The rest of a session's document, apart because it may be large and rarely changes. What a run's end writes has columns
-- of its own, so that it need not be read first.
CREATE TABLE helix.session_docs (
    session        bigint PRIMARY KEY,
    doc            bytea NOT NULL,
    ending         bytea, -- error, failure reason and interrupt
    suspended_step text  NOT NULL,
    output         bytea
);

-- Labels repeat what listings order and select by.
CREATE TABLE helix.session_tags (
    session    bigint  NOT NULL,
    tenant     text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    position   integer NOT NULL,
    tag        text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (session, position)
);

CREATE INDEX session_tags_by_tag ON helix.session_tags (tenant, tag, created_at, session_id);

CREATE TABLE helix.session_metadata (
    session    bigint NOT NULL,
    tenant     text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    value      text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (session, name)
);

-- Values may be longer than an index entry can be, so the index holds their beginning; queries compare both.
CREATE INDEX session_metadata_by_value ON helix.session_metadata (tenant, name, left(value, 100), created_at, session_id);

CREATE TABLE helix.messages (
    session    bigint  NOT NULL,
    number     integer NOT NULL, -- dense, from 1
    message_id text COLLATE "C" NOT NULL,
    calls      bytea,            -- the ids of the calls it makes, as JSON, if any
    body       bytea   NOT NULL,
    PRIMARY KEY (session, number)
);

CREATE UNIQUE INDEX messages_by_id ON helix.messages (session, message_id) WHERE message_id <> '';

-- Custom state is the log of what was done to it, a row for each version that wrote to it. A snapshot is the whole state
-- at a version. Both are facts that never change, so a snapshot may be added at any time; reading begins at the last one.
CREATE TABLE helix.state_log (
    session bigint NOT NULL,
    version bigint NOT NULL,
    body    bytea  NOT NULL,
    PRIMARY KEY (session, version)
);

CREATE TABLE helix.state_snapshots (
    session bigint NOT NULL,
    version bigint NOT NULL,
    body    bytea  NOT NULL,
    PRIMARY KEY (session, version)
);

-- The keys of custom state, so that an append can be checked without reading what it appends to.
CREATE TABLE helix.state_keys (
    session bigint  NOT NULL,
    digest  bytea   NOT NULL, -- of the key, which may be longer than an index entry can be
    is_list boolean NOT NULL,
    PRIMARY KEY (session, digest)
);

CREATE TABLE helix.runs (
    session          bigint  NOT NULL,
    turn             integer NOT NULL,
    run_id           text COLLATE "C" NOT NULL,
    request_id       text COLLATE "C" NOT NULL,
    status           text    NOT NULL,
    step_count       integer NOT NULL,
    attempts         integer NOT NULL,
    progress_version bigint  NOT NULL,
    reason           text    NOT NULL,
    usage            bigint[] NOT NULL,
    ended_at         timestamptz,
    doc              bytea   NOT NULL, -- the record as the run began
    outcome          bytea,
    output           bytea,
    PRIMARY KEY (session, turn)
);

CREATE UNIQUE INDEX runs_by_id      ON helix.runs (session, run_id);
CREATE UNIQUE INDEX runs_by_request ON helix.runs (session, request_id) WHERE request_id <> '';

CREATE TABLE helix.checkpoints (
    session         bigint  NOT NULL,
    number          integer NOT NULL, -- dense, from 1
    checkpoint_id   text COLLATE "C" NOT NULL,
    run_id          text    NOT NULL,
    turn            integer NOT NULL,
    step            integer NOT NULL,
    status          text    NOT NULL,
    source          text    NOT NULL,
    version         bigint  NOT NULL,
    message_count   integer NOT NULL,
    stream_sequence bigint  NOT NULL,
    at              timestamptz NOT NULL,
    undone          boolean NOT NULL DEFAULT false, -- a rewind has dropped messages that it counts
    PRIMARY KEY (session, number)
);

CREATE UNIQUE INDEX checkpoints_by_id ON helix.checkpoints (session, checkpoint_id);

CREATE TABLE helix.calls (
    session    bigint  NOT NULL,
    message_id text COLLATE "C" NOT NULL,
    call_id    text COLLATE "C" NOT NULL,
    position   integer NOT NULL,
    status     text    NOT NULL,
    doc        bytea   NOT NULL,
    result_id  text,             -- the id of the message that result is
    result     bytea,
    writes     bytea,
    extra      bytea,            -- unknown fields that came with the result
    begun_at   timestamptz,
    settled_at timestamptz,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (session, message_id, call_id)
) WITH (fillfactor = 70);

CREATE INDEX calls_by_age ON helix.calls (created_at);

-- Tables with a row number list their rows in the order they were added.
CREATE TABLE helix.pending (
    number       bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session      bigint  NOT NULL,
    tenant       text COLLATE "C" NOT NULL,
    session_id   text COLLATE "C" NOT NULL,
    call_id      text COLLATE "C" NOT NULL,
    state        text COLLATE "C" NOT NULL, -- which may be ahead of doc, as may late_noticed
    late_noticed boolean NOT NULL,
    deadline     timestamptz,
    message_id   text COLLATE "C" NOT NULL, -- the message that makes the call
    created_at   timestamptz NOT NULL,
    doc          bytea   NOT NULL,
    input        bytea,
    result       bytea,
    late         bytea
);

CREATE UNIQUE INDEX pending_by_call ON helix.pending (session, call_id);
CREATE INDEX pending_open ON helix.pending (session, number) WHERE state IN ('waiting', 'answered');
CREATE INDEX pending_due  ON helix.pending (deadline, tenant, session_id, call_id)
    WHERE state = 'waiting' AND deadline IS NOT NULL;

CREATE TABLE helix.ownership (
    session      bigint NOT NULL, -- the root
    call_id      text COLLATE "C" NOT NULL,
    owner_id     text   NOT NULL, -- the session that owns the call
    completed_at timestamptz,
    PRIMARY KEY (session, call_id)
);

CREATE TABLE helix.children (
    number     bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session    bigint  NOT NULL,
    child_id   text COLLATE "C" NOT NULL,
    awaited    boolean NOT NULL,
    revision   bigint  NOT NULL, -- grows with every change
    doc        bytea   NOT NULL,
    remote     bytea,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);

CREATE UNIQUE INDEX children_by_id ON helix.children (session, child_id);
CREATE INDEX children_awaited ON helix.children (session, number) WHERE awaited;

-- A consumed entry stays, without its body, so that sending it again does nothing.
CREATE TABLE helix.inbox (
    number   bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session  bigint  NOT NULL,
    entry_id text COLLATE "C" NOT NULL,
    consumed boolean NOT NULL,
    sender   text    NOT NULL,
    kind     text    NOT NULL,
    body     bytea,
    at       timestamptz NOT NULL
);

CREATE UNIQUE INDEX inbox_by_id ON helix.inbox (session, entry_id);
CREATE INDEX inbox_waiting ON helix.inbox (session, number) WHERE NOT consumed;

CREATE TABLE helix.wakes (
    tenant     text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    child_id   text COLLATE "C" NOT NULL,
    run_id     text NOT NULL,
    at         timestamptz NOT NULL,
    PRIMARY KEY (tenant, session_id, child_id)
);

CREATE INDEX wakes_by_age ON helix.wakes (at, tenant, session_id, child_id);

CREATE TABLE helix.streams (
    number        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant        text COLLATE "C" NOT NULL,
    stream_id     text COLLATE "C" NOT NULL,
    revision      bigint NOT NULL, -- grows with every change of the stream
    status        text   NOT NULL,
    floor         bigint NOT NULL,
    last_sequence bigint NOT NULL,
    run_id        text   NOT NULL, -- of the session that the stream belongs to
    -- The producer that was here last and how far it has come: those of the others are in stream_producers.
    writer        text   NOT NULL,
    writer_epoch  bigint NOT NULL,
    writer_next   bigint NOT NULL, -- its lowest number not seen under the epoch; 0 if it has written nothing
    end_doc       bytea,
    output        bytea,
    failure       bytea,
    created_at    timestamptz NOT NULL,
    updated_at    timestamptz NOT NULL
) WITH (fillfactor = 60);

CREATE UNIQUE INDEX streams_by_id ON helix.streams (tenant, stream_id);

-- An append is one row.
CREATE TABLE helix.stream_batches (
    stream         bigint  NOT NULL,
    last_sequence  bigint  NOT NULL, -- of the last chunk
    first_sequence bigint  NOT NULL,
    producer       text    NOT NULL,
    epoch          bigint  NOT NULL,
    next           bigint  NOT NULL, -- the producer's next number
    run_id         text    NOT NULL, -- the run of all chunks, or '' if they differ
    last_step      integer NOT NULL,
    at             timestamptz NOT NULL,
    pieces         bytea,            -- how many lines each chunk has, as JSON, if one was split
    body           bytea   NOT NULL, -- a line per chunk, or per piece of one, parted by 0x1e
    PRIMARY KEY (stream, last_sequence)
);

CREATE TABLE helix.stream_producers (
    stream   bigint NOT NULL,
    producer text COLLATE "C" NOT NULL,
    epoch    bigint NOT NULL,
    next     bigint NOT NULL,
    PRIMARY KEY (stream, producer)
);

-- A row stays when its lock is released, so that tokens only grow.
CREATE TABLE helix.locks (
    name       text COLLATE "C" PRIMARY KEY,
    owner      text   NOT NULL,
    token      bigint NOT NULL,
    expires_at timestamptz
);
