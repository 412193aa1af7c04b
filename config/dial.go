package config

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"time"
)

// refusal is a permanent reason not to send a request.
type refusal string

func (r refusal) Error() string { return string(r) }

// permanent reports whether a retry cannot help.
func permanent(err error) bool { _, ok := errors.AsType[refusal](err); return ok }

// reason returns why a request failed, without resolved addresses.
func reason(err error) string {
	if r, ok := errors.AsType[refusal](err); ok {
		return r.Error()
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		if dns.IsNotFound {
			return "the server's name does not exist"
		}
		return "the server's name cannot be looked up now"
	}
	if cause, ok := errors.AsType[syscall.Errno](err); ok {
		return cause.Error()
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "the server's certificate is not valid"
	}
	return address.ReplaceAllString(err.Error(), "an address")
}

// address matches an IP address in a text, with its port.
var address = regexp.MustCompile(`\[[0-9A-Fa-f:.]+(?:%[^\]]*)?\](?::\d+)?|\b\d{1,3}(?:\.\d{1,3}){3}\b(?::\d+)?`)

// transport returns a transport that connects only to public addresses, unless private ones
// are allowed. It uses no proxy, because a proxy would connect to any address.
func transport(private bool) *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	if !private {
		dialer.Control = (&guard{list: net.InterfaceAddrs}).control
	}
	return &http.Transport{
		DialContext: dialer.DialContext, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
		ResponseHeaderTimeout: time.Minute, IdleConnTimeout: 30 * time.Second, MaxIdleConnsPerHost: 4, MaxIdleConns: 16,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// guard refuses connections to private networks and to this machine, even under its public
// addresses: services there may trust local clients.
type guard struct {
	list func() ([]net.Addr, error) // the machine's addresses

	mu    sync.Mutex
	own   []netip.Addr
	known time.Time // when list was called
}

// keepOwn is how long the machine's addresses are cached.
const keepOwn = 10 * time.Second

// control is called with the address to connect to after the name was resolved, so that no
// answer of a name server can circumvent it.
func (g *guard) control(_, address string, _ syscall.RawConn) error {
	target, err := netip.ParseAddrPort(address)
	if err != nil || !public(target.Addr()) || g.isOwn(target.Addr()) {
		return refusal("the service has an address of a private network or of this machine; set allowPrivate on the tool to allow it")
	}
	return nil
}

// isOwn reports whether an address belongs to this machine. If the addresses cannot be
// listed, it uses the cached ones.
func (g *guard) isOwn(addr netip.Addr) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := time.Now(); now.Sub(g.known) >= keepOwn {
		if list, err := g.list(); err == nil {
			g.own, g.known = nil, now
			for _, one := range list {
				if network, ok := one.(*net.IPNet); ok {
					if own, ok := netip.AddrFromSlice(network.IP); ok {
						g.own = append(g.own, own.Unmap())
					}
				}
			}
		}
	}
	return slices.Contains(g.own, addr.Unmap().WithZone(""))
}

// reserved are networks outside of the public internet that package netip does not know,
// and networks that embed other addresses.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"),    // shared by a provider's customers
	netip.MustParsePrefix("168.63.129.16/32"), // Azure's host, reachable from every machine there
	netip.MustParsePrefix("192.0.0.0/24"),     // protocol assignments
	netip.MustParsePrefix("192.88.99.0/24"),   // relays into tunnels
	netip.MustParsePrefix("192.0.2.0/24"),     // documentation, also the next two
	netip.MustParsePrefix("198.51.100.0/24"),  //
	netip.MustParsePrefix("203.0.113.0/24"),   //
	netip.MustParsePrefix("198.18.0.0/15"),    // benchmarks
	netip.MustParsePrefix("240.0.0.0/4"),      // reserved, and broadcast
	netip.MustParsePrefix("64:ff9b::/96"),     // IPv4 behind a translator
	netip.MustParsePrefix("64:ff9b:1::/48"),   // the same, local
	netip.MustParsePrefix("::ffff:0:0:0/96"),  // the same, stateless
	netip.MustParsePrefix("100::/64"),         // discarded
	netip.MustParsePrefix("2001::/23"),        // protocol assignments and tunnels
	netip.MustParsePrefix("2001:db8::/32"),    // documentation
	netip.MustParsePrefix("2002::/16"),        // IPv4 in a tunnel
	netip.MustParsePrefix("3fff::/20"),        // documentation
	netip.MustParsePrefix("5f00::/16"),        // segment routing within a network
	netip.MustParsePrefix("fec0::/10"),        // formerly site-local
	netip.MustParsePrefix("::/96"),            // formerly IPv4
}

// public reports whether an address is part of the public internet.
func public(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	if !addr.IsGlobalUnicast() || addr.IsPrivate() || addr.IsLoopback() || addr.IsLinkLocalUnicast() || addr.IsMulticast() {
		return false
	}
	for _, network := range reserved {
		if network.Contains(addr) {
			return false
		}
	}
	return !isatap(addr)
}

// isatap reports whether an address embeds an IPv4 address of a site's tunnel. Its second
// half shows that, whatever the network.
func isatap(addr netip.Addr) bool {
	if !addr.Is6() {
		return false
	}
	raw := addr.As16()
	return raw[8]&^0x02 == 0 && raw[9] == 0 && raw[10] == 0x5e && raw[11] == 0xfe
}
