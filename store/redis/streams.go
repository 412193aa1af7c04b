package redis

import (
	"context"
	"fmt"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/feed"
	"github.com/helixagents/helix/store/internal/stored"
	"github.com/helixagents/helix/stream"
)

// streams is the stream manager of one tenant. A stream shares its slot with the
// session of its id.
type streams struct {
	b      *Backend
	tenant string
}

var _ stream.Manager = (*streams)(nil)

// Tenant implements [stream.Manager].
func (s *streams) Tenant(tenant string) stream.Manager { return &streams{s.b, orDefault(tenant)} }

// Limits implements [stream.Manager].
func (s *streams) Limits() stream.Limits { return stream.Limits{MaxChunk: s.b.config.MaxChunk} }

func streamVerb(id, verb string) string { return "stream " + id + ": " + verb }

func noStream(id string) error { return notFound("stream %s", id) }

// streamHead is a stream's header.
type streamHead struct {
	stream.Info
	incarnation string // distinguishes it from another stream with the same id
}

// look reads a stream's header and up to limit chunks after a sequence, or roughly
// size bytes of them; nil if there is no stream.
func (s *streams) look(ctx context.Context, id, verb string, from int64, limit, size int) (*streamHead, []any, error) {
	name := streamVerb(id, verb)
	if err := s.b.begin(ctx, name); err != nil {
		return nil, nil, err
	}
	prefix := s.b.keys.session(s.tenant, id)
	out, err := s.b.eval(ctx, readStream, []string{prefix + keyStream, prefix + keyChunks},
		[]any{keyStream + keyChunks, s.b.stamp(), max(from, 0), limit, size})
	if err != nil {
		return nil, nil, failure(name, err)
	}
	parts := list(out)
	if len(parts) == 0 {
		return nil, nil, nil
	}
	h, err := decodeHead(id, list(parts[0]))
	return h, list(parts[1]), err
}

