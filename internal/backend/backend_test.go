package backend

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testserver.Main(m)) }

func TestRedacted(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"postgres://u:word@host/db?schema=s":                        "postgres://u:xxxxx@host/db?schema=s",
		"postgres://host/db?user=u&password=word&schema=s":          "postgres://host/db?user=u&password=xxxxx&schema=s",
		"postgres://host/db?pass%77ord=word&SSLPassword=w&%zz=word": "postgres://host/db?pass%77ord=xxxxx&SSLPassword=xxxxx&%zz=xxxxx",
		"postgres://u:p@word@host:port/db":                          "postgres:…",
		"postgres:u:word@host":                                      "postgres:…",
		"redis://:word@host:6379":                                   "redis://:xxxxx@host:6379",
		"memory:":                                                   "memory:",
	} {
		if got := Redacted(address); got != want {
			t.Errorf("%s is shown as %s, want %s", address, got, want)
		}
	}
}

func TestRedisParameters(t *testing.T) {
	t.Parallel()
	config, err := redisConfig("redis://u:word@host:1?addr=host:2&prefix=p&requireDurable=true&waitReplicas=2&waitTimeout=750ms&sessionTTL=168h&pool_size=3")
	if err != nil {
		t.Fatal(err)
	}
	if config.URL != "redis://u:word@host:1?addr=host%3A2&pool_size=3" {
		t.Errorf("the driver receives %s", config.URL)
	}
	if config.Prefix != "p" || !config.RequireDurable || config.WaitReplicas != 2 || config.WaitTimeout != 750*time.Millisecond ||
		config.SessionTTL != 168*time.Hour {
		t.Errorf("the configuration is %+v", config)
	}
	config, err = redisConfig("redis://host:1")
	if err != nil || config.RequireDurable || config.WaitReplicas != 0 || config.URL != "redis://host:1" {
		t.Errorf("without parameters it is %+v, %v", config, err)
	}
	for _, bad := range []string{"requireDurable=maybe", "waitReplicas=some", "waitTimeout=5", "sessionTTL=week"} {
		name, value, _ := strings.Cut(bad, "=")
		_, err := Open("redis://u:word@127.0.0.1:1?"+bad, nil)
		if !errors.Is(err, session.ErrInvalid) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), value) ||
			strings.Contains(err.Error(), "word") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestPostgresParameters(t *testing.T) {
	t.Parallel()
	const address = "postgres://u:word@host/db?callTimeout=750ms&schema=s&sslmode=disable"
	config, err := postgresConfig(address)
	if err != nil || config.URL != "postgres://u:word@host/db?sslmode=disable" || config.Schema != "s" || config.CallTimeout != 750*time.Millisecond {
		t.Errorf("the configuration is %+v, %v", config, err)
	}
	if database, schema := Schema(address); database != config.URL || schema != "s" {
		t.Errorf("the database is %s, its schema %s", database, schema)
	}
	for _, bad := range []string{"callTimeout=5", "callTimeout=-5s"} {
		name, value, _ := strings.Cut(bad, "=")
		_, err := Open("postgres://u:word@127.0.0.1:1/db?"+bad, nil)
		if !errors.Is(err, session.ErrInvalid) || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(name)) ||
			!strings.Contains(err.Error(), value) || strings.Contains(err.Error(), "word") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestRequireDurable opens a server without persistence.
func TestRequireDurable(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t, "appendonly=no")
	db, err := Open(server.URL()+"?requireDurable=false", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	_, err = Open(server.URL()+"?requireDurable=true", nil)
	if !errors.Is(err, session.ErrUnavailable) || !strings.Contains(err.Error(), "may lose sessions") {
		t.Errorf("a server without persistence: %v", err)
	}
}

// TestOpenWithin opens servers that never answer: the error names the limit.
func TestOpenWithin(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	at := silent.Addr().String()
	for _, address := range []string{"postgres://u@" + at + "/d?sslmode=disable", "redis://" + at, "redis://" + at + "?addr=" + at} {
		_, err := OpenWithin(50*time.Millisecond, address, nil)
		if !errors.Is(err, session.ErrUnavailable) || !strings.Contains(err.Error(), "within 50ms") {
			t.Errorf("%s: %v", address, err)
		}
	}
}
