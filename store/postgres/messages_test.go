package postgres

import (
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/helixagents/helix/internal/faultproxy"
	"github.com/helixagents/helix/session"
)

// TestPageReadsWhatItShows requires that a page with a limit in bytes fetches
// about as many from the server.
func TestPageReadsWhatItShows(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	at, err := url.Parse(DatabaseForTest(t))
	if err != nil {
		t.Fatal(err)
	}
	port := at.Port()
	if port == "" {
		port = "5432"
	}
	proxy := faultproxy.New(t, net.JoinHostPort(at.Hostname(), port))
	at.Host = proxy.Addr()
	b := openTest(t, func(c *Config) { c.URL, c.NoListen = at.String(), true })
	if err := session.Create(ctx, b.Sessions(), &session.State{ID: "a", Agent: "a", Status: session.Active}); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		if _, err := session.AppendMessages(ctx, b.Sessions(), "a", []session.Message{session.UserText(strings.Repeat("x", 1<<20))}); err != nil {
			t.Fatal(err)
		}
	}
	before := proxy.Counters().Received
	page, err := b.Sessions().Messages(ctx, "a", session.PageRequest{Limit: session.MaxPageSize, MaxBytes: 4 << 20})
	if err != nil || len(page.Items) != 3 || !page.HasMore {
		t.Fatalf("a page of 4 MiB has %d messages, %v", len(page.Items), err)
	}
	if took := proxy.Counters().Received - before; took > 5<<20 {
		t.Errorf("a page of 4 MiB took %d bytes from the server", took)
	}
}
