package redis_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/redis"
)

// refused opens a server that cannot be used, and returns the error's text. The error comes without waiting for the connect
// timeout, unless the config has one.
func refused(t *testing.T, config redis.Config) string {
	t.Helper()
	config.ConnectTimeout = cmp.Or(config.ConnectTimeout, 2*eventually.Patience)
	refused := make(chan error, 1)
	go func() {
		b, err := redis.OpenConfig(config)
		if err == nil {
			_ = b.Close()
		}
		refused <- err
	}()
	err := eventually.Receive(t, "a refusal", refused)
	if err == nil {
		t.Fatal("it was opened")
	}
	if !errors.Is(err, session.ErrUnavailable) && !errors.Is(err, session.ErrInvalid) {
		t.Errorf("the refusal is neither unavailable nor invalid: %v", err)
	}
	return err.Error()
}

// TestNewerFormat refuses to open a store that only later programs can use.
func TestNewerFormat(t *testing.T) {
	t.Parallel()
	for _, url := range []string{single(t), cluster(t)} {
		prefix := newPrefix()
		client := connect(t, url)
		for value, usable := range map[string]bool{"1": true, "99": false} {
			if err := client.Set(context.Background(), prefix+":{+format}:readable", value, 0).Err(); err != nil {
				t.Fatal(err)
			}
			b, err := redis.OpenConfig(redis.Config{URL: url, Prefix: prefix})
			if err == nil {
				_ = b.Close()
			}
			if usable && err != nil || !usable && (!errors.Is(err, session.ErrUnavailable) || !strings.Contains(err.Error(), "must be updated")) {
				t.Errorf("a store for programs from format %s on: %v", value, err)
			}
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	locked := start(t)
	if err := admin(t, locked).ConfigSet(context.Background(), "requirepass", "secret").Err(); err != nil {
		t.Fatal(err)
	}
	users := start(t)
	client := admin(t, users)
	for _, rule := range [][]any{
		{"ACL", "SETUSER", "poor", "on", ">poor", "~*", "&*", "+@all", "-xadd", "-hset"},
		{"ACL", "SETUSER", "fenced", "on", ">fenced", "~other:*", "&*", "+@all"},
		{"ACL", "SETUSER", "none", "on", ">none", "~*", "+ping"},
	} {
		if err := client.Do(context.Background(), rule...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	replica := startReplica(t, users).Addr()
	for name, c := range map[string]struct {
		config redis.Config
		want   string
	}{
		"empty":          {redis.Config{}, "must not be empty"},
		"scheme":         {redis.Config{URL: "http://localhost:6379"}, "redis url"},
		"unreadable":     {redis.Config{URL: "redis://user:secret@local host:x"}, "must look like"},
		"prefix":         {redis.Config{URL: urlOf(users), Prefix: "a{b}"}, "braces"},
		"nobody":         {redis.Config{URL: urlOf(freeAddress(t))}, "cannot be reached"},
		"silent":         {redis.Config{URL: urlOf(silent(t)), ConnectTimeout: time.Second}, "no answer within 1s"},
		"no password":    {redis.Config{URL: urlOf(locked)}, "requires a password"},
		"wrong password": {redis.Config{URL: "redis://default:secret-guess@" + locked}, "refuses the user name or password"},
		"commands":       {redis.Config{URL: "redis://poor:poor@" + users}, "HSET, XADD"},
		"keys":           {redis.Config{URL: "redis://fenced:fenced@" + users}, "permissions"},
		"rights":         {redis.Config{URL: "redis://none:none@" + users}, "permissions"},
		"replica":        {redis.Config{URL: urlOf(replica)}, "connect to its primary, " + users},
		"old":            {redis.Config{URL: urlOf(old(t))}, "Redis 7 or newer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := refused(t, c.config)
			if !strings.Contains(said, c.want) {
				t.Errorf("it says %q, not %q", said, c.want)
			}
			if strings.Contains(said, "secret") {
				t.Errorf("it contains a password: %q", said)
			}
		})
	}
	t.Cleanup(func() {
		if n := admin(t, users).DBSize(context.Background()).Val(); n != 0 {
			t.Errorf("%d keys were left", n)
		}
	})
}

// silent returns an address that accepts connections and never answers.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// old returns the address of a fake server of an earlier version, because no such
// server is available.
func old(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go answerOld(c)
		}
	}()
	return l.Addr().String()
}

func answerOld(c net.Conn) {
	defer func() { _ = c.Close() }()
	r := bufio.NewReader(c)
	for {
		var count int
		if _, err := fmt.Fscanf(r, "*%d\r\n", &count); err != nil {
			return
		}
		var words []string
		for range count {
			var size int
			if _, err := fmt.Fscanf(r, "$%d\r\n", &size); err != nil {
				return
			}
			word := make([]byte, size+2)
			if _, err := r.Read(word); err != nil {
				return
			}
			words = append(words, strings.ToLower(strings.TrimSpace(string(word))))
		}
		answer := "-ERR unknown command\r\n"
		switch words[0] {
		case "ping":
			answer = "+PONG\r\n"
		case "info":
			answer = "$21\r\nredis_version:6.2.14\r\n\r\n"
		}
		if _, err := c.Write([]byte(answer)); err != nil {
			return
		}
	}
}

func TestOpenDurable(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settings []string
		want     []string
	}{
		"sound":   {nil, nil},
		"evicts":  {[]string{"maxmemory-policy=allkeys-lru"}, []string{"eviction policy is allkeys-lru"}},
		"no file": {[]string{"appendonly=no"}, []string{"append-only file"}},
		"neither": {[]string{"appendonly=no", "maxmemory-policy=volatile-lru"}, []string{"volatile-lru", "append-only"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := start(t, c.settings...)
			var log bytes.Buffer
			open(t, redis.Config{URL: urlOf(address), Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if lines := strings.Count(log.String(), "\n"); lines != min(len(c.want), 1) {
				t.Errorf("%d lines were logged: %s", lines, log.String())
			}
			said := ""
			if c.want != nil {
				said = refused(t, redis.Config{URL: urlOf(address), RequireDurable: true})
			} else {
				open(t, redis.Config{URL: urlOf(address), RequireDurable: true})
			}
			for _, want := range c.want {
				if !strings.Contains(log.String(), want) || !strings.Contains(said, want) {
					t.Errorf("it says %q and logs %q, not %q", said, log.String(), want)
				}
			}
		})
	}
}

// Several nodes may be named, so that one of them may be down.
func TestOpenClusterByAddresses(t *testing.T) {
	t.Parallel()
	nodes := nodesOf(t, connect(t, cluster(t)).(*goredis.ClusterClient))
	url := fmt.Sprintf("redis://%s?addr=%s&addr=%s", freeAddress(t), nodes[0], nodes[1])
	b := open(t, redis.Config{URL: url, Prefix: newPrefix()})
	newTurn(t, b.Sessions(), "a").commit(session.Change{StepCount: new(1)})
}
