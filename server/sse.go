package server

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"strconv"

	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// sse sends a session's stream, or the part that a run wrote.
func (x *exchange) sse() error {
	ctx := x.r.Context()
	query := x.r.URL.Query()
	state, err := x.session(ctx, "sessionId", query.Get("sessionId"))
	if err != nil {
		return err
	}
	from, err := x.from()
	if err != nil {
		return err
	}
	if runID := query.Get("run"); runID != "" {
		run, err := x.run(ctx, state, runID)
		if err != nil {
			return err
		}
		x.runID = run.ID
		handle := x.handle(state, run)
		return x.follow(func(ctx context.Context) iter.Seq2[stream.Item, error] { return handle.StreamFrom(ctx, from) }, streamFrames{x})
	}
	return x.follow(func(ctx context.Context) iter.Seq2[stream.Item, error] {
		return x.streams.Read(ctx, state.StreamID, from, false)
	}, streamFrames{x})
}

// from returns the sequence after which reading starts. The browser's Last-Event-ID is
// newer than the page's original parameter.
func (x *exchange) from() (int64, error) {
	field, text := wire.HeaderLastEventID, x.r.Header.Get(wire.HeaderLastEventID)
	if text == "" {
		field, text = "from", x.r.URL.Query().Get("from")
	}
	if text == "" {
		return 0, nil
	}
	from, err := strconv.ParseInt(text, 10, 64)
	if err != nil || from < 0 {
		return 0, session.Invalid(field, "%.40q is not a sequence", text)
	}
	return from, nil
}

// run reads a run's record.
func (x *exchange) run(ctx context.Context, state *session.State, runID string) (*session.Run, error) {
	if err := session.CheckKeyID("run", runID); err != nil {
		return nil, err
	}
	run, err := x.sessions.Run(ctx, state.ID, runID)
	if errors.Is(err, session.ErrNotFound) {
		return nil, session.ErrNotFound.WithMessage("session %s has no run %s", state.ID, runID)
	}
	return run, err
}

// streamFrames are the frames of GET /sse.
type streamFrames struct{ x *exchange }

func (streamFrames) header(http.Header) {}

func (streamFrames) idle(*frames) error { return nil }

func (f streamFrames) encode(out *frames, item stream.Item) (last bool, err error) {
	kind := string(item.Frame)
	switch item.Frame {
	case stream.FrameChunk, stream.FrameRewound:
		item.Chunk = f.x.shownChunk(item.Chunk)
		return false, out.encode(kind, item.Sequence, chunkData{item})
	case stream.FrameCaughtUp:
		return false, out.encode(kind, 0, wire.CaughtUp{Sequence: item.Sequence})
	case stream.FrameEnd:
		return true, out.encode(kind, 0, item.End)
	case stream.FrameFail:
		return true, out.encode(kind, 0, failed(f.x.shown(item.Error)))
	case stream.FrameTruncated:
		return true, out.encode(kind, 0, wire.Truncated{Floor: item.Floor})
	}
	return false, session.ErrInternal.WithMessage("a stream has the unknown frame %q", item.Frame)
}

func (streamFrames) cut(out *frames, why wire.Fail) { _ = out.encode(string(stream.FrameFail), 0, why) }

// failed returns the frame of a failed run.
func failed(err *session.Error) wire.Fail {
	if err == nil {
		err = session.ErrInternal
	}
	return wire.Fail{Message: err.Message, Code: err.Code, Retryable: err.Retryable}
}

// chunkData is a [wire.Chunk] with a hand-written encoder, because every token passes here.
type chunkData struct{ item stream.Item }

// AppendJSON appends the frame's data to b.
func (c chunkData) AppendJSON(b []byte) ([]byte, error) {
	b = append(b, `{"sequence":`...)
	b = strconv.AppendInt(b, c.item.Sequence, 10)
	b = append(b, `,"chunk":`...)
	b, err := c.item.Chunk.AppendJSON(b)
	return append(b, '}'), err
}
