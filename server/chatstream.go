package server

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"slices"

	"github.com/helixagents/helix/server/aisdk"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
)

// chatFrames encodes the frames of a chat's stream.
type chatFrames struct {
	encoder *aisdk.Encoder
	first   []aisdk.Chunk // chunks to send before the stream's own
	// held are chunks of a step that may still be discarded, for a client that cannot remove
	// them: they are sent once the session has continued, and dropped if it discards them.
	held    []stream.Item
	session string
	alive   func() bool // whether the session's lease is still renewed
}

func (*chatFrames) header(h http.Header) { h.Set("X-Vercel-Ai-Ui-Message-Stream", "v1") }

func (f *chatFrames) encode(out *frames, item stream.Item) (last bool, err error) {
	if err := f.write(out, f.first); err != nil {
		return false, err
	}
	f.first = nil
	for _, item := range f.release(item) {
		var chunks []aisdk.Chunk
		switch {
		case item.Frame == stream.FrameTruncated:
			chunks = []aisdk.Chunk{{Type: aisdk.TypeError, ErrorText: "The stream no longer has the next chunks. Load the chat again."}}
			last = true
		case item.Terminal():
			chunks = f.encoder.Finish(item)
			last = true
		case item.Chunk != nil:
			chunks = f.encoder.Encode(item.Sequence, item.Chunk)
		}
		if err := f.write(out, chunks); err != nil {
			return false, err
		}
	}
	if last {
		out.event("", 0, []byte(aisdk.Done))
	}
	return last, nil
}

func (*chatFrames) write(out *frames, chunks []aisdk.Chunk) error {
	for i := range chunks {
		if err := out.encode("", 0, &chunks[i]); err != nil {
			return err
		}
	}
	return nil
}

// release returns the items that can be sent after item. Held items wait until the session
// itself continues: it then either discards the step or continues it.
func (f *chatFrames) release(item stream.Item) []stream.Item {
	if f.held == nil {
		return []stream.Item{item}
	}
	f.held = append(f.held, item)
	own := item.Chunk != nil && item.Chunk.AgentID == f.session
	if !own && !item.Terminal() && len(f.held) < maxReplay {
		return nil
	}
	items := aisdk.Prune(f.session, f.held)
	f.held = nil
	f.encoder.Known(items)
	return items
}

// idle is called while nothing arrives. A step with a long tool call is silent, too; its
// text is sent once it is certain that a process works on it.
func (f *chatFrames) idle(out *frames) error {
	if f.held == nil || !f.alive() {
		return nil
	}
	items := f.held
	f.held = nil
	f.encoder.Known(items)
	for i := range items {
		if items[i].Chunk != nil {
			if err := f.write(out, f.encoder.Encode(items[i].Sequence, items[i].Chunk)); err != nil {
				return err
			}
		}
	}
	return nil
}

// cut ends the stream with an error, because a client would take a body that just ends for
// a complete reply.
func (*chatFrames) cut(out *frames, why wire.Fail) {
	_ = out.encode("", 0, &aisdk.Chunk{Type: aisdk.TypeError, ErrorText: why.Message}) // strings always encode
}

func (x *exchange) encoder(version aisdk.Version, sessionID, messageID, runID string) *aisdk.Encoder {
	return aisdk.NewEncoder(aisdk.Config{
		Version: version, SessionID: sessionID, MessageID: messageID, RunID: runID, ErrorText: x.userText,
		Options: x.server.cfg.Chat,
	})
}

// stream responds with the run of a request.
func (x *exchange) stream(ctx context.Context, version aisdk.Version, turn *chatTurn) error {
	state, run, err := x.opened(ctx, turn.run)
	if err != nil {
		return err
	}
	encoder := x.encoder(version, state.ID, turn.messageID, run.ID)
	if turn.continues {
		encoder.Continue(turn.waiting)
	}
	return x.followRun(state, run, turn.from, &chatFrames{encoder: encoder, first: encoder.Start()})
}

func (x *exchange) followRun(state *session.State, run *session.Run, from int64, to *chatFrames) error {
	handle := x.handle(state, run)
	return x.follow(func(ctx context.Context) iter.Seq2[stream.Item, error] { return handle.StreamFrom(ctx, from) }, to)
}

