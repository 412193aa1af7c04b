package machine

import (
	"slices"

	"github.com/helixagents/helix/session"
)

// Machine is one turn of an agent: the loop of asking the model, carrying out its
// calls and committing. It can be stored as JSON between any two waves.
type Machine struct {
	Tenant    string `json:"tenant,omitempty"`
	SessionID string `json:"sessionId"`
	RunID     string `json:"runId"`
	Epoch     int64  `json:"epoch,omitempty"`
	Step      int    `json:"step"`
	Phase     Phase  `json:"phase"`
	// Finish makes the next model call offer nothing but the finish tool.
	Finish bool `json:"finish,omitempty"`
	// Serial holds the serial calls of phase 1 that have not been dispatched yet, in call
	// order. At most one of them is in a wave.
	Serial []SerialCall `json:"serial,omitempty"`
	// Queue holds the calls of phase 2 that have not been dispatched yet.
	Queue []string `json:"queue,omitempty"`
	// Waits is set while the step has calls that may have to wait for a person or
	// another agent. Round counts how often their answers were gathered.
	Waits bool `json:"waits,omitempty"`
	Round int  `json:"round,omitempty"`
}

// SerialCall is a call that does not run beside other serial calls.
type SerialCall struct {
	ID string `json:"id"`
	// Waits is set if a person answers the call; Ready, if that was done.
	Waits bool `json:"waits,omitempty"`
	Ready bool `json:"ready,omitempty"`
}

// Phase is what the machine waits for.
type Phase string

// The phases of a turn.
const (
	PhaseModel  Phase = "model"  // a reply
	PhaseTools  Phase = "tools"  // the calls of phase 1
	PhaseGather Phase = "gather" // answers
	PhaseLast   Phase = "last"   // one call of phase 2
	PhaseCommit Phase = "commit" // the results commit
	PhaseClose  Phase = "close"  // the end
)

// Position is where a turn stands when it is opened: at the beginning of a step,
// in the middle of one whose reply is known, or past its last commit.
type Position struct {
	// Epoch is that of the lease under which the turn was opened. A turn that is taken
	// over has another one, so that effects of a machine that was made before are not
	// carried out in it.
	Epoch  int64 `json:"epoch,omitempty"`
	Step   int   `json:"step"`
	Finish bool  `json:"finish,omitempty"`
	// Calls are those of a reply that is committed and not yet answered.
	Calls []PlannedCall `json:"calls,omitempty"`
	// Resumed is set when the calls are those of a step in which an earlier run
	// suspended. The turn then begins by gathering answers.
	Resumed bool `json:"resumed,omitempty"`
	// Ended is set when the run's last commit is done.
	Ended bool `json:"ended,omitempty"`
}

// Outcome is how a turn ended for its driver.
type Outcome struct {
	Status session.RunStatus `json:"status,omitempty"`
	// Lost is set when another process owns the turn now.
	Lost bool `json:"lost,omitempty"`
	// Abort, Wake and StopUndelivered are those of the last [Result].
	Abort           *session.Stop `json:"abort,omitempty"`
	Wake            bool          `json:"wake,omitempty"`
	StopUndelivered bool          `json:"owes,omitempty"`
}

// New returns the machine of a run whose turn stands at pos, and the first wave.
func New(key session.Key, runID string, pos Position) (*Machine, []Effect) {
	m := &Machine{Tenant: key.Tenant, SessionID: key.ID, RunID: runID, Epoch: pos.Epoch, Step: pos.Step, Finish: pos.Finish}
	var wave []Effect
	switch {
	case pos.Ended:
		wave = m.close()
	case len(pos.Calls) > 0:
		wave = m.plan(pos.Calls)
		if pos.Resumed { // calls that wait for nobody have ended, but for serial ones
			wave = nil
		}
		if wave = m.addSerial(wave); len(wave) == 0 {
			wave = m.drain()
		}
	default:
		wave = m.ask()
	}
	return m, wave
}

