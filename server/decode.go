package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"time"

	"github.com/helixagents/helix/server/internal/request"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

// decode decodes the request's body. It refuses unknown fields and anything beyond the
// limits. An empty body is an empty object.
func decode[T any](x *exchange, read reader[T]) (*T, error) {
	body, release, err := x.body()
	if err != nil {
		return nil, err
	}
	defer release()
	if len(bytes.TrimSpace(body)) == 0 {
		body = []byte("{}")
	}
	return decodeBody(request.NewScanner(body), &x.server.cfg.Limits, read)
}

func decodeBody[T any](s *request.Scanner, limits *Limits, read reader[T]) (*T, error) {
	if err := s.Object(); err != nil {
		return nil, err
	}
	in := new(T)
	if err := read(s, limits, in); err != nil {
		return nil, err
	}
	return in, s.End()
}

// freeBody is the maximum size of a body that is read without a claim on the budget, so
// that ordinary requests never wait behind large ones.
const freeBody = 64 << 10

// body reads the request's body, which must be JSON, within the limits. release returns its
// share of the budget after the body was decoded.
func (x *exchange) body() (body []byte, release func(), err error) {
	nothing := func() {}
	if x.r.ContentLength == 0 { // and so without a media type
		return nil, nothing, nil
	}
	media, _, err := mime.ParseMediaType(x.r.Header.Get("Content-Type"))
	if err != nil || media != wire.ContentJSON {
		return nil, nothing, refuse(http.StatusUnsupportedMediaType, wire.CodeMediaType, "the body must be "+wire.ContentJSON).field("Content-Type")
	}
	b := &bodyReader{
		x: x, limit: x.server.cfg.Limits.Body, control: http.NewResponseController(x.w), held: x.server.budget.claim(x.who),
	}
	defer func() {
		if body == nil {
			b.held.release()
		}
	}()
	if body, err = b.read(); err != nil {
		return nil, nothing, err
	}
	_ = b.control.SetReadDeadline(time.Time{}) // it stays for the unread rest of a body
	return body, b.held.release, nil
}

// bodyReader reads a body into memory that it has claimed before.
type bodyReader struct {
	x       *exchange
	limit   int64
	control *http.ResponseController
	held    *claim
	began   time.Time
	waited  time.Duration // for the budget, so far
}

func (b *bodyReader) read() ([]byte, error) {
	if b.x.r.ContentLength > b.limit {
		return nil, b.tooLarge()
	}
	b.began = time.Now()
	b.deadline()
	in := http.MaxBytesReader(b.x.w, b.x.r.Body, b.limit)
	body := make([]byte, 0, b.room(0))
	for {
		if len(body) == cap(body) {
			grown, err := b.grow(body)
			if err != nil {
				return nil, err
			}
			body = grown
		}
		n, err := in.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			b.drain()
			return nil, b.tooLarge()
		}
		if errors.Is(err, io.EOF) {
			return body, nil
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, refuse(http.StatusRequestTimeout, wire.CodeBodyTimeout, "the body did not arrive in time; try again").
				retry(time.Second).field("body").because(err)
		}
		if err != nil {
			return nil, session.Invalid("body", "could not be read").WithCause(err, "read the body")
		}
	}
}

func (b *bodyReader) tooLarge() error {
	return refuse(http.StatusRequestEntityTooLarge, session.CodeTooLarge, fmt.Sprintf("the body has more than %d bytes", b.limit)).
		limit(limitBody)
}

// deadline limits how long the sender may take. Time spent waiting for the server's budget
// does not count.
func (b *bodyReader) deadline() {
	at := b.began.Add(b.x.server.cfg.Limits.ReadTimeout + b.waited)
	_ = b.control.SetReadDeadline(at) // not supported by every connection
}

// room returns the buffer size for a body of which this much has arrived. It grows with the
// received bytes, so that a slow sender holds little memory, whatever it announced. It
// includes one byte more than the body, because only reading that byte reveals the end.
func (b *bodyReader) room(arrived int) int {
	size := int64(max(2*arrived, 4<<10))
	if announced := b.x.r.ContentLength; announced > 0 {
		size = min(size, announced+1)
	}
	return int(min(size, b.limit+1))
}

// grow enlarges the buffer once the budget allows it.
func (b *bodyReader) grow(body []byte) ([]byte, error) {
	size := b.room(len(body))
	if size > freeBody+1 {
		if err := b.claim(int64(size)); err != nil {
			return nil, err
		}
	}
	grown := make([]byte, len(body), size)
	copy(grown, body)
	return grown, nil
}

// drainTimeout is how long the server reads an unwanted body, so that its sender sees the
// response.
const drainTimeout = time.Second

// drain reads and discards the rest of the body. Many senders read a response only after
// they have sent everything, and see none if the connection is closed before.
func (b *bodyReader) drain() {
	_ = b.control.SetReadDeadline(time.Now().Add(drainTimeout))
	_, _ = io.CopyN(io.Discard, b.x.r.Body, b.limit)
}

// claim waits until the budget grants size bytes, for at most the time that the body may
// take to arrive.
func (b *bodyReader) claim(size int64) error {
	_ = b.control.SetReadDeadline(time.Time{})
	began := time.Now()
	ctx, cancel := context.WithTimeout(b.x.r.Context(), b.x.server.cfg.Limits.ReadTimeout-b.waited)
	defer cancel()
	waited, err := b.held.raise(ctx, size)
	if waited {
		b.waited += time.Since(began)
	}
	b.deadline()
	if err != nil && !b.x.disconnected() {
		b.drain()
		return refuse(http.StatusServiceUnavailable, session.CodeUnavailable, "the server is busy with other large requests; try again").
			retry(time.Second).field("body")
	}
	return err
}
