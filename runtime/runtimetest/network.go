package runtimetest

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// server is another server, as a scenario's agents see it: executors on a backend
// of their own, behind a network that fails on demand.
type server struct {
	*Stage // what is there
	agent  *helix.Agent
	calls  tally // what arrived, by method

	mu     sync.Mutex
	x      helix.Executor
	down   bool           // nothing gets through
	faults map[string]int // how many calls of a method fail from now on
	lost   map[string]int // how many of a method are carried out and their answers lost
	cut    int            // every stream is cut after this many items, if not 0
	refuse error          // what Start answers
	// unknown is set when the server no longer has the agent.
	unknown bool
	// runsOnly has Status tell how the run stands and nothing of its session, as an
	// implementation may that knows no better.
	runsOnly bool
	change   func(item stream.Item) stream.Item
	read     func(item stream.Item) // is told what is read
}

var _ helix.Remote = (*server)(nil)

// elsewhere starts another server that has an agent.
func (s *Stage) elsewhere(agent *helix.Agent, opts Options) *server {
	s.Helper()
	there := newStage(s.T, s.config, s.scenario)
	there.paced = s.paced
	there.Log = s.Log
	n := &server{Stage: there, agent: agent, faults: map[string]int{}, lost: map[string]int{}}
	opts.Agents = []*helix.Agent{agent}
	n.x = there.StartWith(opts)
	s.servers = append(s.servers, n)
	return n
}

// remotely is an agent that hands one task to a remote one.
func (n *server) remotely() *helix.Agent { return parentOf(n.sub()) }

// sub is the server's agent, to be called.
func (n *server) sub() helix.SubAgent { return helix.SubAgent{Name: n.agent.Name, Remote: n} }

// set changes how the network fails.
func (n *server) set(change func(n *server)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(n)
}

var errCutOff = session.ErrRemote.WithMessage("the connection was cut")

// arrive is called when a request arrives. It returns the executor that answers, and whether the
// answer gets lost.
func (n *server) arrive(method string) (x helix.Executor, lost bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down || n.faults[method] > 0 {
		n.faults[method] = max(0, n.faults[method]-1)
		return nil, false, errCutOff
	}
	if lost = n.lost[method] > 0; lost {
		n.lost[method]--
	}
	n.calls.add(method)
	return n.x, lost, nil
}

// answer is what comes back of a request.
func answer[V any](value V, lost bool, err error) (V, error) {
	if lost && err == nil {
		err = errCutOff
	}
	return value, err
}

// Start implements [helix.Remote].
func (n *server) Start(ctx context.Context, start helix.RemoteStart) (*helix.RemoteRun, error) {
	x, lost, err := n.arrive("start")
	if err == nil && n.refuse != nil {
		err = n.refuse
	}
	if err != nil {
		return nil, err
	}
	run, err := x.Execute(ctx, n.agent, helix.Input{
		SessionID: start.SessionID, Message: start.Message, RequestID: start.RequestID, Metadata: start.Metadata,
	})
	if err != nil {
		return nil, err
	}
	return answer(&helix.RemoteRun{SessionID: run.SessionID(), RunID: run.ID()}, lost, nil)
}

// Resume implements [helix.Remote].
func (n *server) Resume(ctx context.Context, sessionID, requestID string) (*helix.RemoteRun, error) {
	x, lost, err := n.arrive("resume")
	if err != nil {
		return nil, err
	}
	if n.unknown {
		return nil, session.ErrUnknownAgent.WithMessage("no agent named %q", n.agent.Name)
	}
	run, err := x.Resume(ctx, sessionID, helix.ResumeOptions{RequestID: requestID})
	if err != nil {
		return nil, err
	}
	return answer(&helix.RemoteRun{SessionID: run.SessionID(), RunID: run.ID()}, lost, nil)
}

// Read implements [helix.Remote].
func (n *server) Read(ctx context.Context, sessionID string, from int64) iter.Seq2[stream.Item, error] {
	return func(yield func(stream.Item, error) bool) {
		if _, _, err := n.arrive("read"); err != nil {
			yield(stream.Item{}, err)
			return
		}
		count := 0
		for item, err := range n.Backend.Streams().Read(ctx, sessionID, from, true) {
			n.mu.Lock()
			cut := n.down || (n.cut > 0 && count >= n.cut)
			change, read := n.change, n.read
			n.mu.Unlock()
			if cut {
				return // without a word
			}
			if change != nil && err == nil {
				item = change(item)
			}
			if read != nil && err == nil {
				read(item)
			}
			if !yield(item, err) {
				return
			}
			count++
		}
	}
}

