// Backends: the same agent on the stores that the environment names. If
// POSTGRES_URL and REDIS_URL are set, sessions are in Postgres and streams in Redis.
// Otherwise each is in a SQLite file. Nothing else changes.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/postgres"
	"github.com/helixagents/helix/store/redis"
	"github.com/helixagents/helix/store/sqlite"
)

var clerk = &helix.Agent{
	Name: "clerk", Instructions: "You answer letters.",
	Model: scripted.New(scripted.Text("Dear reader, all is well.")),
}

func main() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "helix-backends-")
	check(err)
	defer func() { _ = os.RemoveAll(dir) }()

	sessions, streams, err := open(dir)
	check(err)
	db := store.Mix{SessionsOf: sessions, StreamsOf: streams, LocksOf: sessions}
	defer db.Close()

	rt, err := local.New(local.Config{Backend: db, Agents: []*helix.Agent{clerk}})
	check(err)
	defer rt.Shutdown(ctx)
	run, err := rt.Execute(ctx, clerk, helix.Input{Message: helix.UserText("How are things?")})
	check(err)
	res, err := run.Result(ctx)
	check(err)
	fmt.Println(res.Status, "with:", res.Text)

	// Check that each part is in its own store.
	count, err := session.MessageCount(ctx, sessions.Sessions(), run.SessionID())
	check(err)
	info, err := streams.Streams().Info(ctx, run.SessionID())
	check(err)
	fmt.Println("messages in the sessions' store:", count)
	fmt.Println("chunks in the streams' store:", info.Last)
	_, err = streams.Sessions().Load(ctx, run.SessionID())
	fmt.Println("no session in the streams' store:", errors.Is(err, session.ErrNotFound))
}

// open opens one store for sessions and one for streams.
func open(dir string) (sessions, streams store.Backend, err error) {
	database, server := os.Getenv("POSTGRES_URL"), os.Getenv("REDIS_URL")
	if database == "" || server == "" {
		if sessions, err = sqlite.Open(filepath.Join(dir, "sessions.db")); err != nil {
			return nil, nil, err
		}
		streams, err = sqlite.Open(filepath.Join(dir, "streams.db"))
		return sessions, streams, err
	}
	if sessions, err = postgres.Open(database); err != nil {
		return nil, nil, err
	}
	streams, err = redis.Open(server)
	return sessions, streams, err
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
