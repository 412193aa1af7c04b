package remote_test

import (
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/remote"
	"github.com/helixagents/helix/session"
)

// TestExpiredThere answers a call of a remote agent whose session has expired
// meanwhile: the record of its run says that it waits, its session that it failed.
func TestExpiredThere(t *testing.T) {
	t.Parallel()
	expiring := clerk()
	expiring.SessionExpiry = time.Hour
	there, url := serve(t, expiring)
	a := &remote.Agent{URL: url, Token: token, Agent: "clerk"}
	boss := bossOf(a.SubAgent())
	rt := newRuntime(t, boss)
	run, err := rt.Execute(t.Context(), boss, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!")})
	if err != nil {
		t.Fatal(err)
	}
	res, err := run.Result(t.Context())
	if err != nil || res.Status != helix.SuspendedAwaitingChildren || len(res.Pending) != 1 {
		t.Fatalf("the run is %+v, %v, want one that waits", res, err)
	}
	there.ahead.Store(int64(2 * time.Hour))
	eventually.Poll(t, "the session expires there", func() bool {
		page, err := there.db.Sessions().List(t.Context(), session.Query{PageRequest: session.PageRequest{Limit: 10}})
		if err != nil || len(page.Items) != 1 {
			t.Fatalf("the sessions there are %+v, %v", page, err)
		}
		return page.Items[0].Status == session.Failed
	})
	p := res.Pending[0]
	if _, err := rt.Submit(t.Context(), "s-1", helix.Approve(p, helix.User{})); err != nil {
		t.Fatal(err)
	}
	if run, err = rt.Resume(t.Context(), "s-1", helix.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	if res, err = run.Result(t.Context()); err != nil || res.Status != helix.Completed {
		t.Fatalf("the run is %+v, %v", res, err)
	}
	messages, err := rt.db.Sessions().AllMessages(t.Context(), "s-1")
	if err != nil {
		t.Fatal(err)
	}
	failure := messages[2].Parts[0].Error
	if failure == nil || failure.Code != session.CodeSubAgent || !strings.Contains(failure.Message, "expired") {
		t.Fatalf("the call's result is %+v", messages[2].Parts[0])
	}
}