// Status implements [helix.Remote].
func (n *server) Status(ctx context.Context, sessionID string) (*helix.RemoteStatus, error) {
	x, lost, err := n.arrive("status")
	if err != nil {
		return nil, err
	}
	run, err := n.Backend.Sessions().CurrentRun(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	if n.runsOnly && run.Outcome != nil && errors.Is(run.Outcome.Error, helix.ErrExpired) {
		// An older server failed the session alone.
		if run, err = n.Backend.Sessions().Run(ctx, sessionID, run.PreviousRunID); err != nil {
			return nil, err
		}
	}
	pending, err := x.Waiting(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	status := &helix.RemoteStatus{RunID: run.ID, Status: run.Status, Pending: pending}
	info, err := n.Backend.Streams().Info(ctx, sessionID)
	switch {
	case err == nil:
		status.Sequence = info.Last
	case !errors.Is(err, session.ErrNotFound): // a run that has just begun may have none
		return nil, err
	}
	if o := run.Outcome; o != nil {
		status.Output, status.Text, status.Error = o.Output, o.Reply, o.Error
	}
	state, err := n.Backend.Sessions().Load(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	if state.Status == session.Failed && run.Status.Suspended() && !n.runsOnly {
		status.Status, status.Error = session.RunFailed, state.Error
	}
	return answer(status, lost, nil)
}

// Submit implements [helix.Remote].
func (n *server) Submit(ctx context.Context, sessionID string, submission helix.Submission) (*helix.Submitted, error) {
	x, lost, err := n.arrive("submit")
	if err != nil {
		return nil, err
	}
	out, err := x.Submit(ctx, sessionID, submission)
	return answer(out, lost, err)
}

// Stop implements [helix.Remote].
func (n *server) Stop(ctx context.Context, sessionID, runID string, kind session.StopKind, reason string) error {
	x, lost, err := n.arrive("stop")
	if err != nil {
		return err
	}
	run, err := n.Backend.Sessions().CurrentRun(ctx, sessionID)
	if err != nil {
		return err
	}
	if run.ID != runID {
		return session.ErrStale.WithMessage("run %s is over", runID)
	}
	if kind == session.StopAbort {
		err = x.Abort(ctx, sessionID, reason)
	} else {
		err = x.Interrupt(ctx, sessionID, reason)
	}
	_, err = answer(struct{}{}, lost, err)
	return err
}

// there is the id of the session that session s-1's only remote call made.
func (n *server) there(s *Stage) string {
	s.Helper()
	return s.peer(s.child("s-1"))
}

// peer is the session on the other server that a stand-in is for.
func (s *Stage) peer(standIn string) string {
	s.Helper()
	parent := s.load(standIn).ParentID
	for _, ref := range s.children(parent) {
		var at struct{ Peer string }
		if ref.SessionID == standIn && json.Unmarshal(ref.Remote, &at) == nil && at.Peer != "" {
			return at.Peer
		}
	}
	s.Fatalf("the reference to %s names no session there", standIn)
	return ""
}

// checkRelayed checks that the chunks that a stand-in's stream has of a remote are those
// that the remote's has: all of them, in order, each once; of a remote that did not end, the
// first ones.
func (s *Stage) checkRelayed(state *session.State, run *session.Run) {
	s.Helper()
	peer := s.tenantPeer(state)
	for _, n := range s.servers {
		if _, err := n.Backend.Sessions().Load(s.ctx(), peer); errors.Is(err, session.ErrNotFound) {
			continue
		}
		theirs := n.chunks(peer)
		for i := range theirs {
			if theirs[i].AgentID == peer {
				theirs[i].AgentID, theirs[i].AgentType = state.ID, state.Agent
			}
			if theirs[i].Evicted() != nil { // the blobs are on the remote's server
				theirs[i].Data = nil
			}
			if theirs[i].Kind == stream.Suspended { // the caller lists what waits itself
				var told struct {
					Status session.RunStatus `json:"status"`
				}
				s.ok(json.Unmarshal(theirs[i].Data, &told), "decode what waits")
				theirs[i].Data, _ = json.Marshal(told)
			}
		}
		ours := slices.DeleteFunc(s.tenantChunks(state.Tenant, state.StreamID), func(c stream.Chunk) bool {
			return c.AgentID != state.ID && !strings.HasPrefix(c.AgentID, peer)
		})
		if run.Status != session.RunCompleted && len(ours) < len(theirs) {
			theirs = theirs[:len(ours)]
		}
		s.same(shown(ours), shown(theirs), "the chunks of %s", peer)
		return
	}
}

// tenantPeer is [Stage.peer] for a session of any tenant; empty if its caller was deleted.
func (s *Stage) tenantPeer(state *session.State) string {
	s.Helper()
	refs, err := s.Backend.Sessions().Tenant(state.Tenant).Children(s.ctx(), state.ParentID)
	if err != nil {
		return ""
	}
	for _, ref := range refs {
		var at struct{ Peer string }
		if ref.SessionID == state.ID && json.Unmarshal(ref.Remote, &at) == nil {
			return at.Peer
		}
	}
	return ""
}

// shown writes chunks one per line.
func shown(chunks []stream.Chunk) string {
	lines := make([]string, len(chunks))
	for i := range chunks {
		raw, err := chunks[i].Encode()
		if lines[i] = string(raw); err != nil {
			lines[i] = err.Error()
		}
	}
	return strings.Join(lines, "\n")
}
