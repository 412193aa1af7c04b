package session_test

import (
	"errors"
	"testing"
	"time"

	"github.com/helixagents/helix/session"
)

func TestCommitGuardKnowsTheRun(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		run  *session.Run
		want *session.Error
	}{
		"running":   {&session.Run{ID: "run_1", Status: session.RunRunning}, nil},
		"completed": {&session.Run{ID: "run_1", Status: session.RunCompleted}, session.ErrStale},
		"suspended": {&session.Run{ID: "run_1", Status: session.RunSuspendedPartial}, session.ErrStale},
		"none":      {nil, session.ErrStale},
	} {
		c := session.Commit{SessionID: "s-1", RunID: "run_1", Key: "k", Version: 5, Fence: session.Fence{Owner: "me", Epoch: 2}}
		_, err := c.Guard(held(func(*session.State) {}), test.run)
		checkRefusal(t, name, err, test.want)
	}
}

func TestStartGuardOfNewSessions(t *testing.T) {
	t.Parallel()
	exists := held(func(*session.State) {})
	create := &session.State{ID: "s-1", Status: session.Failed}
	for name, test := range map[string]struct {
		start session.StartRun
		state *session.State
		same  *session.Run
		want  error
	}{
		"a new one":                   {session.StartRun{Create: create, Change: session.Change{Status: session.Active}}, nil, nil, nil},
		"a new one, no status":        {session.StartRun{Create: create}, nil, nil, nil},
		"in the place of one":         {session.StartRun{Create: create}, exists, nil, session.ErrExists},
		"an impossible status":        {session.StartRun{Create: create, Change: session.Change{Status: session.Completed}}, nil, nil, session.ErrTransition},
		"of nothing":                  {session.StartRun{}, nil, nil, session.ErrNotFound},
		"a run that exists":           {session.StartRun{ExpectVersion: 5, ExpectRun: "run_1"}, exists, &session.Run{}, session.ErrExists},
		"a version that was not read": {session.StartRun{}, exists, nil, session.ErrStale},
	} {
		if err := test.start.Guard(test.state, nil, test.same, now); !errors.Is(err, test.want) {
			t.Errorf("%s: got %v, want %v", name, err, test.want)
		}
	}
}

func TestBegin(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		start session.StartRun
		state session.State
		first int64
		want  session.State
	}{
		"the first run": {
			start: session.StartRun{TTL: time.Minute},
			first: 1 << 24,
			want: session.State{
				Turn:  1,
				Lease: session.Lease{Owner: "me", Epoch: 1<<24 + 1, ExpiresAt: now.Add(time.Minute)},
			},
		},
		"a later one": {
			start: session.StartRun{Resumes: true, Change: session.Change{StepCount: new(3)}},
			first: 1 << 24,
			state: session.State{
				Turn: 4, StepCount: 9, ResumeCount: 1, CurrentRunID: "run_1", Status: session.Failed, LastCommit: "k", ClosePending: true,
				Error: session.ErrInternal, FailureReason: "x", Interrupt: &session.InterruptContext{}, Output: []byte(`1`),
				Lease: session.Lease{Epoch: 1<<24 + 7},
			},
			want: session.State{
				Turn: 5, StepCount: 3, ResumeCount: 2, Output: []byte(`1`),
				Lease: session.Lease{Owner: "me", Epoch: 1<<24 + 8},
			},
		},
	} {
		state, start, want := test.state, test.start, test.want
		state.ID, want.ID = "s-1", "s-1"
		start.Owner = "me"
		start.Run = session.Run{
			ID: "run_2", Kind: session.RunResume, Turn: 99, Status: session.RunFailed, StepCount: 99,
			Outcome: &session.Outcome{}, StartedAt: now.Add(-time.Hour), EndedAt: now, RequestID: "q",
		}
		want.CurrentRunID, want.Status, want.UpdatedAt = "run_2", session.Active, now
		run := start.Begin(&state, test.first, now)
		if string(encode(&state)) != string(encode(&want)) {
			t.Errorf("%s: the session is %+v\nwant %+v", name, state, want)
		}
		wantRun := session.Run{
			ID: "run_2", SessionID: "s-1", Kind: session.RunResume, Turn: want.Turn, Status: session.RunRunning,
			StepCount: want.StepCount, StartedAt: now, RequestID: "q",
		}
		if string(encode(&run)) != string(encode(&wantRun)) {
			t.Errorf("%s: the run is %+v\nwant %+v", name, run, wantRun)
		}
	}
}