func decodeHead(id string, parts []any) (*streamHead, error) {
	field := func(i int) string { return text(parts[i]) }
	h := &streamHead{incarnation: field(0)}
	h.Info = stream.Info{
		ID: id, Status: stream.Status(field(1)), Last: number(field(2)), Floor: number(field(3)), RunID: field(4),
		CreatedAt: moment(field(8)), UpdatedAt: moment(field(9)), Bytes: number(field(10)),
	}
	if raw := field(5); raw != "" {
		h.End = &stream.End{}
		if err := session.Decode("stream "+id+": its end", []byte(raw), h.End); err != nil {
			return nil, err
		}
		h.End.Output = bytesOf(field(6))
	}
	if raw := field(7); raw != "" {
		h.Error = &session.Error{}
		if err := session.Decode("stream "+id+": its failure", []byte(raw), h.Error); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// change runs a script that changes a stream, and notifies its readers in this
// process; the script notifies the others.
func (s *streams) change(ctx context.Context, id, verb, act string, args ...any) ([]any, error) {
	name := streamVerb(id, verb)
	if err := s.b.begin(ctx, name); err != nil {
		return nil, err
	}
	r := s.writing(id, act, args...)
	s.b.evalAll(ctx, r)
	return s.changed(id, name, r)
}

// writing returns the script that changes a stream, with its arguments.
func (s *streams) writing(id, act string, args ...any) *run {
	prefix, channel := s.b.keys.session(s.tenant, id), s.b.keys.channel(s.tenant, id)
	return &run{
		script: writeStream, keys: []string{prefix + keyStream, prefix + keyChunks},
		args: append([]any{keyStream + keyChunks, s.b.stamp(), act, channel}, args...),
	}
}

// changed reads the answer of a script that changes a stream.
func (s *streams) changed(id, name string, r *run) ([]any, error) {
	if r.err != nil {
		return nil, failure(name, r.err)
	}
	parts := list(r.out)
	if text(parts[0]) == "missing" {
		return nil, noStream(id)
	}
	if len(parts) < 3 { // else it is a batch that readers get; see appended
		s.b.watch.hub.Notify(s.b.keys.channel(s.tenant, id))
	}
	return parts, nil
}

// publish passes a batch to the readers in this process.
func (s *streams) publish(id, incarnation string, last int64, pieces [][]byte) {
	first, size := last-int64(len(pieces))+1, 0
	for _, piece := range pieces {
		size += len(piece)
	}
	s.b.watch.hub.Publish(s.b.keys.channel(s.tenant, id), &feed.Batch{
		Incarnation: incarnation, First: first, Last: last, Bytes: size,
		Items: func(after int64) (items []stream.Item, err error) {
			for i, piece := range pieces[max(0, after+1-first):] {
				item, err := stored.DecodeChunk(id, max(first, after+1)+int64(i), piece)
				if err != nil {
					return items, err
				}
				items = append(items, item)
			}
			return items, nil
		},
	})
}

func stale(id string, by stream.Producer, epoch any) error {
	return session.ErrStale.WithMessage("stream %s: session %s writes under epoch %s, not %d", id, by.Session, text(epoch), by.Epoch)
}

// producer returns the arguments of scripts that identify the writer.
func producer(id string, by stream.Producer) []any {
	return []any{by.Session, by.Epoch, by.RunID, flag(by.Session == id)}
}

// Info implements [stream.Manager].
func (s *streams) Info(ctx context.Context, id string) (*stream.Info, error) {
	h, _, err := s.look(ctx, id, "info", 0, 0, 0)
	if err != nil {
		return nil, err
	}
	if h == nil {
		return nil, noStream(id)
	}
	return &h.Info, nil
}

// End implements [stream.Manager].
func (s *streams) End(ctx context.Context, id string, by stream.Producer, end stream.End) error {
	how, err := stored.EndStream(id, end, s.b.config.MaxChunk)
	if err != nil {
		return err
	}
	return s.shut(ctx, id, by, how)
}

// Fail implements [stream.Manager].
func (s *streams) Fail(ctx context.Context, id string, by stream.Producer, failure *session.Error) error {
	how, err := stored.FailStream(id, failure)
	if err != nil {
		return err
	}
	return s.shut(ctx, id, by, how)
}

func (s *streams) shut(ctx context.Context, id string, by stream.Producer, how *stored.StreamClose) error {
	name := streamVerb(id, "close")
	if err := s.b.begin(ctx, name); err != nil {
		return err
	}
	r := s.shutting(id, by, how)
	s.b.evalAll(ctx, r)
	_, err := s.changed(id, name, r)
	return err
}

// shutting returns the script that closes a stream; after is what [trace] returns if
// the stream must have a batch.
func (s *streams) shutting(id string, by stream.Producer, how *stored.StreamClose, after ...any) *run {
	keep := max(s.b.config.StreamTTL, 0).Milliseconds()
	args := append(producer(id, by), string(how.Status), how.End, how.Output, how.Failure, keep)
	return s.writing(id, "close", append(args, after...)...)
}

// Reactivate implements [stream.Manager].
func (s *streams) Reactivate(ctx context.Context, id string, by stream.Producer) (*stream.Info, error) {
	if err := session.CheckID(id); err != nil {
		return nil, err
	}
	out, err := s.change(ctx, id, "reactivate", "reactivate", append(producer(id, by), s.b.tokens.next())...)
	if err != nil {
		return nil, err
	}
	if text(out[0]) == "stale" {
		return nil, stale(id, by, out[1])
	}
	return s.Info(ctx, id)
}

// Trim implements [stream.Manager].
func (s *streams) Trim(ctx context.Context, id string, policy stream.TrimPolicy) (int64, error) {
	if policy.KeepLast < 0 {
		return 0, session.Invalid("chunks to keep", "%d is negative", policy.KeepLast)
	}
	out, err := s.change(ctx, id, "trim", "trim", policy.Through, policy.KeepLast, micros(policy.Before))
	if err != nil {
		return 0, err
	}
	return number(text(out[1])), nil
}

// Delete implements [stream.Manager].
func (s *streams) Delete(ctx context.Context, id string) error {
	_, err := s.change(ctx, id, "delete", "delete")
	return err
}

// Append implements [stream.Manager]. The batch is written when it returns.
func (s *streams) Append(ctx context.Context, id string, batch stream.Batch) (stream.Append, error) {
	r, err := s.appending(id, &batch)
	if err != nil {
		return nil, err
	}
	if err := s.b.begin(ctx, streamVerb(id, "append")); err != nil {
		return nil, err
	}
	s.b.evalAll(ctx, r)
	last, err := s.appended(id, &batch, r)
	if err != nil {
		return nil, err
	}
	return last, nil
}

// appending returns the script that appends a batch.
func (s *streams) appending(id string, batch *stream.Batch) (*run, error) {
	if err := session.CheckID(id); err != nil {
		return nil, err
	}
	if batch.First < 0 {
		return nil, session.Invalid("producer sequence", "%d is negative", batch.First)
	}
	args := append(producer(id, batch.Producer), batch.First, len(batch.Chunks))
	var all [][]byte
	for i := range batch.Chunks {
		pieces, err := stream.Split(batch.Chunks[i], s.b.config.MaxChunk)
		if err != nil {
			return nil, err
		}
		args = append(args, orNow(batch.Chunks[i].At), len(pieces))
		for _, piece := range pieces {
			args = append(args, piece)
		}
		all = append(all, pieces...)
	}
	r := s.writing(id, "append", append(args, s.b.tokens.process)...)
	r.pieces = all
	return r, nil
}

// appended reads that script's answer.
func (s *streams) appended(id string, batch *stream.Batch, r *run) (appended, error) {
	out, err := s.changed(id, streamVerb(id, "append"), r)
	if err != nil {
		return 0, err
	}
	by := batch.Producer
	switch text(out[0]) {
	case "stale":
		return 0, stale(id, by, out[1])
	case "gap":
		return 0, stream.Gap(id, by, number(text(out[1])), batch.First)
	case "closed":
		return 0, session.ErrStreamClosed.WithMessage("stream %s is %s", id, text(out[1]))
	}
	last := number(text(out[1]))
	if len(out) > 2 {
		s.publish(id, text(out[2]), last, r.pieces)
	}
	return appended(last), nil
}

// trace returns what a batch leaves in the header of its stream, unless a later
// batch of its producer has overwritten it: the field, and the producer's
// progress.
func trace(batch *stream.Batch) (field, value string) {
	next := batch.First + int64(len(batch.Chunks))
	return "p" + batch.Producer.Session, itoa(batch.Producer.Epoch) + " " + itoa(next)
}

// appended is a batch that was written: the sequence of its last chunk.
type appended int64

// Wait implements [stream.Append].
func (a appended) Wait(ctx context.Context) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, failure("append", err)
	}
	return int64(a), nil
}

