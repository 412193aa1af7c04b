package host

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/memory"
)

// changing is a backend that lets others change sessions just before they are loaded, and that counts the pages of
// expired ones.
type changing struct {
	store.Backend
	change map[string]func(session.Store, string) error
	pages  *int
}

func (b changing) Sessions() session.Store { return changingSessions{b.Backend.Sessions(), b} }

type changingSessions struct {
	session.Store
	b changing
}

func (s changingSessions) Tenant(tenant string) session.Store {
	return changingSessions{s.Store.Tenant(tenant), s.b}
}

func (s changingSessions) Load(ctx context.Context, id string) (*session.State, error) {
	if change := s.b.change[id]; change != nil {
		if err := change(s.Store, id); err != nil {
			return nil, err
		}
	}
	return s.Store.Load(ctx, id)
}

func (s changingSessions) ExpiredSessions(ctx context.Context, request session.SweepRequest) ([]session.Due, error) {
	*s.b.pages++
	return s.Store.ExpiredSessions(ctx, request)
}

// A clean-up reads all pages, handles every session once, and counts what became of it.
func TestCleanup(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	db := memory.New(memory.Config{Clock: func() time.Time { return now }})
	t.Cleanup(func() { _ = db.Close() })
	pages := 0
	changes := map[string]func(session.Store, string) error{
		"ended": func(sessions session.Store, id string) error {
			state, err := sessions.Load(t.Context(), id)
			if err != nil {
				return err
			}
			state.Status = session.Completed
			return session.Save(t.Context(), sessions, state)
		},
		"deleted": func(sessions session.Store, id string) error {
			_, err := sessions.Delete(t.Context(), id)
			return err
		},
		"unread": func(session.Store, string) error { return session.ErrUnavailable },
	}
	logger := slog.New(slog.DiscardHandler)
	h, err := New(Config{Name: "test", RuntimeOptions: helix.RuntimeOptions{Backend: changing{db, changes, &pages}, Logger: logger}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	acme, globex := db.Sessions().Tenant("acme"), db.Sessions().Tenant("globex")
	put := func(sessions session.Store, id string, state session.State) {
		t.Helper()
		state.ID, state.StreamID, state.Agent, state.Status = id, id, "clerk", session.Active
		if err := session.Create(t.Context(), sessions, &state); err != nil {
			t.Fatal(err)
		}
	}
	expired := session.State{ExpiresAt: now.Add(-time.Minute)}
	for i := range sweepPage { // with the others of the tenant, more than a page
		put(acme, fmt.Sprintf("s-%03d", i), expired)
		put(globex, fmt.Sprintf("s-%03d", i), expired)
	}
	put(acme, "fresh", session.State{ExpiresAt: now.Add(time.Minute)})
	put(acme, "lasting", session.State{})
	put(acme, "ended", expired)
	put(acme, "deleted", expired)
	put(acme, "unread", expired)
	_, err = acme.StartRun(t.Context(), &session.StartRun{
		SessionID: "running", Create: &session.State{ID: "running", StreamID: "running", Agent: "clerk", Status: session.Active, ExpiresAt: expired.ExpiresAt},
		Owner: "me", TTL: time.Hour, Run: session.Run{ID: "run-1", Kind: session.RunExecute, Status: session.RunRunning, Agent: "clerk", Runtime: "test"},
	})
	if err != nil {
		t.Fatal(err)
	}
	check := func(tenant string, want session.Cleanup, wantPages int) {
		t.Helper()
		pages = 0
		got, err := h.Cleanup(t.Context(), tenant)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Errors) != len(want.Errors) || slices.ContainsFunc(got.Errors, func(text string) bool { return !strings.HasPrefix(text, want.Errors[0]) }) {
			t.Errorf("the errors are %q", got.Errors)
		}
		errs := got.Errors
		got.Errors, want.Errors = nil, nil
		if !reflect.DeepEqual(*got, want) || pages != wantPages {
			t.Errorf("%d pages: %+v %q, want %d pages: %+v", pages, *got, errs, wantPages, want)
		}
	}
	const all = sweepPage
	unread := []string{"unread: "}
	check("acme", session.Cleanup{Detected: all + 4, Marked: all, AlreadyTerminal: 2, Running: 1, Errors: unread}, 3)
	check("", session.Cleanup{Detected: all + 2, Marked: all, Running: 1, Errors: unread}, 2)
	check("", session.Cleanup{Detected: 2, Running: 1, Errors: unread}, 1)
	for id, want := range map[string]session.Status{
		"s-000": session.Failed, fmt.Sprintf("s-%03d", sweepPage-1): session.Failed,
		"fresh": session.Active, "lasting": session.Active, "running": session.Active, "unread": session.Active, "ended": session.Completed,
	} {
		state, err := acme.Load(t.Context(), id)
		if err != nil || state.Status != want {
			t.Errorf("%s is %+v, want %s: %v", id, state, want, err)
		}
	}
}
