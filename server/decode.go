package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/helixagents/helix/server/internal/request"
	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
)

// decode reads the request's body. It takes nothing that the request does not have,
// and nothing past the limits. No body is an empty object.
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

// freeBody is how large a body may be to be read without a claim on the budget, so
// that ordinary requests never wait behind large ones.
const freeBody = 64 << 10

// body reads the request's body, which must be JSON, within limits. What it holds of
// the budget is given back by release, when the body was decoded.
func (x *exchange) body() (body []byte, release func(), err error) {
	nothing := func() {}
	if x.r.ContentLength == 0 { // and so of no type
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
	_ = b.control.SetReadDeadline(time.Time{}) // it stays for what is left of a body that was not read
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
			return nil, b.tooLarge()
		}
		if errors.Is(err, io.EOF) {
			return body, nil
		}
		if err != nil {
			return nil, session.Invalid("body", "could not be read").WithCause(err, "the body could not be read")
		}
	}
}

func (b *bodyReader) tooLarge() error {
	return refuse(http.StatusRequestEntityTooLarge, session.CodeTooLarge, fmt.Sprintf("the body has more than %d bytes", b.limit)).
		limit(limitBody)
}

// deadline bounds how long the sender may take. Time spent waiting for the
// server's budget is not counted.
func (b *bodyReader) deadline() {
	at := b.began.Add(b.x.server.cfg.Limits.ReadTimeout + b.waited)
	_ = b.control.SetReadDeadline(at) // not every connection can
}

// room is the size of the memory for a body of which so much has arrived. It grows
// with what arrives, so that whoever sends little holds little, whatever was
// announced. There is room for one byte more than the body has, because its end
// shows only when that is asked for.
func (b *bodyReader) room(arrived int) int {
	size := int64(max(2*arrived, 4<<10))
	if announced := b.x.r.ContentLength; announced > 0 {
		size = min(size, announced+1)
	}
	return int(min(size, b.limit+1))
}

// grow makes room for more of the body, once there is budget for it.
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

// drainTimeout is how long the server reads on what it does not want, so that its
// sender sees why.
const drainTimeout = time.Second

// drain reads the rest of the body and forgets it. Many senders look for an answer
// only when all is sent, and see none if the connection is closed before.
func (b *bodyReader) drain() {
	_ = b.control.SetReadDeadline(time.Now().Add(drainTimeout))
	_, _ = io.CopyN(io.Discard, b.x.r.Body, b.limit)
}

// claim waits until the budget has so much for this body, for as long as the body
// may take to arrive.
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
	if err != nil && !b.x.gone() {
		b.drain()
		return refuse(http.StatusServiceUnavailable, session.CodeUnavailable, "the server is busy with other large requests; try again").
			retry(time.Second).field("body")
	}
	return err
}
