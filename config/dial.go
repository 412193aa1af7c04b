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

// refusal is why a request is not made, however often it is asked for.
type refusal string

func (r refusal) Error() string { return string(r) }

// permanent reports whether trying again cannot help.
func permanent(err error) bool { _, ok := errors.AsType[refusal](err); return ok }

// reason is why a request failed, without the addresses that names were resolved to.
func reason(err error) string {
	if r, ok := errors.AsType[refusal](err); ok {
		return r.Error()
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		if dns.IsNotFound {
			return "there is no server of that name"
		}
		return "its name cannot be looked up now"
	}
	if cause, ok := errors.AsType[syscall.Errno](err); ok {
		return cause.Error()
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "its certificate is not valid for it"
	}
	return address.ReplaceAllString(err.Error(), "an address")
}

// address is one of the internet in a text, with a port if there is one.
var address = regexp.MustCompile(`\[[0-9A-Fa-f:.]+(?:%[^\]]*)?\](?::\d+)?|\b\d{1,3}(?:\.\d{1,3}){3}\b(?::\d+)?`)

// transport makes connections, to public addresses only unless private ones are
// allowed. It uses no proxy: one would connect to whatever it is told.
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

// guard keeps connections away from private networks and from this machine, also under
// its public addresses: what listens there may trust whoever comes from here.
type guard struct {
	list func() ([]net.Addr, error) // the machine's addresses

	mu    sync.Mutex
	own   []netip.Addr
	known time.Time // when they were listed
}

// keepOwn is how long the machine's addresses are taken for what they were.
const keepOwn = 10 * time.Second

// control is asked with the address that is about to be connected to, after names
// were looked up, so that no answer of a name server gets around it.
func (g *guard) control(_, address string, _ syscall.RawConn) error {
	target, err := netip.ParseAddrPort(address)
	if err != nil || !public(target.Addr()) || g.isOwn(target.Addr()) {
		return refusal("the service has an address of a private network or of this machine; set allowPrivate on the tool to allow it")
	}
	return nil
}

// isOwn reports whether an address is the machine's. Where the addresses cannot be
// listed, those that were known last count.
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

// reserved are networks that are not part of the public internet, beside those that
// package netip knows, or that stand for addresses of another kind.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"),    // shared by a provider's customers
	netip.MustParsePrefix("168.63.129.16/32"), // Azure's host, which every machine there reaches
	netip.MustParsePrefix("192.0.0.0/24"),     // protocol assignments
	netip.MustParsePrefix("192.88.99.0/24"),   // relays into tunnels
	netip.MustParsePrefix("192.0.2.0/24"),     // documentation, also the next two
	netip.MustParsePrefix("198.51.100.0/24"),  //
	netip.MustParsePrefix("203.0.113.0/24"),   //
	netip.MustParsePrefix("198.18.0.0/15"),    // benchmarks
	netip.MustParsePrefix("240.0.0.0/4"),      // kept for later, and broadcast
	netip.MustParsePrefix("64:ff9b::/96"),     // IPv4 behind a translator
	netip.MustParsePrefix("64:ff9b:1::/48"),   // the same, local
	netip.MustParsePrefix("::ffff:0:0:0/96"),  // the same, stateless
	netip.MustParsePrefix("100::/64"),         // discarded
	netip.MustParsePrefix("2001::/23"),        // protocol assignments and tunnels
	netip.MustParsePrefix("2001:db8::/32"),    // documentation
	netip.MustParsePrefix("2002::/16"),        // IPv4 in a tunnel
	netip.MustParsePrefix("3fff::/20"),        // documentation
	netip.MustParsePrefix("5f00::/16"),        // segment routing inside of a network
	netip.MustParsePrefix("fec0::/10"),        // once site-local
	netip.MustParsePrefix("::/96"),            // once IPv4
}

// public reports whether an address is one of the public internet.
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

// isatap reports whether an address is an IPv4 address in a tunnel of a site: its second
// half says so, whatever the network.
func isatap(addr netip.Addr) bool {
	if !addr.Is6() {
		return false
	}
	raw := addr.As16()
	return raw[8]&^0x02 == 0 && raw[9] == 0 && raw[10] == 0x5e && raw[11] == 0xfe
}
