package server

import (
	"net/http"
	"time"
)

// HTTPServer is an [http.Server] for a handler, with limits on what a client may
// make it hold. It has no limit on whole requests, because streams have no end;
// those of bodies and writes are [Limits].
func HTTPServer(addr string, handler http.Handler) *http.Server {
	return &http.Server{
		Addr:              addr,
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
}
