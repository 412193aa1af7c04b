package config

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

// errRefused is a request that is not made, however often it is asked for.
var errRefused = errors.New("refused")

// permanent reports whether trying again cannot help.
func permanent(err error) bool { return errors.Is(err, errRefused) }

// transport makes connections, to public addresses only unless private ones are
// allowed. It uses no proxy: one would connect to whatever it is told.
func transport(private bool) *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	if !private {
		dialer.Control = refusePrivate
	}
	return &http.Transport{
		DialContext: dialer.DialContext, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
		ResponseHeaderTimeout: time.Minute, IdleConnTimeout: 30 * time.Second, MaxIdleConnsPerHost: 4, MaxIdleConns: 16,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// refusePrivate is asked with the address that is about to be connected to, after
// names were looked up, so that no answer of a name server gets around it.
func refusePrivate(_, address string, _ syscall.RawConn) error {
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %s is not an address", errRefused, address)
	}
	if !public(target.Addr()) {
		return fmt.Errorf("%w: %s is an address of a private network or of this machine; the tool's allowPrivate lets it", errRefused, target.Addr())
	}
	return nil
}

// reserved are networks that are not part of the public internet, beside those that
// package netip knows, or that stand for addresses of another kind.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"),   // shared by a provider's customers
	netip.MustParsePrefix("192.0.0.0/24"),    // protocol assignments
	netip.MustParsePrefix("192.0.2.0/24"),    // documentation, also the next two
	netip.MustParsePrefix("198.51.100.0/24"), //
	netip.MustParsePrefix("203.0.113.0/24"),  //
	netip.MustParsePrefix("198.18.0.0/15"),   // benchmarks
	netip.MustParsePrefix("240.0.0.0/4"),     // kept for later, and broadcast
	netip.MustParsePrefix("64:ff9b::/96"),    // IPv4 behind a translator
	netip.MustParsePrefix("64:ff9b:1::/48"),  // the same, local
	netip.MustParsePrefix("100::/64"),        // discarded
	netip.MustParsePrefix("2001::/23"),       // protocol assignments and tunnels
	netip.MustParsePrefix("2001:db8::/32"),   // documentation
	netip.MustParsePrefix("2002::/16"),       // IPv4 in a tunnel
	netip.MustParsePrefix("3fff::/20"),       // documentation
	netip.MustParsePrefix("fec0::/10"),       // once site-local
	netip.MustParsePrefix("::/96"),           // once IPv4
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
	return true
}
