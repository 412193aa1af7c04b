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
	// write replaces what follows the kept messages by one generation.
	const kept, tail = 600, 1000 // a part has 500 at most
	write := func(keep, n, size int, text string) error {
		change := session.Change{KeepMessages: &keep}
		for range n {
			change.Messages = append(change.Messages, session.UserText(strings.Repeat(text, size)))
		}
		_, err := s.Edit(ctx, &session.Edit{SessionID: "a", Change: change})
		return err
	}
	for _, err := range []error{write(0, kept-25, 1, "x"), write(kept-25, 25, 100_000, "x"), write(kept, tail, 1, "a")} { // 25 take several parts
		if err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() {
		for i := range 20 {
			if err := write(kept, tail, 1, string(rune('b'+i))); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for reading := true; reading; {
		select {
		case err := <-done:
			if reading = false; err != nil {
				t.Error(err)
			}
		default:
		}
		messages, err := s.AllMessages(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		if n := len(messages); n != kept+tail {
			t.Fatalf("%d messages of %d", n, kept+tail)
		}
		for i := kept; i < len(messages); i++ {
			if first, this := messages[kept].Parts[0].Text, messages[i].Parts[0].Text; this != first {
				t.Fatalf("message %d is of %q, and others of %q", i, this, first)
			}
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
