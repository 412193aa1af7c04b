package redis_test

import (
	"context"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/helixagents/helix/internal/faultproxy"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/redis"
)

// A long transcript is read in parts, at one version even if it changes.
func TestAllMessagesInParts(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := open(t, redis.Config{URL: single(t), Prefix: newPrefix()})
	s := b.Sessions()
	if err := session.Create(ctx, s, &session.State{ID: "a", Agent: "a", Status: session.Active}); err != nil {
		t.Fatal(err)
	}
	add := func(n, size int) {
		t.Helper()
		messages := make([]session.Message, n)
		for i := range messages {
			messages[i] = session.UserText(strings.Repeat("x", size))
		}
		if _, err := session.AppendMessages(ctx, s, "a", messages); err != nil {
			t.Fatal(err)
		}
	}
	add(1100, 10) // several parts by their number, and then by their bytes
	add(25, 100_000)
	want, err := session.MessageCount(ctx, s, "a")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 10 { // pairs: there is never an odd number
			_, _ = session.AppendMessages(ctx, s, "a", []session.Message{session.UserText("y"), session.UserText("z")})
			_, _ = session.TruncateMessages(ctx, s, "a", want)
		}
	}()
	for reading := true; reading; {
		select {
		case <-done:
			reading = false
		default:
		}
		messages, err := s.AllMessages(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		if n := len(messages); n != want && n != want+2 {
			t.Fatalf("%d messages of %d", n, want)
		}
		if last := messages[len(messages)-1].Parts[0].Text; len(messages) > want && last != "z" {
			t.Fatalf("the last message is %q", last)
		}
	}
}

// TestPageReadsWhatItShows requires that a page with a limit in bytes fetches
// about as many from the server.
func TestPageReadsWhatItShows(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	options, err := goredis.ParseURL(single(t))
	if err != nil {
		t.Fatal(err)
	}
	proxy := faultproxy.New(t, options.Addr)
	s := open(t, redis.Config{URL: urlOf(proxy.Addr()), Prefix: newPrefix()}).Sessions()
	if err := session.Create(ctx, s, &session.State{ID: "a", Agent: "a", Status: session.Active}); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		if _, err := session.AppendMessages(ctx, s, "a", []session.Message{session.UserText(strings.Repeat("x", 1<<20))}); err != nil {
			t.Fatal(err)
		}
	}
	before := proxy.Counters().Received
	page, err := s.Messages(ctx, "a", session.PageRequest{Limit: session.MaxPageSize, MaxBytes: 4 << 20})
	if err != nil || len(page.Items) != 3 || !page.HasMore {
		t.Fatalf("a page of 4 MiB has %d messages, %v", len(page.Items), err)
	}
	if took := proxy.Counters().Received - before; took > 5<<20 {
		t.Errorf("a page of 4 MiB took %d bytes from the server", took)
	}
}
