// Package backend opens the store that an address names, for programs that leave
// the choice to whoever starts them.
package backend

import (
	"net/url"
	"strings"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/memory"
	"github.com/helixagents/helix/store/postgres"
	"github.com/helixagents/helix/store/redis"
	"github.com/helixagents/helix/store/sqlite"
)

// Open opens the backend at an address:
//
//	PATH or sqlite:PATH                       a SQLite file
//	postgres://user:password@host/database    a Postgres database; schema=NAME names its schema
//	redis://user:password@host:port           Redis or a Redis Cluster; prefix=NAME begins its keys
//	memory:                                   nothing that outlives the process
func Open(address string) (store.Backend, error) {
	scheme, rest, found := strings.Cut(address, ":")
	switch {
	case address == "":
		return nil, session.Invalid("store", "must not be empty")
	case !found || strings.ContainsAny(scheme, `/\.`):
		return sqlite.Open(address)
	}
	switch scheme {
	case "sqlite":
		return sqlite.Open(rest)
	case "postgres", "postgresql":
		database, schema := take(address, "schema")
		return postgres.OpenConfig(postgres.Config{URL: database, Schema: schema})
	case "redis", "rediss":
		server, prefix := take(address, "prefix")
		return redis.OpenConfig(redis.Config{URL: server, Prefix: prefix})
	case "memory":
		return memory.New(memory.Config{}), nil
	}
	return nil, session.Invalid("store", "%q is none of sqlite:, postgres://, redis:// and memory:", scheme+":")
}

// take removes a parameter of ours from a URL that is then handed to a driver. One
// that cannot be read is left to the driver, which says what is wrong with it
// without showing its password.
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