// decodeChunks decodes chunks as readers get them.
func decodeChunks(id string, flat []any) ([]stream.Item, error) {
	items := make([]stream.Item, 0, len(flat)/2)
	for i := 0; i+1 < len(flat); i += 2 {
		var sequence int64
		if _, err := fmt.Sscanf(text(flat[i]), "%d-0", &sequence); err != nil {
			return nil, session.ErrCorrupt.WithMessage("stream %s has an invalid entry %s", id, text(flat[i]))
		}
		item, err := stored.DecodeChunk(id, sequence, []byte(text(flat[i+1])))
		if err != nil {
			return items, err
		}
		items = append(items, item)
	}
	return items, nil
}

// within returns an error if the stream does not have every chunk after a
// sequence.
func (h *streamHead) within(from int64) error {
	switch {
	case from < 0:
		return stream.Negative(from)
	case !h.Holds(from):
		return h.Truncated(from)
	}
	return nil
}

// everything is a limit that no stream reaches.
const everything = 1 << 40

// Chunks implements [stream.Manager].
func (s *streams) Chunks(ctx context.Context, id string, from int64, limit int) ([]stream.Item, error) {
	items := []stream.Item{}
	for next := from; limit <= 0 || len(items) < limit; {
		rest := everything
		if limit > 0 {
			rest = limit - len(items)
		}
		h, flat, err := s.look(ctx, id, "list chunks", next, rest, maxReadBytes)
		if err != nil {
			return nil, err
		}
		if h == nil {
			return nil, noStream(id)
		}
		if err := h.within(next); err != nil {
			return nil, err
		}
		found, err := decodeChunks(id, flat)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			break
		}
		items = append(items, found...)
		if next = items[len(items)-1].Sequence; next >= h.Last {
			break
		}
	}
	return items, nil
}
