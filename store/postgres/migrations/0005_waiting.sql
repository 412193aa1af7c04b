-- The calls that wait for people, in the order in which they began to: of a tenant, and of a user. Whose they are is written by
-- triggers, so that it is right whichever program writes the rest.
ALTER TABLE helix.pending ADD COLUMN user_id text COLLATE "C" NOT NULL DEFAULT '';

UPDATE helix.pending p SET user_id = s.user_id FROM helix.sessions s WHERE p.state = 'waiting' AND s.number = p.session;

CREATE FUNCTION helix.note_pending_user() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT s.user_id INTO NEW.user_id FROM helix.sessions s WHERE s.number = NEW.session;
    NEW.user_id := coalesce(NEW.user_id, '');
    RETURN NEW;
END
$$;

CREATE TRIGGER pending_user BEFORE INSERT ON helix.pending FOR EACH ROW EXECUTE FUNCTION helix.note_pending_user();

CREATE FUNCTION helix.note_session_user() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE helix.pending p SET user_id = NEW.user_id WHERE p.session = NEW.number;
    RETURN NULL;
END
$$;

CREATE TRIGGER sessions_user AFTER UPDATE OF user_id ON helix.sessions FOR EACH ROW
    WHEN (OLD.user_id IS DISTINCT FROM NEW.user_id) EXECUTE FUNCTION helix.note_session_user();

CREATE INDEX pending_waiting         ON helix.pending (tenant, created_at, number) WHERE state = 'waiting';
CREATE INDEX pending_waiting_by_user ON helix.pending (tenant, user_id, created_at, number) WHERE state = 'waiting' AND user_id <> '';
