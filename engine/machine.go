package engine

import (
	"github.com/helixagents/helix/session"
)

// Machine is one turn of an agent: the loop of asking the model, carrying out its
// calls and committing, with no I/O, no clock and no randomness in it. It can be
// stored as JSON between any two waves.
type Machine struct {
	Tenant    string `json:"tenant,omitempty"`
	SessionID string `json:"sessionId"`
	RunID     string `json:"runId"`
	Step      int    `json:"step"`
	Phase     Phase  `json:"phase"`
	// Finish makes the next model call offer nothing but the finish tool.
	Finish bool `json:"finish,omitempty"`
	// Queue holds the calls of phase 2 that have not been asked for yet.
	Queue []string `json:"queue,omitempty"`
}

// Phase is what the machine waits for.
type Phase string

// The phases of a turn.
const (
	PhaseModel  Phase = "model"  // a reply
	PhaseTools  Phase = "tools"  // the calls of phase 1
	PhaseLast   Phase = "last"   // one call of phase 2
	PhaseCommit Phase = "commit" // the results commit
	PhaseClose  Phase = "close"  // the end
)

// Position is where a turn stands when it is opened: at the beginning of a step,
// in the middle of one whose reply is known, or past its last commit.
type Position struct {
	Step   int
	Finish bool
	// Calls are those of a reply that is committed and not yet answered.
	Calls []PlannedCall
	// Ended is set when the run's last commit is done.
	Ended bool
}

// Outcome is how a turn ended for its driver.
type Outcome struct {
	Status session.RunStatus `json:"status,omitempty"`
	// Lost is set when somebody else owns the turn now.
	Lost bool `json:"lost,omitempty"`
}

// NewMachine is the machine of a run, and the first wave of its turn, which
// stands at pos.
func NewMachine(key session.Key, runID string, pos Position) (*Machine, []Effect) {
	m := &Machine{Tenant: key.Tenant, SessionID: key.ID, RunID: runID, Step: pos.Step, Finish: pos.Finish}
	var wave []Effect
	switch {
	case pos.Ended:
		wave = m.close()
	case len(pos.Calls) > 0:
		wave = m.dispatch(pos.Calls)
	default:
		wave = m.ask()
	}
	return m, wave
}

// Next takes the results of the wave before, in its order, and gives the next
// wave, or the end.
func (m *Machine) Next(results []Result) ([]Effect, *Outcome) {
	ended := false
	for i := range results {
		switch results[i].Next {
		case NextLost:
			return nil, &Outcome{Lost: true}
		case NextClose:
			ended = true
		}
	}
	switch {
	case m.Phase == PhaseClose:
		return nil, &Outcome{Status: results[0].Status}
	case ended:
		return m.close(), nil
	}
	switch m.Phase {
	case PhaseModel:
		if results[0].Next == NextTools {
			return m.dispatch(results[0].Calls), nil
		}
		return m.advance(results[0]), nil
	case PhaseCommit:
		return m.advance(results[0]), nil
	}
	return m.drain(), nil
}

func (m *Machine) ask() []Effect {
	m.Phase = PhaseModel
	e := m.effect(CallModel)
	e.Finish = m.Finish
	return []Effect{e}
}

// dispatch asks for all calls of phase 1 at once and queues those of phase 2.
func (m *Machine) dispatch(calls []PlannedCall) []Effect {
	m.Phase, m.Queue = PhaseTools, nil
	var wave []Effect
	for _, c := range calls {
		switch {
		case c.Kind == session.CallFinish:
		case c.Last:
			m.Queue = append(m.Queue, c.ID)
		default:
			wave = append(wave, m.call(c.ID))
		}
	}
	if len(wave) == 0 {
		return m.drain()
	}
	return wave
}

// drain asks for the next call of phase 2, or for the commit.
func (m *Machine) drain() []Effect {
	if len(m.Queue) > 0 {
		id := m.Queue[0]
		m.Phase, m.Queue = PhaseLast, m.Queue[1:]
		return []Effect{m.call(id)}
	}
	m.Phase = PhaseCommit
	e := m.effect(CommitStep)
	e.Finish = m.Finish
	return []Effect{e}
}

// advance begins the next step.
func (m *Machine) advance(r Result) []Effect {
	m.Step++
	m.Finish = r.Next == NextFinish
	return m.ask()
}

func (m *Machine) close() []Effect {
	m.Phase = PhaseClose
	return []Effect{m.effect(CloseTurn)}
}

func (m *Machine) call(id string) Effect {
	e := m.effect(CallTool)
	e.CallID = id
	return e
}

func (m *Machine) effect(kind EffectKind) Effect {
	return Effect{Kind: kind, Tenant: m.Tenant, SessionID: m.SessionID, RunID: m.RunID, Step: m.Step}
}
