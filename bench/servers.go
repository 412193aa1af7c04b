package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/helixagents/helix/internal/testserver"
)

// Variables that name running servers to measure on. They should be durable, or
// their figures say little.
const (
	envPostgres = "HELIX_BENCH_POSTGRES"
	envRedis    = "HELIX_BENCH_REDIS"
	envTemporal = "HELIX_BENCH_TEMPORAL"
)

// servers are those that stores and runtimes need.
type servers struct{ postgres, redis, temporal server }

func newServers() *servers {
	return &servers{
		postgres: server{env: envPostgres, start: testserver.DurablePostgres},
		redis:    server{env: envRedis, start: testserver.DurableRedis},
		temporal: server{env: envTemporal, start: testserver.DurableTemporal},
	}
}

// stop ends those that were started.
func (s *servers) stop() error {
	return errors.Join(s.postgres.close(), s.redis.close(), s.temporal.close())
}

// environ names them to another process.
func (s *servers) environ() []string {
	env := os.Environ()
	for _, one := range []*server{&s.postgres, &s.redis, &s.temporal} {
		if one.url != "" {
			env = append(env, one.env+"="+one.url)
		}
	}
	return env
}

// server is one that the environment names, or that is started when it is first
// needed.
type server struct {
	env   string
	start func(ctx context.Context) (url string, stop func() error, err error)

	url  string
	stop func() error
	err  error // why there is none
}

// get returns its URL. A store that needs no server has a nil one.
func (s *server) get(ctx context.Context) (string, error) {
	if s == nil {
		return "", nil
	}
	if s.url == "" && s.err == nil {
		s.url = os.Getenv(s.env)
	}
	if s.url == "" && s.err == nil {
		if s.url, s.stop, s.err = s.start(ctx); s.err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s names no server, and none can be started: %v\n", s.env, s.err)
			s.err = errors.New("there is no server") // the reason was reported before
		}
	}
	return s.url, s.err
}

func (s *server) close() error {
	if s.stop == nil {
		return nil
	}
	return s.stop()
}
