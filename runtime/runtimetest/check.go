package runtimetest

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
)

// CheckSessions checks every session of the default tenant for what holds for all sessions
// that do not run: their runs, their transcripts, and that their streams tell the same.
func CheckSessions(t *testing.T, backend store.Backend) {
	t.Helper()
	s := &Stage{T: t, Backend: backend, tenants: []string{session.DefaultTenant}}
	s.checkSessions()
}

// checkSessions checks every session that the scenario created for what holds for all
// sessions that do not run.
func (s *Stage) checkSessions() {
	s.Helper()
	for _, tenant := range s.tenants {
		query := session.Query{PageRequest: session.PageRequest{Limit: session.MaxPageSize}}
		for more := true; more; {
			page, err := s.Backend.Sessions().Tenant(tenant).List(s.ctx(), query)
			s.ok(err, "list tenant %s", tenant)
			for i := range page.Items {
				s.checkSession(tenant, page.Items[i].ID)
			}
			query.Cursor, more = page.Next, page.HasMore
		}
	}
}

func (s *Stage) checkSession(tenant, id string) {
	s.Helper()
	sessions := s.Backend.Sessions().Tenant(tenant)
	state, err := sessions.Load(s.ctx(), id)
	s.ok(err, "load %s", id)
	var runs []session.Run
	for page, more := (session.PageRequest{Limit: session.MaxPageSize}), true; more; {
		some, err := sessions.Runs(s.ctx(), id, page)
		s.ok(err, "runs of %s", id)
		runs = append(runs, some.Items...)
		page.Cursor, more = some.Next, some.HasMore
	}
	messages, err := sessions.AllMessages(s.ctx(), id)
	s.ok(err, "messages of %s", id)
	if !s.checkRuns(state, runs) {
		return // it runs: somebody may still continue it
	}
	transcript, err := session.NewTranscript(messages)
	s.ok(err, "transcript of %s", id)
	if state.SuspendedStep == "" || state.Status == session.Completed {
		s.ok(transcript.Sendable(), "transcript of %s", id)
	}
	if len(runs) > 0 {
		last := &runs[len(runs)-1]
		s.checkClosed(tenant, state, last)
		if s.standsIn(tenant, state) {
			s.checkRelayed(state, last)
			return
		}
		s.checkStream(tenant, state, runs, messages)
	}
}

// standsIn reports whether a session stands in for a remote agent's: the stream has
// the remote's own chunks.
func (s *Stage) standsIn(tenant string, state *session.State) bool {
	s.Helper()
	if state.ParentID == "" {
		return false
	}
	refs, err := s.Backend.Sessions().Tenant(tenant).Children(s.ctx(), state.ParentID)
	s.ok(err, "children of %s", state.ParentID)
	return slices.ContainsFunc(refs, func(ref session.ChildRef) bool { return ref.SessionID == state.ID && ref.Remote != nil })
}

// checkRuns checks that there is one record per turn, numbered from 1, and that all have
// ended as the session has. It reports false when the last one still runs.
func (s *Stage) checkRuns(state *session.State, runs []session.Run) bool {
	s.Helper()
	if len(runs) != state.Turn {
		s.Fatalf("session %s is at turn %d and has %d runs", state.ID, state.Turn, len(runs))
	}
	for i := range runs {
		r := &runs[i]
		if r.Turn != i+1 {
			s.Fatalf("session %s: run %d has turn %d", state.ID, i+1, r.Turn)
		}
		last := i == len(runs)-1
		if last && r.Status == session.RunRunning {
			return false
		}
		if !r.Status.Ended() || r.Outcome == nil || r.Outcome.Status != r.Status || r.EndedAt.IsZero() {
			s.Fatalf("session %s: run %d is %s, with outcome %+v", state.ID, r.Turn, r.Status, r.Outcome)
		}
		given := state.Status == session.Paused || (state.Status == session.Failed && state.FailureReason != "") // from outside
		if last && !given && state.Status != r.Status.SessionStatus() {
			s.Fatalf("session %s is %s after a run that is %s", state.ID, state.Status, r.Status)
		}
	}
	return true
}

