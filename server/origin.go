package server

import (
	"net/http"
	"slices"
	"strings"

	"github.com/helixagents/helix/server/wire"
)

// crossOrigin refuses write requests that a page of another site makes in its visitor's
// name, unless the site is allowed.
func crossOrigin(allowed []string) (*http.CrossOriginProtection, error) {
	protection := http.NewCrossOriginProtection()
	for _, origin := range allowed {
		if err := protection.AddTrustedOrigin(origin); err != nil {
			return nil, err
		}
	}
	return protection, nil
}

// origin handles CORS. It reports whether the request was a preflight and is done.
func (s *Server) origin(x *exchange) (done bool, err error) {
	if len(s.cfg.CORS) > 0 {
		x.w.Header().Add("Vary", "Origin")
	}
	if from := x.r.Header.Get("Origin"); from != "" && slices.Contains(s.cfg.CORS, from) {
		header := x.w.Header()
		header.Set("Access-Control-Allow-Origin", from)
		header.Set("Access-Control-Expose-Headers", strings.Join([]string{
			wire.HeaderVersion, wire.HeaderRequestID, wire.HeaderErrorCode, wire.HeaderErrorField, "Retry-After",
		}, ", "))
		if x.r.Method == http.MethodOptions && x.r.Header.Get("Access-Control-Request-Method") != "" {
			header.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
			header.Set("Access-Control-Allow-Headers", strings.Join([]string{
				"Authorization", "Content-Type", wire.HeaderVersion, wire.HeaderRequestID, wire.HeaderLastEventID, wire.HeaderAISDK,
			}, ", "))
			header.Set("Access-Control-Max-Age", "600")
			x.w.WriteHeader(http.StatusNoContent)
			return true, nil
		}
	}
	if err := s.cross.Check(x.r); err != nil {
		return false, refuse(http.StatusForbidden, wire.CodeForbidden, "pages of other sites may not do this").because(err)
	}
	return false, nil
}
