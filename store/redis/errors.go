package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/helixagents/helix/session"
)

// remedy is what an error of the server means for an operator.
type remedy struct {
	prefix string
	means  string
	// lasting means that the same call fails again until an operator intervenes.
	lasting bool
}

var remedies = []remedy{
	{"WRONGPASS", "the server refuses the user name or password; check the URL", true},
	{"NOAUTH", "the server requires a password; put it into the URL, as in redis://user:password@host:port", true},
	{"NOPERM", "the user lacks permissions; grant it +@read +@write +@scripting +@connection +info and the keys and channels of the prefix", true},
	{"READONLY", "the server is a read-only replica; connect to the primary", false},
	{"LOADING", "the server is still loading its data from disk", false},
	{"MASTERDOWN", "the server is a replica that has lost its primary", false},
	{"CLUSTERDOWN", "the cluster is down; see CLUSTER INFO for slots that no node serves", false},
	{"CLUSTER", "the cluster cannot serve the request now", false},
	{"TRYAGAIN", "the cluster is moving the slot", false},
	{"MOVED", "the cluster keeps moving the slot", false},
	{"ASK", "the cluster is moving the slot", false},
	{"OOM", "the server's memory is full and nothing was written; raise maxmemory or delete sessions", false},
	{"MISCONF", "the server cannot write to its disk and refuses writes; see its log, free space, or check the permissions of its directory", false},
	{"NOREPLICAS", "the server refuses writes without enough replicas (min-replicas-to-write)", false},
	{"BUSY", "the server is busy with a script", false},
	{"ERR max number of clients reached", "the server has no free connections; raise maxclients or lower the pool sizes", false},
}

// failure converts an error of an operation to the form that callers rely on:
// errors of the domain and of a context are returned as they are, and others are
// classified by the server's reply.
func failure(what string, err error) error {
	if _, domain := errors.AsType[*session.Error](err); domain || err == nil {
		return err
	}
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: %w", what, err)
	case errors.Is(err, goredis.ErrClosed):
		return session.ErrClosed.WithMessage("%s: the store is closed", what)
	}
	said := strings.TrimPrefix(err.Error(), "ERR ")
	for _, r := range remedies {
		if !strings.HasPrefix(said, strings.TrimPrefix(r.prefix, "ERR ")) {
			continue
		}
		out := session.ErrUnavailable.WithCause(err, "%s: %s", what, r.means)
		out.Retryable = !r.lasting
		return out
	}
	if answered, ok := errors.AsType[goredis.Error](err); ok {
		return session.ErrUnavailable.WithCause(answered, "%s: the server refuses the request", what)
	}
	return session.ErrUnavailable.WithCause(err, "%s: the server cannot be reached", what)
}

func notFound(format string, args ...any) *session.Error {
	return session.ErrNotFound.WithMessage(format+": not found", args...)
}