// checkClosed checks that the stream is closed as the run ended, and that the lease is
// released.
func (s *Stage) checkClosed(tenant string, state *session.State, run *session.Run) {
	s.Helper()
	want := stream.StatusEnded
	switch {
	case run.Status == session.RunFailed:
		want = stream.StatusFailed
	case run.Status.Suspended():
		want = stream.StatusPaused
	}
	s.until("the stream of "+state.ID+" is "+string(want)+", no close is missing and no lease is held", func() bool {
		now, err := s.store().Now(s.ctx())
		s.ok(err, "now")
		state, err := s.Backend.Sessions().Tenant(tenant).Load(s.ctx(), state.ID)
		s.ok(err, "load")
		info, err := s.Backend.Streams().Tenant(tenant).Info(s.ctx(), state.StreamID)
		s.ok(err, "stream of %s", state.ID)
		return !state.ClosePending && !state.Lease.Live(now) && (state.StreamID != state.ID || info.Status == want)
	})
}

// checkStream checks that every chunk names its origin, and that all of them fold into the
// transcript.
func (s *Stage) checkStream(tenant string, state *session.State, runs []session.Run, messages []session.Message) {
	s.Helper()
	id := state.ID
	chunks := s.tenantChunks(tenant, state.StreamID)
	known := map[string]bool{}
	for i := range runs {
		known[runs[i].ID] = true
	}
	for i := range chunks {
		c := &chunks[i]
		if c.AgentID == "" || c.AgentType == "" || c.At.IsZero() || (c.AgentID == id && !known[c.RunID] && !s.isLoose(id)) {
			s.Fatalf("chunk %d of session %s (%s) does not say where it comes from: %+v", i+1, id, c.Kind, *c)
		}
	}
	if s.isLoose(id) {
		return
	}
	whole := messages
	// A branch begins with messages of another session, which has its own stream.
	for len(messages) > 0 && !known[messages[0].RunID] {
		messages = messages[1:]
	}
	folded := stream.Fold(id, chunks)
	if state.SuspendedStep != "" { // the stream has results that are added to the transcript with the last of them
		for len(folded) > len(messages) && folded[len(folded)-1].Role == session.RoleTool {
			folded = folded[:len(folded)-1]
		}
	}
	s.same(rendered(folded), rendered(messages), "the folded stream of %s, and its transcript", id)
	if s.album != nil {
		s.checkSnapshots(tenant, state, whole)
	}
}

// rendered renders everything of messages that a stream has: not the time, nor provider data.
func rendered(messages []session.Message) string {
	lines := make([]string, len(messages))
	for i := range messages {
		m := messages[i]
		parts := make([]session.Part, 0, len(m.Parts))
		for _, p := range m.Parts {
			p.Provider, p.ProviderCallID, p.Extra = nil, "", nil
			parts = append(parts, p)
		}
		m.Parts = parts
		if m.Role == session.RoleAssistant {
			m.Metadata = nil
		}
		if m.Role == session.RoleTool { // one that was kept may be shown again by a later run
			m.RunID, m.Step = "", 0
		}
		raw, err := json.Marshal(struct {
			ID, RunID string
			Step      int
			Role      session.Role
			Parts     []session.Part
			Metadata  map[string]json.RawMessage
		}{m.ID, m.RunID, m.Step, m.Role, m.Parts, m.Metadata})
		if err != nil {
			raw = []byte(err.Error())
		}
		lines[i] = canonical(string(raw))
	}
	return strings.Join(lines, "\n")
}

// foldState applies the state patches of chunks to a JSON object, leaving out
// those of attempts that were discarded.
func (s *Stage) foldState(initial string, chunks []stream.Chunk) string {
	s.Helper()
	state := json.RawMessage(initial)
	base, reply := state, state // before the step in flight, and with its reply
	step, answered := 0, false
	for i := range chunks {
		c := &chunks[i]
		switch c.Kind {
		case stream.StepStarted:
			base, reply, step, answered = state, state, c.Step, false
		case stream.ToolEnd:
			answered = true
		case stream.StepCommitted, stream.Suspended:
			base, reply, answered = state, state, false
		case stream.StepDiscarded:
			switch {
			case c.Step != step && c.Step != 0: // 0 is a step that an earlier run suspended in
			case c.Scope == stream.ScopeResults:
				state, answered = reply, false
			default:
				state, reply = base, base
			}
		case stream.StatePatch:
			next, err := session.ApplyPatches(state, c.Patches)
			s.ok(err, "apply the patches of chunk %d", i+1)
			if state = next; !answered { // what comes before all results is the reply's
				reply = state
			}
		}
	}
	return string(state)
}

// randomPart is what makes a child's id unguessable.
var randomPart = regexp.MustCompile(`\.[0-9a-z]{16}`)

// plainID is a session's id without what is random in it.
func plainID(id string) string { return randomPart.ReplaceAllString(id, "") }

func (s *Stage) isLoose(id string) bool { return s.loose[id] || s.loose[plainID(id)] }
