// Package backend opens a store by its address, for programs that let their user choose the
// store.
package backend

import (
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/memory"
	"github.com/helixagents/helix/store/postgres"
	"github.com/helixagents/helix/store/redis"
	"github.com/helixagents/helix/store/sqlite"
)

// Kinds of backends, by the schemes of their addresses.
const (
	SQLite   = "sqlite"
	Postgres = "postgres"
	Redis    = "redis"
	Memory   = "memory"
)

// Kind returns the kind of backend of an address.
func Kind(address string) string {
	kind, _ := Split(address)
	return kind
}

// Schema splits Helix's parameters off a Postgres address and returns the schema's name,
// which is empty for the default schema.
func Schema(address string) (database, schema string) {
	address, _ = take(address, "callTimeout")
	return take(address, "schema")
}

// Open opens the backend at an address:
//
//	PATH or sqlite:PATH                       a SQLite file
//	postgres://user:password@host/database    a Postgres database; schema=NAME names its schema,
//	                                          callTimeout=DURATION bounds each call
//	redis://user:password@host:port           Redis or a Redis Cluster; prefix=NAME begins its keys
//	memory:                                   nothing that outlives the process
//
// An address of Redis may also have requireDurable=true, which refuses a server
// that may lose writes, waitReplicas=N, which confirms a write once N replicas
// have it, waitTimeout=DURATION, which bounds how long that may take, and
// sessionTTL=DURATION, after which idle conversations are deleted.
//
// The logger, which may be nil, receives faults that no caller sees.
func Open(address string, log *slog.Logger) (store.Backend, error) {
	return OpenWithin(0, address, log)
}

// OpenWithin is Open with another limit for connecting to a server. Zero is the store's
// default of a few seconds.
func OpenWithin(limit time.Duration, address string, log *slog.Logger) (store.Backend, error) {
	switch scheme, rest := Split(address); scheme {
	case SQLite:
		return sqlite.OpenConfig(sqlite.Config{Path: rest, Logger: log})
	case Postgres:
		config, err := postgresConfig(address)
		if err != nil {
			return nil, err
		}
		config.Logger, config.ConnectTimeout = log, limit
		return postgres.OpenConfig(config)
	case Redis:
		config, err := redisConfig(address)
		if err != nil {
			return nil, err
		}
		config.Logger, config.ConnectTimeout = log, limit
		return redis.OpenConfig(config)
	case Memory:
		return memory.New(memory.Config{}), nil
	default:
		return nil, unknown(scheme)
	}
}

// Migrations returns the applied and missing migrations of the backend at an address and
// changes nothing. A backend without tables has none.
func Migrations(address string) ([]store.Migration, error) {
	switch scheme, rest := Split(address); scheme {
	case SQLite:
		return sqlite.Migrations(rest)
	case Postgres:
		config, err := postgresConfig(address)
		if err != nil {
			return nil, err
		}
		return postgres.Migrations(config)
	case Redis, Memory:
		return nil, nil
	default:
		return nil, unknown(scheme)
	}
}

// postgresConfig removes Helix's parameters from a Postgres address.
func postgresConfig(address string) (config postgres.Config, err error) {
	config.URL, err = takeAll(address, []parameter{
		{"schema", func(v string) error { config.Schema = v; return nil }, "a name"},
		{"callTimeout", func(v string) (err error) { config.CallTimeout, err = time.ParseDuration(v); return err }, "a duration such as 15s"},
	})
	return config, err
}

// redisConfig removes Helix's parameters from a Redis address.
func redisConfig(address string) (config redis.Config, err error) {
	config.URL, err = takeAll(address, []parameter{
		{"prefix", func(v string) error { config.Prefix = v; return nil }, "a name"},
		{"requireDurable", func(v string) (err error) { config.RequireDurable, err = strconv.ParseBool(v); return err }, "true or false"},
		{"sessionTTL", func(v string) (err error) { config.SessionTTL, err = time.ParseDuration(v); return err }, "a duration such as 168h"},
		{"waitReplicas", func(v string) (err error) { config.WaitReplicas, err = strconv.Atoi(v); return err }, "a number of replicas"},
		{"waitTimeout", func(v string) (err error) { config.WaitTimeout, err = time.ParseDuration(v); return err }, "a duration such as 500ms"},
	})
	return config, err
}

// parameter is one of Helix's parameters in an address.
type parameter struct {
	name string
	set  func(value string) error
	want string // what a value must be
}

// takeAll removes parameters from an address, and sets them.
func takeAll(address string, parameters []parameter) (rest string, err error) {
	for _, p := range parameters {
		var value string
		if address, value = take(address, p.name); value == "" {
			continue
		}
		if err := p.set(value); err != nil {
			return "", session.Invalid("store", "has %s=%.40q, which must be %s", p.name, value, p.want)
		}
	}
	return address, nil
}

// Split returns a backend's kind and the address without its scheme.
func Split(address string) (kind, rest string) {
	scheme, rest, found := strings.Cut(address, ":")
	switch {
	case !found || strings.ContainsAny(scheme, `/\.`):
		return SQLite, address
	case scheme == "postgresql":
		return Postgres, rest
	case scheme == "rediss":
		return Redis, rest
	}
	return scheme, rest
}

func unknown(scheme string) error {
	return session.Invalid("store", "%q is invalid: use sqlite:, postgres://, redis:// or memory:", scheme+":")
}

// Redacted returns an address without passwords, those of the user and those in parameters.
func Redacted(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Opaque != "" {
		scheme, _, _ := strings.Cut(address, ":")
		return scheme + ":…"
	}
	parameters := strings.Split(u.RawQuery, "&")
	for i, parameter := range parameters {
		raw, _, _ := strings.Cut(parameter, "=")
		name, err := url.QueryUnescape(raw)
		if err != nil || strings.Contains(strings.ToLower(name), "password") {
			parameters[i] = raw + "=xxxxx"
		}
	}
	u.RawQuery = strings.Join(parameters, "&")
	return u.Redacted()
}

// take removes a Helix parameter from a URL before the URL is passed to a driver.
// A URL that cannot be parsed is passed to the driver unchanged, which reports the
// problem without showing the password.
func take(address, name string) (rest, value string) {
	u, err := url.Parse(address)
	if err != nil {
		return address, ""
	}
	query := u.Query()
	value = query.Get(name)
	query.Del(name)
	u.RawQuery = query.Encode()
	return u.String(), value
}
