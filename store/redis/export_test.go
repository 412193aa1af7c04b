package redis

import (
	"context"
	"time"

	"github.com/helixagents/helix/session"
)

// SessionLetters are the letters of all keys that a session may have.
const SessionLetters = sessionLetters

// WithSettling is the configuration with another time for which index entries are
// taken for true.
func (c Config) WithSettling(d time.Duration) Config {
	c.settling = d
	return c
}

// CommitAlone commits without what is done afterwards, as if the process had died
// then.
func (b *Backend) CommitAlone(ctx context.Context, commit *session.Commit) error {
	_, err := (&sessions{b, session.DefaultTenant}).commit(ctx, commit)
	return err
}
