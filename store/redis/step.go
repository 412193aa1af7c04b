package redis

import (
	"fmt"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
	"github.com/helixagents/helix/stream"
)

// stepKeys are the keys of the script that commits an ordinary step. It gets as
// many as the step needs, in this order.
const (
	stepKeys   = keyHeader + keyMessages + keyMetas + keyNames + keyPoints
	stateKeys  = stepKeys + keyStateLog + keyStateKinds
	callKeys   = stateKeys + keyCalls
	streamKeys = callKeys + keyStream
)

// maxStep is how many rows of a kind the script accepts at once.
const maxStep = 200

// isStep reports whether a change is that of an ordinary step, which has its own
// script.
func isStep(c *session.Change) bool {
	if len(c.Messages) > maxStep || len(c.Calls) > maxStep || len(c.Writes.Ops) > maxStep ||
		(c.Promote != nil && len(c.Promote.Results) > maxStep) {
		return false
	}
	return c.Status == "" && !c.MovesMarks() && c.State == nil && len(c.Pending) == 0 && len(c.Resolve) == 0 &&
		len(c.Waits) == 0 && len(c.Own) == 0 && len(c.Disown) == 0 && len(c.Children) == 0 && len(c.Consume) == 0 &&
		c.Wake == nil && len(c.Tasks) == 0 && c.Outcome == nil && c.ExpiresAt == nil
}

// stepping returns the script that commits an ordinary step. The batch, if there
// is one, must have been appended.
func (s *sessions) stepping(commit *session.Commit, batch *stream.Batch) (*run, error) {
	c := &commit.Change
	letters, left := stepKeys, ""
	switch {
	case batch != nil:
		field, value := trace(batch)
		letters, left = streamKeys, field+"\x00"+value
	case c.Promote != nil || len(c.Calls) > 0:
		letters = callKeys
	case len(c.Writes.Ops) > 0:
		letters = stateKeys
	}
	args, err := s.stepArgs(commit, left)
	if err != nil {
		return nil, err
	}
	return &run{script: commitStep, keys: keyNamesOf(s.prefix(commit.SessionID), letters), args: args}, nil
}

// stepArgs lists a commit's parts in the positions where the script expects them.
func (s *sessions) stepArgs(commit *session.Commit, left string) ([]any, error) {
	c := &commit.Change
	writes, kinds, err := encodeState(c.Writes)
	if err != nil {
		return nil, err
	}
	steps, messages := "", len(c.Messages)
	if c.StepCount != nil {
		steps = itoa(*c.StepCount)
	}
	if c.Promote != nil {
		messages += len(c.Promote.Results)
	}
	point, source, row := pointArgs(commit)
	size := 14 + 3*messages + len(kinds)
	if hasRest(c) {
		size += 2 + 10*len(c.Calls) + 8
	}
	args := make([]any, 0, size)
	args = append(args, left, s.b.stamp(), commit.Key, commit.Version, commit.Version+1, holding(commit), steps,
		point, source, row, writes, messages, len(kinds)/2)
	if args, err = messageArgs(args, c, messages); err != nil {
		return nil, err
	}
	if point != "" {
		args = append(args, "c"+point)
	}
	args = append(args, kinds...)
	if !hasRest(c) {
		return args, nil
	}
	return restArgs(args, c)
}

// holding returns the prefix of the header's pack while the committer's run
// continues under its lease.
func holding(commit *session.Commit) string {
	if commit.Fence.Owner == "" {
		return "\x00" // which no lease has: a lease always has an owner
	}
	return commit.Fence.Owner + "\x00" + itoa(commit.Fence.Epoch) + "\x00" + commit.RunID + "\x00" + string(session.RunRunning) + "\x00"
}

// hasRest reports whether a change has parts that most steps do not have.
func hasRest(c *session.Change) bool { return c.Promote != nil || len(c.Calls) > 0 || c.Run != nil }

// restArgs adds the parts that most steps do not have.
func restArgs(args []any, c *session.Change) (_ []any, err error) {
	promoted := ""
	if c.Promote != nil {
		promoted = c.Promote.MessageID
	}
	args = append(args, promoted, len(c.Calls))
	if args, err = callArgs(args, c.Calls); err != nil || c.Run == nil {
		return args, err
	}
	args = append(args, string(c.Run.CompletionReason))
	usage := c.Run.Usage
	for _, n := range stored.Usage(&usage) {
		args = append(args, *n)
	}
	return args, nil
}

// pointArgs returns the checkpoint's id, its source, and its row from the step to
// the run.
func pointArgs(commit *session.Commit) (id, source, row string) {
	if commit.Checkpoint == nil {
		return "", "", ""
	}
	n := completed(commit.SessionID, *commit.Checkpoint, time.Now())
	row = itoa(n.Step) + "\x00" + string(n.Source) + "\x00" + itoa(n.StreamSequence) + "\x00" + n.ID + "\x00" + commit.RunID
	return n.ID, string(n.Source), row
}

// completed returns a checkpoint with an id and a source.
func completed(id string, n session.NewCheckpoint, at time.Time) session.NewCheckpoint {
	if n.ID == "" {
		n.ID = session.CheckpointID(id, n.Step, at, fmt.Sprint(at.UnixNano()))
	}
	if n.Source == "" {
		n.Source = session.FromSave
	}
	return n
}

// messageArgs adds the bodies, metadata and names of n messages: the change's own,
// then the promoted results.
func messageArgs(args []any, c *session.Change, n int) ([]any, error) {
	at := len(args)
	args = args[:at+3*n]
	put := func(name, meta string, body []byte) {
		args[at], args[at+n], args[at+2*n] = body, meta, name
		at++
	}
	encode := func(m *session.Message) error {
		id, meta, body, err := encodeMessage(m)
		if id != "" {
			id = "m" + id
		}
		put(id, meta, body)
		return err
	}
	for i := range c.Messages {
		if err := encode(&c.Messages[i]); err != nil {
			return nil, err
		}
	}
	if c.Promote == nil {
		return args, nil
	}
	for _, result := range c.Promote.Results {
		if result.Message == nil {
			put(result.CallID, "", nil)
		} else if err := encode(result.Message); err != nil {
			return nil, err
		}
	}
	return args, nil
}
