package testserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
)

// Environment starts the servers that the environment of this process does not name yet, and returns the variables that
// name them, in the form "NAME=value": what other test processes need in their environment to share them. stop stops them.
//
// A server that cannot be had is an error, or is left out if tests may be skipped.
func Environment(ctx context.Context) (env []string, stop func() error, err error) {
	wanted := []*shared{
		{env: envPostgres, start: startSharedPostgres},
		{env: envRedis, start: startSharedRedis},
		{env: envRedisCluster, start: startCluster},
	}
	var starts sync.WaitGroup
	for _, s := range wanted {
		if os.Getenv(s.env) == "" {
			starts.Go(func() { s.url, s.servers, s.err = s.start(ctx) })
		}
	}
	starts.Wait()

	stop = func() error {
		var errs []error
		for _, s := range wanted {
			errs = append(errs, s.stop())
		}
		return errors.Join(errs...)
	}
	var errs []error
	for _, s := range wanted {
		var missing *missingError
		switch {
		case s.err == nil && s.url != "":
			env = append(env, s.env+"="+s.url)
		case skipServers() && errors.As(s.err, &missing):
			fmt.Fprintf(os.Stderr, "testserver: %s=1: tests are skipped: %v\n", envSkip, s.err)
		default:
			errs = append(errs, s.err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return env, stop, nil
}
