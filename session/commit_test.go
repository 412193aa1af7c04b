package session_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix/session"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func held(change func(*session.State)) *session.State {
	s := &session.State{
		ID: "s-1", Agent: "a", Status: session.Active, Version: 5, CurrentRunID: "run_1", LastCommit: "run_1/1/commit",
		Lease: session.Lease{Owner: "me", Epoch: 2, ExpiresAt: now.Add(time.Minute)},
	}
	change(s)
	return s
}

func TestCommitGuard(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		state    func(*session.State)
		key      string
		status   session.Status
		repeated bool
		want     *session.Error
	}{
		"as expected":              {state: func(*session.State) {}},
		"completes":                {state: func(*session.State) {}, status: session.Completed},
		"the same again":           {state: func(s *session.State) { s.Version = 6 }, key: "run_1/1/commit", repeated: true},
		"the same, lease lost":     {state: func(s *session.State) { s.Lease = session.Lease{} }, key: "run_1/1/commit", repeated: true},
		"another owner":            {state: func(s *session.State) { s.Lease.Owner = "you" }, want: session.ErrStale},
		"a later epoch":            {state: func(s *session.State) { s.Lease.Epoch = 3 }, want: session.ErrStale},
		"a later version":          {state: func(s *session.State) { s.Version = 6 }, want: session.ErrStale},
		"another run":              {state: func(s *session.State) { s.CurrentRunID = "run_2" }, want: session.ErrStale},
		"expired but not taken":    {state: func(s *session.State) { s.Lease.ExpiresAt = now.Add(-time.Hour) }},
		"a status it cannot reach": {state: func(s *session.State) { s.Status = session.Failed }, status: session.Completed, want: session.ErrTransition},
	} {
		c := session.Commit{
			SessionID: "s-1", RunID: "run_1", Key: test.key, Version: 5, Fence: session.Fence{Owner: "me", Epoch: 2},
			Change: session.Change{Status: test.status},
		}
		repeated, err := c.Guard(held(test.state), &session.Run{ID: "run_1", Status: session.RunRunning})
		checkRefusal(t, name, err, test.want)
		if repeated != test.repeated {
			t.Errorf("%s: repeated is %v", name, repeated)
		}
	}
}

func TestStartGuard(t *testing.T) {
	t.Parallel()
	ended := &session.Run{ID: "run_1", Status: session.RunCompleted}
	for name, test := range map[string]struct {
		state func(*session.State)
		run   *session.Run
		want  *session.Error
	}{
		"after a run that ended":         {func(*session.State) {}, ended, nil},
		"first of all":                   {func(s *session.State) { s.Lease = session.Lease{} }, nil, nil},
		"changed since":                  {func(s *session.State) { s.Version++ }, ended, session.ErrStale},
		"another run since":              {func(s *session.State) { s.CurrentRunID = "run_2" }, ended, session.ErrStale},
		"while one runs":                 {func(*session.State) {}, &session.Run{ID: "run_1", Status: session.RunRunning}, session.ErrAlreadyRunning},
		"while one runs, lease expired":  {func(s *session.State) { s.Lease.ExpiresAt = now }, &session.Run{ID: "run_1", Status: session.RunRunning}, session.ErrAlreadyRunning},
		"without a run, the lease held":  {func(*session.State) {}, nil, session.ErrAlreadyRunning},
		"a status that cannot be active": {func(s *session.State) { s.Status = "odd" }, ended, session.ErrTransition},
	} {
		start := session.StartRun{SessionID: "s-1", ExpectVersion: 5, ExpectRun: "run_1", Change: session.Change{Status: session.Active}}
		checkRefusal(t, name, start.Guard(held(test.state), test.run, nil, now), test.want)
	}
}

