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

// Identity is who a request acts for.
type Identity struct {
	// User owns the sessions that it starts, and sees no others. Only an operator may
	// be nobody.
	User string
	// Tenant defaults to the default tenant.
	Tenant string
	// Operator sees every session of the tenant.
	Operator bool
}

// user is the identity as the executor knows it.
func (i Identity) user() helix.User { return helix.User{ID: i.User, Tenant: i.Tenant} }

// Token is a bearer token and whom it stands for.
type Token struct {
	Token    string
	Identity Identity
}

// Tokens authenticates by bearer token. What is compared, and how long that takes,
// does not depend on how much of a token was guessed.
func Tokens(tokens ...Token) (func(*http.Request) (Identity, error), error) {
	if len(tokens) == 0 {
		return nil, session.Invalid("Tokens", "has none")
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
			return nil, session.Invalid("Token", "%d is there twice", i+1)
		case t.Identity.User == "" && !t.Identity.Operator:
			return nil, session.Invalid("Token", "%d stands for nobody: it has no user, and is no operator's", i+1)
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

// identify tells who sent a request.
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
			because(errors.New("the identity has no user and is no operator"))
	}
	who.Tenant = cmp.Or(who.Tenant, session.DefaultTenant)
	return who, nil
}

// stillAllowed asks again who reads a stream: its token may have been taken back since
// it was opened. While nobody can tell, it goes on.
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

// maxDepth bounds how far up a session's callers are followed.
const maxDepth = 1000

// session loads a session that the identity may see. All others do not exist.
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
	return nil, session.ErrCorrupt.WithMessage("session %s: its callers have no end", id)
}

// hide makes every session that is not there look the same.
func (*exchange) hide(id string, err error) error { return hide(id, err) }

func hide(id string, err error) error {
	if errors.Is(err, session.ErrNotFound) {
		return notFound(id)
	}
	return err
}

func notFound(id string) error { return session.ErrNotFound.WithMessage("there is no session %s", id) }

// checkID holds a session's id to what one may be.
func checkID(field, id string) error { return asField(field, session.CheckID(id)) }

// chosenID holds an id that a client chooses to what it may choose.
func chosenID(field, id string) error { return asField(field, session.CheckChosenID(id)) }

// asField is a refusal of a session's id, with the field that the client knows it by.
func asField(field string, err error) error {
	if err == nil {
		return nil
	}
	out := session.AsError(err)
	return session.Invalid(field, "%s", strings.TrimPrefix(out.Message, out.Field+" "))
}
