package postgres

import (
	"crypto/sha256"
	"slices"
	"strings"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

// draft is a change that was checked and encoded, ready to become a statement.
type draft struct {
	*session.Change
	sessionID, runID string
	messages         []stored.Message // to be appended
	promoted         []stored.Message // to be appended after them; those without a body come from their calls' rows
	callIDs          []string         // of promoted
	fromRows         bool             // whether any of promoted comes from a row

	calls    []*callRow
	pending  []*pendingRow
	children []*childRow
	renewed  []string // calls that the change consumes and writes again
	resolve  []session.Resolution
	owned    []ownershipRow
	disowned []string // calls that are not in owned

	writes       []byte // the operations, composed, if there are any
	warnings     []string
	appended     []string             // keys that must be lists or not exist
	keys         []string             // the keys afterwards …
	lists        []bool               // … and whether they contain lists
	deleted      []string             // keys that do not exist afterwards
	whole        *session.CustomState // replaces the state; it includes the writes
	checkpointID string

	outcome, output []byte // the run's outcome, without its output
	ending          []byte // the part of it that the document contains
}

// newDraft encodes a change of a session by a run. at is the approximate time: it
// becomes part of the id of a checkpoint that has none.
func newDraft(c *session.Change, sessionID, runID string, at time.Time) (*draft, error) {
	d := &draft{Change: c, sessionID: sessionID, runID: runID}
	var err error
	if d.messages, err = stored.EncodeMessages(c.Messages); err != nil {
		return nil, err
	}
	if err := d.encodePromotion(); err != nil {
		return nil, err
	}
	if err := d.uniqueMessages(); err != nil {
		return nil, err
	}
	for _, encode := range []func() error{
		d.encodeState, d.encodeCalls, d.encodePending, d.encodeResolutions, d.encodeOwnership, d.encodeChildren, d.encodeOutcome,
	} {
		if err := encode(); err != nil {
			return nil, err
		}
	}
	if c.Checkpoint != nil {
		d.checkpointID = c.Checkpoint.ID
		if d.checkpointID == "" {
			d.checkpointID = session.CheckpointID(sessionID, c.Checkpoint.Step, at, session.NewRunID())
		}
	}
	return d, nil
}

func (d *draft) encodeOutcome() (err error) {
	o := d.Outcome
	if o == nil {
		return nil
	}
	if d.outcome, d.output, err = stored.EncodeOutcome(d.runID, o); err != nil {
		return err
	}
	d.ending, err = stored.EncodeEnding(&session.State{ID: d.sessionID, Error: o.Error, FailureReason: o.FailureReason, Interrupt: o.Interrupt})
	return err
}

// encodePromotion collects the results that a change adds to the transcript.
// Results that the change contains itself are not read from the rows of their
// calls.
func (d *draft) encodePromotion() error {
	if d.Promote == nil {
		return nil
	}
	for _, result := range d.Promote.Results {
		row := stored.Message{}
		if result.Message != nil {
			encoded, err := stored.EncodeMessage(result.Message)
			if err != nil {
				return err
			}
			row = *encoded
		} else {
			d.fromRows = true
		}
		d.promoted = append(d.promoted, row)
		d.callIDs = append(d.callIDs, result.CallID)
	}
	if !d.fromRows {
		d.messages = append(slices.Clip(d.messages), d.promoted...)
		d.promoted = nil
	}
	return nil
}

// uniqueMessages returns an error if a change appends two messages with one id.
func (d *draft) uniqueMessages() error {
	if len(d.messages)+len(d.promoted) < 2 {
		return nil
	}
	seen := make(map[string]bool, len(d.messages))
	for _, rows := range [][]stored.Message{d.messages, d.promoted} {
		for i := range rows {
			id := rows[i].ID
			if id != "" && seen[id] {
				return duplicateMessage(id)
			}
			seen[id] = true
		}
	}
	return nil
}

func duplicateMessage(id string) error {
	return session.Invalid("message id", "%q is already in the session's transcript", id)
}

// encodeState determines what a change does to custom state, as far as possible
// without knowing the state.
func (d *draft) encodeState() error {
	if d.State != nil {
		doc := d.State.Clone()
		if err := doc.Apply(d.Writes); err != nil {
			return err
		}
		d.whole, d.warnings = &doc, d.Writes.Warnings
		return nil
	}
	if len(d.Writes.Ops) == 0 {
		d.warnings = d.Writes.Warnings
		return nil
	}
	kinds := make(map[string]stored.KeyKind, len(d.Writes.Ops))
	for i := range d.Writes.Ops {
		op := &d.Writes.Ops[i]
		if op.Kind == session.OpAppend && len(op.Items) == 0 {
			continue // it does nothing; composing omits it
		}
		was, set := kinds[op.Key]
		switch op.Kind {
		case session.OpAppend:
			if set && was == stored.KeyValue {
				return notAList(op.Key)
			}
			if !set {
				d.appended = append(d.appended, op.Key)
			}
			kinds[op.Key] = stored.KeyList
		case session.OpReplace:
			kinds[op.Key] = stored.KindOf(op.Value)
		default:
			kinds[op.Key] = stored.KeyGone
		}
	}
	composed := session.Compose(d.Writes)
	d.warnings = composed.Warnings
	if composed.Empty() {
		return nil
	}
	for i := range composed.Ops {
		key := composed.Ops[i].Key
		switch kind := kinds[key]; kind {
		case stored.KeyGone:
			d.deleted = append(d.deleted, key)
		default:
			d.keys, d.lists = append(d.keys, key), append(d.lists, kind == stored.KeyList)
		}
	}
	var err error
	d.writes, err = stored.EncodeWrites(composed)
	return err
}

func notAList(key string) error {
	return session.Invalid("state key", "%q is not a list, so nothing can be appended to it", key)
}

// digests returns the stored form of the keys of custom state.
func digests(keys []string) [][]byte {
	out := make([][]byte, len(keys))
	for i, key := range keys {
		sum := sha256.Sum256([]byte(key))
		out[i] = sum[:16]
	}
	return out
}

// refusal is what a statement found that prevents a change.
type refusal struct {
	answered  []string // calls that had to be unanswered
	unsettled []string // calls that had to be settled
	unlisted  []byte   // the digest of a key that had to be a list
}

// err returns the refusal as an error, or nil if there is none.
func (r *refusal) err(d *draft, saw session.Saw) error {
	switch {
	case len(r.answered) > 0:
		slices.Sort(r.answered)
		err := session.ErrAnswered.WithMessage("session %s: answered in the meantime: %s", d.sessionID, strings.Join(r.answered, ", ")).
			WithSaw(saw)
		err.Calls = r.answered
		return err
	case len(r.unsettled) > 0:
		err := session.Invalid("promoted call", "%q has not been settled", r.unsettled[0])
		err.Calls = r.unsettled[:1]
		return err
	case r.unlisted != nil:
		for i, digest := range digests(d.appended) {
			if string(digest) == string(r.unlisted) {
				return notAList(d.appended[i])
			}
		}
	}
	return nil
}