func TestTakeOverGuard(t *testing.T) {
	t.Parallel()
	running := &session.Run{ID: "run_1", Status: session.RunRunning}
	expired := func(s *session.State) { s.Lease.ExpiresAt = now }
	for name, test := range map[string]struct {
		state func(*session.State)
		run   *session.Run
		force bool
		want  *session.Error
	}{
		"an expired lease":             {expired, running, false, nil},
		"a live lease":                 {func(*session.State) {}, running, false, session.ErrAlreadyRunning},
		"a live lease, forced":         {func(*session.State) {}, running, true, nil},
		"one without expiry":           {func(s *session.State) { s.Lease.ExpiresAt = time.Time{} }, running, false, session.ErrAlreadyRunning},
		"another process took it over": {func(s *session.State) { expired(s); s.Lease.Epoch = 3 }, running, true, session.ErrStale},
		"a run that ended":             {expired, &session.Run{ID: "run_1", Status: session.RunFailed}, true, session.ErrStale},
		"another run":                  {expired, &session.Run{ID: "run_2", Status: session.RunRunning}, true, session.ErrStale},
		"no run":                       {expired, nil, true, session.ErrStale},
		"paused":                       {func(s *session.State) { expired(s); s.Status = session.Paused }, running, true, session.ErrPaused},
	} {
		take := session.TakeOver{SessionID: "s-1", RunID: "run_1", Owner: "you", Epoch: 2, Force: test.force}
		checkRefusal(t, name, take.Guard(held(test.state), test.run, now), test.want)
	}
}

// checkRefusal requires an error of the given kind that carries the state of the
// session.
func checkRefusal(t *testing.T, name string, err error, want *session.Error) {
	t.Helper()
	if want == nil {
		if err != nil {
			t.Errorf("%s: refused: %v", name, err)
		}
		return
	}
	var e *session.Error
	if !errors.Is(err, want) || !errors.As(err, &e) {
		t.Errorf("%s: got %v, want %v", name, err, want)
		return
	}
	if want != session.ErrTransition && (e.Saw == nil || e.Saw.Version == 0) {
		t.Errorf("%s: %v does not say what the store holds", name, err)
	}
}

func TestSwap(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change session.StatusChange
		ok     bool
		want   *session.Error
	}{
		"as expected":                  {session.StatusChange{Expect: []session.Status{session.Failed, session.Active}, To: session.Paused}, true, nil},
		"with its version":             {session.StatusChange{Expect: []session.Status{session.Active}, To: session.Paused, ExpectVersion: 5}, true, nil},
		"with another version":         {session.StatusChange{Expect: []session.Status{session.Active}, To: session.Paused, ExpectVersion: 4}, false, nil},
		"another status":               {session.StatusChange{Expect: []session.Status{session.Failed}, To: session.Paused}, false, nil},
		"nothing expected":             {session.StatusChange{To: session.Paused}, false, nil},
		"to an unknown status":         {session.StatusChange{Expect: []session.Status{session.Active}, To: "odd"}, false, session.ErrInvalid},
		"to a status it must not take": {session.StatusChange{Expect: []session.Status{session.Completed}, To: session.Interrupted}, false, session.ErrTransition},
	} {
		state := held(func(s *session.State) {
			if test.want == session.ErrTransition {
				s.Status = session.Completed
			}
		})
		before := encode(state)
		got, err := test.change.Swap(state)
		if test.want != nil {
			if !errors.Is(err, test.want) || string(encode(state)) != string(before) {
				t.Errorf("%s: got %v, want %v and no change", name, err, test.want)
			}
			continue
		}
		if err != nil || got.OK != test.ok || got.Status != state.Status || got.Version != state.Version {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
		if test.ok && (state.Version != 6 || state.Status != session.Paused) || !test.ok && string(encode(state)) != string(before) {
			t.Errorf("%s: the state is now %+v", name, state)
		}
	}
}

