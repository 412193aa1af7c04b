package main

import (
	"embed"
	"io/fs"
	"net/http"
)

// The chat page. It has no build step.
//
//go:embed page
var pageFiles embed.FS

// withPage adds the page to a server's routes. The page contains no data: it requests
// everything from the server with its user's credentials.
func withPage(api http.Handler) http.Handler {
	files, err := fs.Sub(pageFiles, "page")
	if err != nil {
		panic(err) // the directory is embedded under that name
	}
	serve := http.FileServerFS(files)
	mux := http.NewServeMux()
	mux.Handle("/", api)
	mux.Handle("GET /{$}", guardPage(serve))
	mux.Handle("GET /page/", guardPage(http.StripPrefix("/page", serve)))
	return mux
}

// guardPage keeps other sites from framing the page, and keeps the page from loading
// anything from other servers, including pictures: their servers would learn who reads a
// conversation.
func guardPage(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy",
			"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		next.ServeHTTP(w, r)
	})
}
