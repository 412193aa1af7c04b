-- The calls that wait for people, in the order in which they began to: of a tenant, and of a user. Whose they are is written by
-- triggers, so that it is right whichever program writes the rest.
ALTER TABLE pending ADD COLUMN user_id TEXT NOT NULL DEFAULT '';

UPDATE pending
SET user_id = coalesce((SELECT s.user_id FROM sessions s WHERE s.tenant = pending.tenant AND s.id = pending.session_id), '')
WHERE state = 'waiting';

CREATE TRIGGER pending_user AFTER INSERT ON pending BEGIN
    UPDATE pending
    SET user_id = coalesce((SELECT s.user_id FROM sessions s WHERE s.tenant = NEW.tenant AND s.id = NEW.session_id), '')
    WHERE number = NEW.number;
END;

CREATE TRIGGER sessions_user AFTER UPDATE OF user_id ON sessions WHEN OLD.user_id <> NEW.user_id BEGIN
    UPDATE pending SET user_id = NEW.user_id WHERE tenant = NEW.tenant AND session_id = NEW.id;
END;

CREATE INDEX pending_waiting         ON pending (tenant, number) WHERE state = 'waiting';
CREATE INDEX pending_waiting_by_user ON pending (tenant, user_id, number) WHERE state = 'waiting' AND user_id <> '';