func TestChangeCheck(t *testing.T) {
	t.Parallel()
	minus := -1
	for name, test := range map[string]struct {
		change session.Change
		ok     bool
	}{
		"nothing":                              {session.Change{}, true},
		"an unknown status":                    {session.Change{Status: "odd"}, false},
		"a negative count":                     {session.Change{KeepMessages: &minus}, false},
		"a bad message":                        {session.Change{Messages: []session.Message{{}}}, false},
		"a bad write":                          {session.Change{Writes: writes(replaceOp("k", "{"))}, false},
		"an outcome":                           {session.Change{Outcome: &session.Outcome{Status: session.RunCompleted}}, true},
		"an outcome that does not end the run": {session.Change{Outcome: &session.Outcome{Status: session.RunRunning}}, false},
	} {
		if err := test.change.Check(); (err == nil) != test.ok || err != nil && !errors.Is(err, session.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestStateCheck(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*session.State)
		field  string
	}{
		"fine":             {func(*session.State) {}, ""},
		"a bad id":         {func(s *session.State) { s.ID = "a b" }, "session id"},
		"no agent":         {func(s *session.State) { s.Agent = "" }, "agent"},
		"no status":        {func(s *session.State) { s.Status = "" }, "status"},
		"an empty tag":     {func(s *session.State) { s.Tags = []string{"x", ""} }, "tag"},
		"a bad parent":     {func(s *session.State) { s.ParentID = "/x" }, "parent session id"},
		"a bad root":       {func(s *session.State) { s.RootID = ".x" }, "root session id"},
		"parent and roots": {func(s *session.State) { s.ParentID, s.RootID = "p", "r" }, ""},
		"64 tags":          {func(s *session.State) { s.Tags = numbered(64) }, ""},
		"65 tags":          {func(s *session.State) { s.Tags = numbered(65) }, "tags"},
		"65 entries":       {func(s *session.State) { s.Metadata = labels(numbered(65)...) }, "metadata"},
		"64 entries":       {func(s *session.State) { s.Metadata = labels(numbered(64)...) }, ""},
		"a long name":      {func(s *session.State) { s.Metadata = labels(strings.Repeat("x", 257)) }, "metadata name"},
		"a long value":     {func(s *session.State) { s.Metadata = map[string]string{"x": strings.Repeat("x", 4097)} }, "metadata value"},
		"never":            {func(s *session.State) { s.ExpiresAt = time.Time{} }, ""},
		"a late expiry":    {func(s *session.State) { s.ExpiresAt = time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC) }, "expiresAt"},
		"an early expiry":  {func(s *session.State) { s.ExpiresAt = time.Date(1677, 12, 31, 0, 0, 0, 0, time.UTC) }, "expiresAt"},
		"beyond RFC 3339":  {func(s *session.State) { s.ExpiresAt = at("9999-12-31T23:59:59-23:59") }, "expiresAt"},
		"an early start":   {func(s *session.State) { s.CreatedAt = at("0000-01-01T00:00:00+01:00") }, "createdAt"},
	} {
		err := held(test.change).Check()
		var e *session.Error
		if test.field == "" && err != nil || test.field != "" && (!errors.As(err, &e) || e.Code != session.CodeInvalid || e.Field != test.field) {
			t.Errorf("%s: got %v, want an error about %q", name, err, test.field)
		}
	}
}

func numbered(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprint("n", i)
	}
	return out
}

func labels(names ...string) map[string]string {
	out := map[string]string{}
	for _, name := range names {
		out[name] = "x"
	}
	return out
}

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return t
}

// Documents that were stored before the limits existed can still be read.
func TestStateBeyondLimitsIsRead(t *testing.T) {
	t.Parallel()
	old := held(func(s *session.State) {
		s.Tags, s.Metadata, s.ExpiresAt = numbered(500), labels(numbered(500)...), time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC)
	})
	raw, err := session.Encode(old)
	if err != nil {
		t.Fatal(err)
	}
	var got session.State
	if err := session.Decode("state", raw, &got); err != nil || len(got.Tags) != 500 || len(got.Metadata) != 500 || got.ExpiresAt.Year() != 9000 {
		t.Errorf("read as %d tags, %d entries, %s: %v", len(got.Tags), len(got.Metadata), got.ExpiresAt, err)
	}
	for text, year := range map[string]int{"9999-12-31T23:59:59-23:59": 9999, "0000-01-01T00:00:00+23:59": 1678} {
		raw, err := session.Encode(held(func(s *session.State) { s.ExpiresAt = at(text) }))
		if err == nil {
			err = session.Decode("state", raw, &got)
		}
		if err != nil || got.ExpiresAt.Year() != year {
			t.Errorf("%s is read as %s: %v", text, got.ExpiresAt, err)
		}
	}
}

