package redis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/stored"
)

// Custom state is stored as a log of writes, one entry for each version, and
// snapshots. A commit adds an entry. Snapshots that condense the log are made
// outside commits, once the writes since the last one outweigh it; they contain
// nothing new, so it does not matter who makes them or whether.

// minDelta is how many bytes of writes may accumulate before a reader makes a
// snapshot: below it, replaying them costs less.
const minDelta = 64 << 10

// stateAt builds custom state from the script's answer.
func stateAt(id string, part any) (doc session.CustomState, logged int, err error) {
	parts := list(part)
	if len(parts) < 2 {
		return doc, 0, nil
	}
	if whole := text(parts[1]); whole != "" {
		if err := session.Decode("session "+id+": custom state at version "+text(parts[0]), []byte(whole), &doc); err != nil {
			return doc, 0, err
		}
	}
	for _, entry := range parts[2:] {
		raw := text(entry)
		logged += len(raw)
		var w session.Writes
		if err := session.Decode(fmt.Sprintf("session %s: writes to custom state after version %s", id, text(parts[0])), []byte(raw), &w); err != nil {
			return doc, 0, err
		}
		if err := doc.Apply(w); err != nil {
			return doc, 0, session.ErrCorrupt.WithCause(err, "session %s: custom state cannot be rebuilt", id)
		}
	}
	return doc, logged, nil
}

func (w *batch) readState(version string) {
	w.do("state", keyStateLog+keySnapshots, version)
}

// writeState adds writes to the log.
func (w *batch) writeState(writes session.Writes) error {
	body, kinds, err := encodeState(writes)
	if err == nil && len(body) > 0 {
		w.do("state", keyStateLog+keyStateKinds, append([]any{body}, kinds...)...)
	}
	return err
}

// encodeState encodes writes in the form of the log, and what is known of their
// keys. Both results are nil if nothing is written.
func encodeState(writes session.Writes) ([]byte, []any, error) {
	kinds, err := keyKinds(writes)
	if err != nil || len(kinds) == 0 {
		return nil, nil, err
	}
	if len(writes.Ops) > 1 {
		writes = session.Compose(writes)
	}
	body, err := stored.EncodeWrites(writes)
	return body, kinds, err
}

// keyKinds returns for each key that writes touch what it becomes, after "1" if it
// must already be a list, should it exist. It refuses what the writes themselves
// make impossible; the script refuses the rest.
func keyKinds(writes session.Writes) ([]any, error) {
	switch len(writes.Ops) {
	case 0:
		return nil, nil
	case 1:
		return oneKind(&writes.Ops[0]), nil
	}
	var order []string
	needs, becomes := map[string]string{}, map[string]string{}
	for i := range writes.Ops {
		op := &writes.Ops[i]
		if op.Kind == session.OpAppend && len(op.Items) == 0 {
			continue
		}
		kind, touched := becomes[op.Key]
		if !touched {
			order = append(order, op.Key)
		}
		switch op.Kind {
		case session.OpAppend:
			if touched && kind == "v" {
				return nil, notList(op.Key)
			}
			if !touched {
				needs[op.Key] = "1"
			}
			becomes[op.Key] = "l"
		case session.OpReplace:
			becomes[op.Key] = kindOf(op.Value)
		case session.OpDelete:
			becomes[op.Key] = ""
		}
	}
	out := make([]any, 0, 2*len(order))
	for _, key := range order {
		out = append(out, key, needs[key]+becomes[key])
	}
	return out, nil
}

// oneKind is keyKinds for a single write.
func oneKind(op *session.Op) []any {
	switch {
	case op.Kind == session.OpReplace:
		return []any{op.Key, kindOf(op.Value)}
	case op.Kind == session.OpDelete:
		return []any{op.Key, ""}
	case op.Kind == session.OpAppend && len(op.Items) > 0:
		return []any{op.Key, "1l"}
	}
	return nil
}

func kindOf(value json.RawMessage) string {
	if session.IsList(value) {
		return "l"
	}
	return "v"
}

// writeWhole replaces custom state.
func (w *batch) writeWhole(id string, doc *session.CustomState) error {
	body, err := doc.MarshalJSON()
	if err != nil {
		return session.ErrInvalid.WithCause(err, "session %s: custom state cannot be encoded", id)
	}
	args := []any{body}
	for key, value := range doc.All() {
		args = append(args, key, kindOf(value))
	}
	w.do("whole", keySnapshots+keyStateKinds, args...)
	return nil
}

// outweighs reports whether the writes that were read outweigh the snapshot before
// them.
func outweighs(logged int, part any) bool {
	parts := list(part)
	return len(parts) > 1 && logged > max(2*len(text(parts[1])), minDelta)
}

// condense makes a snapshot of custom state as it was read. Nobody depends on it.
func (s *sessions) condense(ctx context.Context, h *header, doc *session.CustomState) {
	body, err := doc.MarshalJSON()
	if err == nil {
		// Only the incarnation that was read may get it: a session that was created again
		// under the same id has another state at this version.
		w := &batch{}
		w.do("same", "", "born", h.raw["born"])
		w.do("snapshot", keySnapshots, h.raw["v"], body)
		_, err = s.apply(ctx, h.ID, "condense", "", w)
	}
	if _, refused := errors.AsType[*refusal](err); err != nil && !refused {
		s.b.config.Logger.WarnContext(ctx, "custom state could not be condensed", "tenant", s.tenant, "session", h.ID, "error", err)
	}
}
