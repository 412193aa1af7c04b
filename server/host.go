package server

import (
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/helixagents/helix/server/wire"
)

// AnyHost in [Config.Hosts] allows every name.
const AnyHost = "*"

// host refuses a request for a name that is not the server's. A web page can make its own
// name point to this machine; for a browser it then has the server's origin. Without
// authentication only the name reveals that.
func (s *Server) host(x *exchange) error {
	hosts := s.cfg.Hosts
	if len(hosts) == 0 && s.cfg.Authenticate != nil || slices.Contains(hosts, AnyHost) {
		return nil
	}
	name := hostname(x.r.Host)
	if slices.ContainsFunc(hosts, func(h string) bool { return strings.EqualFold(h, name) }) || (len(hosts) == 0 && isLoopback(name)) {
		return nil
	}
	return refuse(http.StatusMisdirectedRequest, wire.CodeForbidden, "this server does not accept requests for that host name")
}

// hostname returns a Host header without the port and the brackets of an address.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.Trim(host, "[]")
}

// isLoopback reports whether a name always denotes this machine.
func isLoopback(name string) bool {
	ip := net.ParseIP(name)
	return strings.EqualFold(name, "localhost") || (ip != nil && ip.IsLoopback())
}