func TestUniqueTags(t *testing.T) {
	t.Parallel()
	tags := []string{"b", "a", "b", "c", "a"}
	got := session.UniqueTags(tags)
	if !slices.Equal(got, []string{"b", "a", "c"}) {
		t.Errorf("got %q", got)
	}
	got[0] = "changed"
	if tags[0] != "b" || session.UniqueTags(nil) != nil {
		t.Error("the result is not the caller's own")
	}
}

func TestLease(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lease session.Lease
		live  bool
	}{
		"nobody's":     {session.Lease{Epoch: 3}, false},
		"held":         {session.Lease{Owner: "me", ExpiresAt: now.Add(1)}, true},
		"just expired": {session.Lease{Owner: "me", ExpiresAt: now}, false},
		"for ever":     {session.Lease{Owner: "me"}, true},
	} {
		if test.lease.Live(now) != test.live {
			t.Errorf("%s: live is not %v", name, test.live)
		}
		s := session.State{ID: "s-1", Lease: test.lease}
		for _, run := range []*session.Run{nil, {Status: session.RunCompleted}} {
			if err := s.CheckIdle(run, now); (err == nil) == test.live || err != nil && !errors.Is(err, session.ErrAlreadyRunning) {
				t.Errorf("%s: CheckIdle returned %v", name, err)
			}
		}
		running := &session.Run{Status: session.RunRunning}
		if err := s.CheckIdle(running, now); !errors.Is(err, session.ErrAlreadyRunning) {
			t.Errorf("%s: CheckIdle returned %v during a run", name, err)
		}
		pause := session.StatusChange{To: session.Paused}
		if err := pause.CheckIdle(&s, running, now); (err == nil) == test.live {
			t.Errorf("%s: pausing returned %v", name, err)
		}
		failing := session.StatusChange{To: session.Failed}
		for _, status := range session.Statuses() {
			s.Status = status
			if err := failing.CheckIdle(&s, running, now); !errors.Is(err, session.ErrAlreadyRunning) {
				t.Errorf("%s: failing a %s session during a run returned %v", name, status, err)
			}
		}
	}
}

func TestFinishAndReopen(t *testing.T) {
	t.Parallel()
	s := held(func(s *session.State) { s.Error, s.SuspendedStep = session.ErrStale, "old" })
	s.Finish(&session.Outcome{Status: session.RunFailed, Output: encode(1), Error: session.ErrMaxSteps, FailureReason: "why", Interrupt: &session.InterruptContext{Reason: "r"}})
	if !s.ClosePending || string(s.Output) != "1" || !errors.Is(s.Error, session.ErrMaxSteps) || s.FailureReason != "why" || s.Interrupt == nil || s.SuspendedStep != "" {
		t.Errorf("finished as %+v", s)
	}
	s.Reopen()
	if s.Error != nil || s.FailureReason != "" || s.Interrupt != nil || string(s.Output) != "1" {
		t.Errorf("reopened as %+v", s)
	}
}

func TestUsageAddsEveryField(t *testing.T) {
	t.Parallel()
	var one session.Usage
	v := reflect.ValueOf(&one).Elem()
	for i := range v.NumField() {
		v.Field(i).SetInt(int64(i + 1))
	}
	sum := reflect.ValueOf(one.Add(one))
	for i := range sum.NumField() {
		if sum.Field(i).Int() != int64(2*(i+1)) {
			t.Errorf("%s is not added", sum.Type().Field(i).Name)
		}
	}
	raw, err := session.Encode(one)
	want, wantErr := json.Marshal(one)
	if err != nil || wantErr != nil || string(raw) != string(want) {
		t.Errorf("encoded as %s, %v; want %s", raw, err, want)
	}
	if behind, err := one.AppendJSON([]byte("[1,")); err != nil || string(behind) != "[1,"+string(want) {
		t.Errorf("appended as %s, %v", behind, err)
	}
	if one.TotalTokens() != one.InputTokens+one.OutputTokens {
		t.Error("total tokens are not input and output")
	}
}