// Next takes the results of the previous wave, in its order, and returns the next
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
		return nil, results[0].Outcome()
	case ended:
		return m.close(), nil
	}
	switch m.Phase {
	case PhaseTools, PhaseLast:
		for i := range results {
			m.Waits = m.Waits || results[i].Waits
		}
	case PhaseModel:
		if results[0].Next == NextTools {
			if wave := m.addSerial(m.plan(results[0].Calls)); len(wave) > 0 {
				return wave, nil
			}
			return m.drain(), nil
		}
		return m.advance(results[0]), nil
	case PhaseGather:
		if results[0].Next == NextTools {
			return m.dispatch(results[0].Calls), nil
		}
		m.Waits = false
	case PhaseCommit:
		if results[0].Next != NextGather {
			return m.advance(results[0]), nil
		}
		m.Waits = true
	}
	return m.drain(), nil
}

func (m *Machine) ask() []Effect {
	m.Phase = PhaseModel
	e := m.effect(CallModel)
	e.Finish = m.Finish
	return []Effect{e}
}

// plan dispatches the calls of phase 1 that need no person and queues serial ones and
// those of phase 2.
func (m *Machine) plan(calls []PlannedCall) []Effect {
	m.Serial, m.Queue, m.Waits, m.Round = nil, nil, false, 0
	m.Phase = PhaseTools
	var wave []Effect
	for _, c := range calls {
		m.Waits = m.Waits || Waits(c.Kind)
		switch {
		case c.Kind == session.CallFinish:
		case c.Serial:
			m.Serial = append(m.Serial, SerialCall{ID: c.ID, Waits: WaitsForPerson(c.Kind), Ready: c.Ready})
		case WaitsForPerson(c.Kind) && !c.Ready: // a call of phase 2, too, that has asked
		case c.Last:
			m.Queue = append(m.Queue, c.ID)
		default:
			wave = append(wave, m.dispatched(c))
		}
	}
	return wave
}

// dispatch asks for calls whose answers have arrived, all at once but for serial ones.
func (m *Machine) dispatch(calls []PlannedCall) []Effect {
	m.Phase = PhaseTools
	var wave []Effect
	for _, c := range calls {
		at := slices.IndexFunc(m.Serial, func(s SerialCall) bool { return s.ID == c.ID })
		if at >= 0 {
			m.Serial[at].Ready = true
			continue
		}
		wave = append(wave, m.dispatched(c))
	}
	return m.addSerial(wave)
}

// addSerial adds the next serial call to a wave, if one can be carried out: the first whose
// answer has arrived, or that is not behind one that waits for a person.
func (m *Machine) addSerial(wave []Effect) []Effect {
	blocked := false
	for i, c := range m.Serial {
		if c.Ready || !m.Waits || (!c.Waits && !blocked) {
			m.Serial = append(m.Serial[:i:i], m.Serial[i+1:]...)
			return append(wave, m.call(c.ID))
		}
		blocked = blocked || c.Waits
	}
	return wave
}

// dispatched asks for one call.
func (m *Machine) dispatched(c PlannedCall) Effect {
	e := m.call(c.ID)
	switch {
	case WaitsForAgent(c.Kind):
		e.Kind, e.Round = CallChild, m.Round
	case c.Kind == session.CallQuestion: // it has been carried out before
		e.Round = m.Round
	}
	return e
}

// drain asks for serial calls that can be carried out, one by one, then for answers, then
// for the calls of phase 2, one by one, then for the commit.
func (m *Machine) drain() []Effect {
	if wave := m.addSerial(nil); len(wave) > 0 {
		m.Phase = PhaseTools
		return wave
	}
	var e Effect
	switch {
	case m.Waits:
		m.Phase = PhaseGather
		e = m.effect(Gather)
		m.Round++
		e.Round = m.Round
	case len(m.Queue) > 0:
		m.Phase = PhaseLast
		e = m.call(m.Queue[0])
		m.Queue = m.Queue[1:]
	default:
		m.Phase = PhaseCommit
		e = m.effect(CommitStep)
		e.Finish = m.Finish
	}
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
	return Effect{Kind: kind, Tenant: m.Tenant, SessionID: m.SessionID, RunID: m.RunID, Epoch: m.Epoch, Step: m.Step}
}
