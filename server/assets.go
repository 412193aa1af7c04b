package server

import (
	_ "embed"
	"net/http"
)

// helixJS is the browser helper: an ES module that needs no packages.
//
//go:embed helix.js
var helixJS []byte

func assetRoutes() []route {
	const script = "text/javascript; charset=utf-8"
	return []route{{
		method: http.MethodGet, path: "/helix.js", summary: "An ES module for pages that talk to this server.",
		answers: []answer{{status: http.StatusOK, media: script}}, open: true,
		handle: func(x *exchange) error { x.write(http.StatusOK, script, helixJS); return nil },
	}}
}