// chatStream resumes the reply in progress, from its beginning unless the client has that.
func (x *exchange) chatStream() error {
	version, err := x.sdk()
	if err != nil {
		return err
	}
	q := x.query()
	asked, tail := q.Get("run"), q.flag("tail")
	if q.err != nil {
		return q.err
	}
	from, err := x.from()
	if err != nil {
		return err
	}
	ctx := x.r.Context()
	state, err := x.session(ctx, "id", x.r.PathValue("id"))
	if errors.Is(err, session.ErrNotFound) { // a page may ask before the first message
		x.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if err != nil {
		return err
	}
	run, err := x.current(ctx, state.ID)
	if err != nil {
		return x.hide(state.ID, err)
	}
	if run != nil && asked == "" && x.server.reloads.resumes(x.browser(state.ID), run.ID) {
		asked = run.ID
	}
	if run == nil || (run.Status != session.RunRunning && asked == "") {
		x.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if err := x.server.enter(x); err != nil { // before much is read
		return err
	}
	shot, err := x.recent(ctx, state.ID)
	if err != nil {
		return x.hide(state.ID, err)
	}
	if shot.Run == nil || (shot.Run.Status != session.RunRunning && asked == "") {
		x.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	x.runID = shot.Run.ID
	group := aisdk.Last(state.ID, shot.Messages)
	to := &chatFrames{encoder: x.encoder(version, state.ID, group.ID, shot.Run.ID)}
	to.first = to.encoder.Start()
	if tail && from == 0 {
		to.encoder.Continue(nil)
		info, err := x.streams.Info(ctx, state.StreamID)
		if err != nil {
			return err
		}
		return x.followRun(state, shot.Run, info.Last, to)
	}
	if from > 0 {
		to.encoder.Continue(nil)
		return x.catchUp(state, shot, from, to)
	}
	return x.replayFrom(state, shot, &group, to)
}

// replay sends a finished or running reply from its beginning.
func (x *exchange) replay(version aisdk.Version, state *session.State, messageID string) error {
	shot, err := x.recent(x.r.Context(), state.ID)
	if err != nil {
		return x.hide(state.ID, err)
	}
	group := aisdk.Last(state.ID, shot.Messages)
	if group.ID != messageID || shot.Run == nil {
		return refuse(http.StatusConflict, session.CodeStale, "The conversation has continued since that message. Load it again.")
	}
	x.runID = shot.Run.ID
	to := &chatFrames{encoder: x.encoder(version, state.ID, group.ID, shot.Run.ID)}
	to.first = to.encoder.Start()
	return x.replayFrom(state, shot, &group, to)
}

// replayFrom sends the committed messages of a reply, and then what follows them.
func (x *exchange) replayFrom(state *session.State, shot *store.Snapshot, group *aisdk.Group, to *chatFrames) error {
	waits, err := x.chats().waits(x.r.Context(), state, group.Reply)
	if err != nil {
		return err
	}
	to.first = append(to.first, to.encoder.Replay(group.Reply, waits)...)
	return x.catchUp(state, shot, shot.Sequence, to)
}

// catchUp sends what the stream holds after a sequence, of all runs, because one run may
// have started a step that the next one continued. Then it follows the stream.
func (x *exchange) catchUp(state *session.State, shot *store.Snapshot, from int64, to *chatFrames) error {
	ctx := x.r.Context()
	items, last, err := x.since(ctx, state.StreamID, from)
	if err != nil {
		return err
	}
	items = aisdk.Prune(state.ID, items)
	if shot.Run.Status == session.RunRunning && !to.encoder.CanDiscard() {
		at, err := x.inFlight(ctx, shot, items)
		if err != nil {
			return x.hide(state.ID, err)
		}
		if at < len(items) {
			to.held, to.session = slices.Clone(items[at:]), state.ID
			to.alive = x.renewed(state.ID, shot.State.Lease)
		}
		items = items[:at]
	}
	to.encoder.Known(items)
	for i := range items {
		to.first = append(to.first, to.encoder.Encode(items[i].Sequence, items[i].Chunk)...)
	}
	return x.followRun(state, shot.Run, last, to)
}

// inFlight returns where the step begins whose process may have died: a process that
// recovers the run repeats its reply. A stored reply stays.
func (x *exchange) inFlight(ctx context.Context, shot *store.Snapshot, items []stream.Item) (int, error) {
	at, reply := aisdk.InFlight(shot.State.ID, items)
	if at == len(items) {
		return at, nil
	}
	stored, err := x.messages(ctx, shot.State.ID, session.PageRequest{Offset: shot.Skipped + len(shot.Messages), Limit: session.MaxPageSize})
	if err != nil {
		return 0, err
	}
	if slices.ContainsFunc(stored.Items, func(m session.Message) bool { return m.ID == reply }) {
		return len(items), nil
	}
	return at, nil
}

// renewed returns a function that reports whether the holder of a lease has renewed it
// since.
func (x *exchange) renewed(id string, lease session.Lease) func() bool {
	return func() bool {
		state, err := x.sessions.Load(x.r.Context(), id)
		return err == nil && state.Lease.Epoch == lease.Epoch && state.Lease.ExpiresAt.After(lease.ExpiresAt)
	}
}

// Limits of what is read of a stream before it is followed.
const (
	replayPage  = 128
	maxReplay   = 1 << 15
	replayBytes = 8 << 20
)

// since returns what a stream holds after a sequence, and where that ends.
func (x *exchange) since(ctx context.Context, streamID string, from int64) (items []stream.Item, last int64, err error) {
	size, encoded := 0, []byte(nil)
	for last = from; len(items) < maxReplay; {
		page, err := x.streams.Chunks(ctx, streamID, last, replayPage)
		switch {
		case errors.Is(err, session.ErrNotFound): // it is about to be opened
			return items, last, nil
		case errors.Is(err, session.ErrTruncated) && len(items) == 0:
			info, err := x.streams.Info(ctx, streamID)
			if err != nil {
				return nil, 0, err
			}
			switch {
			case last > info.Last: // whoever follows the stream from there is told
				return nil, last, nil
			case last >= info.Floor:
				return nil, 0, session.ErrUnavailable
			}
			last = info.Floor
			continue
		case err != nil:
			return nil, 0, err
		}
		for i := range page {
			if page[i].Chunk != nil {
				if encoded, err = page[i].Chunk.AppendJSON(encoded[:0]); err != nil {
					return nil, 0, err
				}
				size += len(encoded)
			}
			items, last = append(items, page[i]), page[i].Sequence
			if size >= replayBytes { // the rest arrives while the stream is followed
				return items, last, nil
			}
		}
		if len(page) < replayPage {
			break
		}
	}
	return items, last, nil
}
