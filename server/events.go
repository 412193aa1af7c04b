package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/helixagents/helix/server/wire"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// frameEncoder encodes the items of a stream into frames.
type frameEncoder interface {
	// encode writes an item's frames. It reports whether the item was the last.
	encode(out *frames, item stream.Item) (last bool, err error)
	// cut writes the last frames of a connection that ends before the stream.
	cut(out *frames, why wire.Fail)
	// idle is called from time to time while no item arrives.
	idle(out *frames) error
	// header is called before the first frame.
	header(h http.Header)
}

const (
	readAhead  = 16       // items that the reader may be ahead of the connection
	keptBytes  = 8 << 10  // the buffer that an idle stream keeps
	flushBytes = 32 << 10 // the approximate size of a write
	patience   = 3        // write timeouts until a client that reads nothing is disconnected; after the first it gets an error, if possible
)

// follow sends items as they arrive, until the last one, until the client disconnects or is
// too slow, or until the server shuts down. An error of the first item is returned before
// anything is sent; later errors are sent as frames.
func (x *exchange) follow(items func(context.Context) iter.Seq2[stream.Item, error], to frameEncoder) error {
	if err := x.server.enter(x); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(x.r.Context())
	ahead := make(chan read, readAhead)
	go func() {
		defer close(ahead)
		defer func() {
			if p := recover(); p != nil {
				x.panicked(p)
				select {
				case ahead <- read{err: session.ErrInternal}:
				case <-ctx.Done():
				}
			}
		}()
		for item, err := range items(ctx) {
			select {
			case ahead <- read{item, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() { // wait for the reader
		cancel()
		for range ahead { // discard what it has read
		}
	}()
	return x.pump(ahead, to)
}

// read is what a reader has read.
type read struct {
	item stream.Item
	err  error
}

func (x *exchange) pump(ahead <-chan read, to frameEncoder) error {
	out := &frames{
		w: x.w, control: http.NewResponseController(x.w), timeout: x.server.cfg.Limits.WriteTimeout, begin: to.header,
		closing: x.server.closing, http1: x.r.ProtoMajor == 1,
	}
	keepAlive := time.NewTicker(x.server.cfg.KeepAlive)
	defer keepAlive.Stop()
	for {
		select {
		case next, ok := <-ahead:
			if !ok {
				next.err = session.ErrUnavailable
			}
			last, err := false, next.err
			if err == nil {
				last, err = to.encode(out, next.item)
			}
			switch {
			case err != nil:
				return x.interrupted(out, to, err)
			case last:
				out.flush()
				return nil
			case len(ahead) > 0 && len(out.buf) < flushBytes:
				continue
			}
		case <-keepAlive.C:
			if err := x.stillAllowed(); err != nil {
				return x.interrupted(out, to, err)
			}
			if err := to.idle(out); err != nil {
				return x.interrupted(out, to, err)
			}
			out.comment("keep-alive")
		case <-x.server.closing:
			to.cut(out, wire.Fail{Code: wire.CodeShuttingDown, Message: "the server is shutting down", Retryable: true, Recoverable: true})
			out.flush()
			return nil
		case <-x.r.Context().Done():
			return x.interrupted(out, to, context.Cause(x.r.Context()))
		}
		switch out.flush() {
		case slow:
			to.cut(out, wire.Fail{Code: wire.CodeSlowReader, Message: "the stream was not read in time", Retryable: true, Recoverable: true})
			out.flush()
			x.failure = errSlow
			return nil
		case gone:
			x.failure = errSlow
			return nil
		}
	}
}

var errSlow = &session.Error{Code: wire.CodeSlowReader, Message: "the stream was not read in time"}

// interrupted ends a stream that cannot continue. If nothing was sent, the error becomes
// the response.
func (x *exchange) interrupted(out *frames, to frameEncoder, err error) error {
	switch {
	case x.disconnected(): // the client has disconnected
		return nil
	case !out.begun && len(out.buf) == 0:
		return err
	}
	x.failure = err
	to.cut(out, wire.Fail{Code: wire.CodeInterrupted, Message: "reading the stream failed", Retryable: true, Recoverable: true})
	out.flush()
	return nil
}

// frames writes server-sent events.
type frames struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	begin   func(http.Header)
	begun   bool
	closing <-chan struct{}
	http1   bool
	buf     []byte
}

// event adds an event. kind may be empty, and an id below 1 is omitted.
func (f *frames) event(kind string, id int64, data []byte) {
	if kind != "" {
		f.buf = append(append(append(f.buf, "event: "...), kind...), '\n')
	}
	if id > 0 {
		f.buf = append(strconv.AppendInt(append(f.buf, "id: "...), id, 10), '\n')
	}
	f.buf = append(f.buf, "data: "...)
	if bytes.ContainsAny(data, "\r\n") { // a line break would end the event's line; in JSON it is only white space
		var line bytes.Buffer
		if json.Compact(&line, data) == nil {
			data = line.Bytes()
		}
	}
	f.buf = append(append(f.buf, data...), "\n\n"...)
}

// encode adds an event with a JSON value.
func (f *frames) encode(kind string, id int64, value any) error {
	data, err := session.Encode(value)
	if err != nil {
		return err
	}
	f.event(kind, id, data)
	return nil
}

// comment adds a comment, which readers ignore.
func (f *frames) comment(text string) {
	f.buf = append(append(append(f.buf, ": "...), text...), "\n\n"...)
}

// pace is how fast a client reads.
type pace int

const (
	fine pace = iota
	slow      // exceeded the write timeout: gets an error and is disconnected
	gone      // disconnected
)

// flush writes the added frames.
func (f *frames) flush() pace {
	if !f.begun {
		f.begun = true
		h := f.w.Header()
		h.Set("Content-Type", wire.ContentEvents)
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no") // otherwise proxies would hold frames back
		if f.http1 {
			h.Set("Connection", "close") // the write deadline must not affect another request
		}
		f.begin(h)
		f.w.WriteHeader(http.StatusOK)
	}
	took := f.write()
	if f.buf = f.buf[:0]; cap(f.buf) > keptBytes {
		f.buf = nil
	}
	return took
}

// write writes the added frames in pieces, each with its own timeout. A slow client gets
// the rest of its current event, if it reads that in time.
func (f *frames) write() pace {
	took := fine
	for at := 0; ; {
		end := min(at+flushBytes, len(f.buf))
		switch f.piece(f.buf[at:end]) {
		case gone:
			return gone
		case slow:
			if took == slow {
				return gone
			}
			took, f.buf = slow, f.buf[:eventEnd(f.buf, end)]
		}
		if at = end; at == len(f.buf) {
			return took
		}
	}
}

// piece writes bytes at once.
func (f *frames) piece(b []byte) pace {
	began := time.Now()
	_ = f.control.SetWriteDeadline(began.Add(patience * f.timeout)) // not supported by every connection
	select {
	case <-f.closing: // asked only now: a shutdown that begins later sets the deadline itself
		_ = f.control.SetWriteDeadline(began.Add(farewell))
	default:
	}
	_, err := f.w.Write(b)
	if flushErr := f.control.Flush(); err == nil && !errors.Is(flushErr, http.ErrNotSupported) {
		err = flushErr
	}
	switch {
	case err != nil:
		return gone
	case time.Since(began) > f.timeout:
		return slow
	}
	return fine
}

// eventEnd returns the end of the event at a position.
func eventEnd(events []byte, at int) int {
	if n := bytes.Index(events[at-min(at, 2):], []byte("\n\n")); n >= 0 {
		return at - min(at, 2) + n + 2
	}
	return len(events)
}
