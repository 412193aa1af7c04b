package sqlite

import (
	"context"
	"time"

	"github.com/helixagents/helix/store/internal/lite"
)

// database runs the statements of [lite] with a backend's writer and readers.
type database struct{ b *Backend }

var _ lite.Database = database{}

func (d database) Read(ctx context.Context, what string, run func(lite.Conn) error) error {
	return d.b.read(ctx, what, run)
}

func (d database) Write(ctx context.Context, what string, run func(*lite.Tx) error) error {
	return d.b.write(ctx, what, run)
}

func (d database) WriteLater(what string, run func(*lite.Tx) error) (lite.Ordered, error) {
	o := &ordered{d.b.writer, op{what: what, run: run}}
	if err := d.b.writer.enqueue(&o.op, true); err != nil {
		return nil, err
	}
	return o, nil
}

func (d database) IsDuplicate(err error) bool { return isDuplicate(err) }

// Now returns the time without a monotonic reading, with the precision of stored
// times.
func (d database) Now() time.Time { return d.b.config.Clock().UTC().Truncate(time.Duration(unit)) }

// ordered is an operation that was queued without waiting for it.
type ordered struct {
	writer *writer
	op     op
}

// Wait implements [lite.Ordered].
func (o *ordered) Wait(ctx context.Context) error {
	select {
	case <-o.op.done:
		return o.op.err
	default:
	}
	o.writer.hurry()
	select {
	case <-o.op.done:
		return o.op.err
	case <-ctx.Done():
		return failure(o.op.what, ctx.Err())
	}
}
