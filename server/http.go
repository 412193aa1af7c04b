package server

import (
	"net/http"
	"time"
)

// HTTPServer is an [http.Server] for a handler, with limits on what a client may
// make it hold. It has none on answers, because streams have no end: what a write
// may take is in [Limits]. So is what a body may take that a [Server] reads; the
// limit here is for those that nobody reads, which would hold up the answer.
func HTTPServer(addr string, handler http.Handler) *http.Server {
	return &http.Server{
		Addr:              addr,
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
}
