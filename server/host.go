package server

import (
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/helixagents/helix/server/wire"
)

// AnyHost in [Config.Hosts] is every name.
const AnyHost = "*"

// host refuses a request for a name that is not the server's. A page can have its
// own name pointed at this machine and is then, for a browser, of the server's
// origin: without authentication the name is all that tells it apart.
func (s *Server) host(x *exchange) error {
	hosts := s.cfg.Hosts
	if len(hosts) == 0 && s.cfg.Authenticate != nil || slices.Contains(hosts, AnyHost) {
		return nil
	}
	name := hostname(x.r.Host)
	if slices.ContainsFunc(hosts, func(h string) bool { return strings.EqualFold(h, name) }) || (len(hosts) == 0 && isLoopback(name)) {
		return nil
	}
	return refuse(http.StatusMisdirectedRequest, wire.CodeForbidden, "this server does not go by that name")
}

// hostname is a Host header without the port and the brackets of an address.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.Trim(host, "[]")
}

// isLoopback reports whether a name is always this machine's.
func isLoopback(name string) bool {
	ip := net.ParseIP(name)
	return strings.EqualFold(name, "localhost") || (ip != nil && ip.IsLoopback())
}
