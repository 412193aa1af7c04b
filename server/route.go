package server

import (
	"net/http"
	"slices"
	"strings"

	"github.com/helixagents/helix/server/wire"
)

// route is one operation of the API. The handler serves the table of routes, and
// /openapi.json describes it.
type route struct {
	method, path string
	summary      string
	// query are the query parameters. Path parameters are in the path.
	query []parameter
	// body is a value of the body's type, nil if there is none.
	body any
	// extra is set if the body may have additional fields.
	extra bool
	// forSDK is set if the AI SDK sends the requests: errors are plain text unless JSON is
	// accepted.
	forSDK bool
	// answers are the successes; every route may also answer with a [wire.Error].
	answers []answer
	// open routes need no identity.
	open   bool
	handle func(*exchange) error
}

// parameter is a query parameter.
type parameter struct {
	name, about string
	kind        string // a JSON Schema type
	required    bool
	repeated    bool
}

// answer is a success response: a value of the body's type, or the media type if it is not
// JSON.
type answer struct {
	status int
	body   any
	media  string
}

func ok(body any) []answer { return []answer{{status: http.StatusOK, body: body}} }

func (r *route) pattern() string { return r.method + " " + r.path }

// table returns all routes.
func table() []route {
	return slices.Concat(runRoutes(), agentRoutes(), sessionRoutes(), blobRoutes(), cleanupRoutes(), taskRoutes(), chatRoutes(), assetRoutes(), healthRoutes(), openAPIRoutes())
}

// noRoute responds to a request without a route: with 405 if its path has one.
func (s *Server) noRoute(x *exchange) error {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		other := *x.r
		other.Method = method
		if _, pattern := s.mux.Handler(&other); pattern != "" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 && x.r.URL.Path == "/" {
		return refuse(http.StatusNotFound, wire.CodeNoRoute, "this server has no page: mount one with page.New of package server/page; /openapi.json lists the routes")
	}
	if len(allowed) == 0 {
		return refuse(http.StatusNotFound, wire.CodeNoRoute, "there is no such route; /openapi.json lists them")
	}
	x.w.Header().Set("Allow", strings.Join(allowed, ", "))
	return refuse(http.StatusMethodNotAllowed, wire.CodeMethod, "use "+strings.Join(allowed, " or "))
}