func TestTake(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		owner    string
		run      session.Run
		attempts int
	}{
		"lost":                     {"you", session.Run{ProgressVersion: 5, Attempts: 1}, 2},
		"lost after progress":      {"you", session.Run{ProgressVersion: 4, Attempts: 2}, 1},
		"given back":               {"", session.Run{ProgressVersion: 5, Attempts: 1}, 1},
		"released, after progress": {"", session.Run{ProgressVersion: 4, Attempts: 1}, 0},
	} {
		state := held(func(s *session.State) { s.Lease.Owner = test.owner })
		take := session.TakeOver{Owner: "me", TTL: time.Second}
		got := take.Apply(state, &test.run, now)
		lease := session.Lease{Owner: "me", Epoch: 3, ExpiresAt: now.Add(time.Second)}
		if got.Lease != lease || state.Lease != lease || got.Version != 5 || got.Attempts != test.attempts {
			t.Errorf("%s: got %+v, the lease is %+v", name, got, state.Lease)
		}
		if test.run.Attempts != test.attempts || test.run.ProgressVersion != 5 {
			t.Errorf("%s: the run counts %+v", name, test.run)
		}
	}
}

func TestHoldsReleaseSettles(t *testing.T) {
	t.Parallel()
	state := held(func(*session.State) {})
	for fence, ok := range map[session.Fence]bool{
		{Owner: "me", Epoch: 2}: true, {Owner: "me", Epoch: 1}: false, {Owner: "you", Epoch: 2}: false, {Epoch: 2}: false,
	} {
		if err := state.CheckFence(fence); (err == nil) != ok || !ok && !errors.Is(err, session.ErrStale) {
			t.Errorf("%+v: %v", fence, err)
		}
	}
	running := &session.Run{ID: "run_1", Status: session.RunRunning}
	for run, want := range map[*session.Run]session.Lease{
		running:                        {Epoch: 2, ExpiresAt: now},
		{Status: session.RunCompleted}: {Epoch: 2},
		nil:                            {Epoch: 2},
	} {
		state := held(func(*session.State) {})
		state.Release(run, now)
		if state.Lease != want {
			t.Errorf("releasing the lease of %+v gives %+v", run, state.Lease)
		}
		if err := state.CheckFence(session.Fence{Epoch: 2}); err == nil {
			t.Error("a released lease still has a holder")
		}
	}
	if state.CanSettleClose("run_1", running) || state.CanSettleClose("run_2", nil) || !state.CanSettleClose("run_1", &session.Run{Status: session.RunFailed}) {
		t.Error("which closes a session records")
	}
}

func TestLeaseEnd(t *testing.T) {
	t.Parallel()
	if end := session.LeaseEnd(now, 0); !end.IsZero() {
		t.Errorf("a lease without end ends at %s", end)
	}
	if end := session.LeaseEnd(now, time.Second+1500); !end.Equal(now.Add(time.Second + time.Microsecond)) {
		t.Errorf("a lease ends at %s", end)
	}
}

func TestBorn(t *testing.T) {
	t.Parallel()
	doc := held(func(s *session.State) {
		s.Turn, s.MessageCount, s.ClosePending, s.CheckpointID, s.StepCount, s.Tags = 3, 4, true, "cp", 2, []string{"t", "u", "t"}
	})
	got := doc.AsNew("north", now)
	want := session.State{
		Tenant: "north", ID: "s-1", Agent: "a", Status: session.Active, StepCount: 2, Tags: []string{"t", "u"}, CreatedAt: now, UpdatedAt: now,
	}
	if string(encode(&got)) != string(encode(&want)) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	doc.CreatedAt = now.Add(-time.Hour)
	if got := doc.AsNew("north", now); !got.CreatedAt.Equal(doc.CreatedAt) {
		t.Errorf("the age is %s", got.CreatedAt)
	}
}
