package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

// Identity is the user that a request acts for.
type Identity struct {
	// User owns the sessions that it starts, and sees no others. It may be empty only for an
	// operator.
	User string
	// Tenant defaults to the default tenant.
	Tenant string
	// Operator may see every session of the tenant.
	Operator bool
}

// user returns the identity as the executor's user.
func (i Identity) user() helix.User { return helix.User{ID: i.User, Tenant: i.Tenant} }

// Token is a bearer token and its identity.
type Token struct {
	Token    string
	Identity Identity
}

// Tokens returns an Authenticate function for bearer tokens. The comparison takes the same
// time however much of a token was guessed.
func Tokens(tokens ...Token) (func(*http.Request) (Identity, error), error) {
	if len(tokens) == 0 {
		return nil, session.Invalid("Tokens", "must not be empty")
	}
	type known struct {
		sum [sha256.Size]byte
		who Identity
	}
	all := make([]known, len(tokens))
	seen := map[string]bool{}
	for i, t := range tokens {
		switch {
		case t.Token == "":
			return nil, session.Invalid("Token", "%d is empty", i+1)
		case seen[t.Token]:
			return nil, session.Invalid("Token", "%d is a duplicate", i+1)
		case t.Identity.User == "" && !t.Identity.Operator:
			return nil, session.Invalid("Token", "%d has no user and is not an operator's", i+1)
		}
		seen[t.Token] = true
		all[i] = known{sum: sha256.Sum256([]byte(t.Token)), who: t.Identity}
	}
	return func(r *http.Request) (Identity, error) {
		scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
		if !ok || !strings.EqualFold(scheme, "bearer") {
			return Identity{}, errors.New("no bearer token")
		}
		sum := sha256.Sum256([]byte(strings.TrimSpace(token)))
		found := -1
		for i := range all {
			found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sum[:], all[i].sum[:]), i, found)
		}
		if found < 0 {
			return Identity{}, errors.New("unknown token")
		}
		return all[found].who, nil
	}, nil
}

// identify returns the identity of a request's sender.
func (s *Server) identify(r *http.Request) (Identity, error) {
	if s.cfg.Authenticate == nil {
		return Identity{Tenant: session.DefaultTenant, Operator: true}, nil
	}
	who, err := s.cfg.Authenticate(r)
	switch {
	case session.IsRetryable(err):
		return who, err
	case err != nil:
		return who, refuse(http.StatusUnauthorized, wire.CodeUnauthorized, "sign in first").because(err)
	case who.User == "" && !who.Operator:
		return who, refuse(http.StatusUnauthorized, wire.CodeUnauthorized, "sign in first").
			because(errors.New("the identity has no user and is not an operator"))
	}
	who.Tenant = cmp.Or(who.Tenant, session.DefaultTenant)
	return who, nil
}

// stillAllowed authenticates the reader of a stream again, because its token may have been
// revoked. If authentication is unavailable, the stream continues.
func (x *exchange) stillAllowed() error {
	who, err := x.server.identify(x.r)
	switch {
	case session.IsRetryable(err):
		return nil
	case err != nil:
		return err
	case who != x.who:
		return refuse(http.StatusUnauthorized, wire.CodeUnauthorized, "sign in again")
	}
	return nil
}

// maxDepth limits how far up a session's callers are followed.
const maxDepth = 1000

// session loads a session that the identity may see. For all others it returns
// [session.ErrNotFound].
func (x *exchange) session(ctx context.Context, field, id string) (*session.State, error) {
	if err := checkID(field, id); err != nil {
		return nil, err
	}
	x.sessionID = id
	state, err := x.sessions.Load(ctx, id)
	if err != nil {
		return nil, x.hide(id, err)
	}
	if x.who.Operator {
		return state, nil
	}
	at := state
	for range maxDepth {
		if at.UserID != x.who.User {
			return nil, notFound(id)
		}
		if at.ParentID == "" {
			return state, nil
		}
		above, err := x.sessions.Load(ctx, at.ParentID)
		if errors.Is(err, session.ErrNotFound) { // the caller was deleted
			return state, nil
		}
		if err != nil {
			return nil, err
		}
		at = above
	}
	return nil, session.ErrCorrupt.WithMessage("session %s has an endless chain of callers", id)
}

// hide makes all sessions that cannot be seen look the same.
func (*exchange) hide(id string, err error) error { return hide(id, err) }

func hide(id string, err error) error {
	if errors.Is(err, session.ErrNotFound) {
		return notFound(id)
	}
	return err
}

func notFound(id string) error { return session.ErrNotFound.WithMessage("there is no session %s", id) }

// checkID checks a session's id.
func checkID(field, id string) error { return asField(field, session.CheckID(id)) }

// chosenID checks a session id that a client chooses.
func chosenID(field, id string) error { return asField(field, session.CheckChosenID(id)) }

// asField returns the error of a session's id under the request's field name.
func asField(field string, err error) error {
	if err == nil {
		return nil
	}
	out := session.AsError(err)
	return session.Invalid(field, "%s", strings.TrimPrefix(out.Message, out.Field+" "))
}
