package client_test

import (
	"context"
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/helixagents/helix/client"
)

// direct opens a client that calls a handler without a network, which a bubble of testing/synctest would wait for.
func direct(t *testing.T, cfg client.Config, h http.Handler) *client.Client {
	t.Helper()
	cfg.URL, cfg.HTTP = "http://example.com", &http.Client{Transport: &transport{h}}
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// transport answers requests with a handler.
type transport struct{ handler http.Handler }

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	out, in := io.Pipe()
	w := &answer{header: http.Header{}, body: in, begun: make(chan int, 1)}
	left := context.AfterFunc(r.Context(), func() { _ = in.CloseWithError(r.Context().Err()) })
	go func() {
		defer left()
		t.handler.ServeHTTP(w, r)
		w.WriteHeader(http.StatusOK)
		in.Close()
	}()
	select {
	case status := <-w.begun:
		return &http.Response{StatusCode: status, Header: w.header, Body: out, Request: r, ProtoMajor: 1, ProtoMinor: 1}, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// answer is what a handler writes to. Nothing in it waits to be flushed.
type answer struct {
	header http.Header
	body   io.Writer
	once   sync.Once
	begun  chan int
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) { a.once.Do(func() { a.begun <- status }) }

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

func (a *answer) Flush() { a.WriteHeader(http.StatusOK) }
