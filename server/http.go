package server

import (
	"net/http"
	"time"
)

// HTTPServer returns an [http.Server] for a handler, with timeouts that limit what a client
// can occupy. It has no write timeout, because streams have no end; [Limits] bounds writes,
// and the bodies that a [Server] reads. The read timeout here is for bodies that nobody
// reads, which would delay the response.
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
