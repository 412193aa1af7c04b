package engine

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/access"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// Limits of what one extension adds before a model call.
const (
	maxPrepared      = 16
	maxPreparedBytes = 256 << 10
)

// preparedInfix is part of the ids of messages that extensions add: it follows the run's
// id, and the extension's name, the step if it was asked again, and a number follow it.
const preparedInfix = "/prepare/"

// prepare asks the extensions for messages that follow the user's, before the run's first
// model call, and once more before the one that follows a summary, which has taken the
// place of the earlier messages. The reply's commit stores them. If another process takes
// the run over before that, it asks again.
func (t *turn) prepare(ctx context.Context, e effect) error {
	if t.asked == e.Step || !haveMethod[helix.Preparer](t.tools.extensions) {
		return nil
	}
	again := e.Step != 1 || t.resumes
	if again && !t.summarised() {
		return nil
	}
	return t.askPreparers(ctx, e, again)
}

// askPreparers is prepare for a step in which extensions are asked, for the first time in
// the run or again.
func (t *turn) askPreparers(ctx context.Context, e effect, again bool) error {
	answers := ask(ctx, t.tools.extensions, e.Key(), prepareLimit, func(ctx context.Context, of helix.Preparer, turn *helix.Turn) ([]session.Message, error) {
		if !again && t.run.Kind != session.RunExecute && preparedBefore(turn.View, of.(helix.Extension).Name()) {
			return nil, nil
		}
		name := of.(helix.Extension).Name()
		ctx, seen := t.observe(ctx, helix.ActivityPrepare, e.Key()+preparedInfix+name, name, "", 0)
		messages, err := of.Prepare(ctx, turn)
		seen.end(endingOf(err))
		return messages, err
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t.asked = e.Step
	for i := range answers {
		a := &answers[i]
		var messages []session.Message
		if a.err == nil {
			messages, a.err = t.preparedBy(a.from, a.value, again)
		}
		if a.err != nil {
			t.h.log.WarnContext(ctx, "extension.prepare_failed", t.tools.extensions.failure(a.from.Name(), a.err, "the turn goes on without its messages")...)
			continue
		}
		if len(messages) > 0 {
			t.prepared = append(t.prepared, messages...)
			t.emit(stream.Chunk{Kind: stream.InputReceived, Messages: messages})
		}
	}
	return nil
}

// summarised reports whether the model is yet to reply to a summary.
func (t *turn) summarised() bool {
	messages := t.transcript.Messages()
	for i := len(messages) - 1; i >= 0 && messages[i].Role == session.RoleUser; i-- {
		if c := messages[i].Compaction(); c != nil && c.Kind == session.CompactionSummary {
			return true
		}
	}
	return false
}

// preparedBefore reports whether an extension has added messages since the last message
// that people see.
func preparedBefore(messages []session.Message, name string) bool {
	for i := len(messages) - 1; i >= 0; i-- {
		m := &messages[i]
		switch {
		case m.Role != session.RoleUser:
		case !m.Hidden():
			return false
		case strings.HasPrefix(m.ID, m.RunID+preparedInfix+name+"/"):
			return true
		}
	}
	return false
}

// preparedBy makes hidden messages of what an extension returned. Those of an extension
// that was asked again name the step in their ids.
func (t *turn) preparedBy(extension helix.Extension, given []session.Message, again bool) ([]session.Message, error) {
	prefix := t.run.ID + preparedInfix + extension.Name() + "/"
	if again {
		prefix += "s" + strconv.Itoa(t.current()) + "/"
	}
	if len(given) > maxPrepared {
		return nil, session.Invalid("messages", "are %d, at most %d are allowed", len(given), maxPrepared)
	}
	size := 0
	messages := make([]session.Message, len(given))
	for i := range given {
		m := session.Message{
			ID: prefix + strconv.Itoa(i), Role: session.RoleUser,
			RunID: t.run.ID, Step: t.current(), At: time.Now().UTC(), Metadata: given[i].Metadata,
		}
		if role := given[i].Role; role != "" && role != session.RoleUser {
			return nil, session.Invalid("message role", "%q cannot be added; only user messages can", role)
		}
		for _, part := range given[i].Parts {
			if part.Kind != session.PartText && part.Kind != session.PartFile {
				return nil, session.Invalid("message", "has a part of the kind %q; only text and files can be added", part.Kind)
			}
			part.Text = cleanText(part.Text)
			m.Parts = append(m.Parts, part)
		}
		for key, value := range m.Metadata {
			if strings.HasPrefix(key, "helix") && !access.IsFramework(extension) {
				return nil, session.Invalid("message metadata", "%q is reserved for the framework", key)
			}
			if err := session.CheckJSON("message metadata "+key, value); err != nil {
				return nil, err
			}
		}
		m = helix.Hidden(m)
		m.Metadata[session.MetaHidden] = []byte("true") // whatever it was given
		if err := m.Check(); err != nil {
			return nil, err
		}
		raw, err := m.AppendJSON(nil)
		if err != nil {
			return nil, fmt.Errorf("encode a message: %w", err)
		}
		if size += len(raw); size > maxPreparedBytes {
			return nil, session.ErrTooLarge.WithMessage("the messages have more than %d bytes", maxPreparedBytes)
		}
		messages[i] = m
	}
	return messages, nil
}

// withPrepared puts what extensions have added before a reply and its results.
func (t *turn) withPrepared(messages ...session.Message) []session.Message {
	if len(t.prepared) == 0 {
		return messages
	}
	return append(slices.Clip(t.prepared), messages...)
}

// withdrawPrepared takes back what watchers saw of the messages that extensions have added,
// because no reply is committed with them.
func (t *turn) withdrawPrepared(reason string) {
	if len(t.prepared) == 0 {
		return
	}
	t.prepared = nil
	count := t.transcript.Len()
	t.emit(stream.Chunk{
		Kind: stream.StepDiscarded, Scope: stream.ScopeReply, Reason: reason, MessageID: session.ReplyID(t.run.ID, t.current()), MessageCount: &count,
	})
}

// messages are what the model is sent: the view, and what extensions have added to it
// that is not committed yet.
func (t *turn) messages() []session.Message {
	messages := t.transcript.View()
	if len(t.prepared) > 0 {
		messages = append(messages, t.prepared...)
	}
	return messages
}
