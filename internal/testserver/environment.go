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
// A server that cannot be had is an error, or is left out if tests may be skipped. Temporal is also left out if it has to be
// built first: the build continues while tests run, and tests that need it wait and start a server of their own.
func Environment(ctx context.Context) (env []string, stop func() error, err error) {
	wanted := []*shared{
		{env: envPostgres, start: startSharedPostgres},
		{env: envRedis, start: startSharedRedis},
		{env: envRedisCluster, start: startCluster},
	}
	stopBuilding := func() {}
	if os.Getenv(envTemporal) == "" && temporalToBuild(ctx) {
		stopBuilding = buildInBackground(ctx, temporalCLI)
	} else {
		wanted = append(wanted, &shared{env: envTemporal, start: startSharedTemporal})
	}
	var starts sync.WaitGroup
	for _, s := range wanted {
		if os.Getenv(s.env) == "" {
			starts.Go(func() { s.url, s.servers, s.err = s.start(ctx) })
		}
	}
	starts.Wait()

	stop = func() error {
		stopBuilding()
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

// buildInBackground returns at once. stop ends the build if it is not done; what is compiled by then, Go keeps. Whoever needs
// the program after a failure tries again, and says why that fails.
func buildInBackground(ctx context.Context, g *goProgram) (stop func()) {
	// Not the context given, which ends when the other servers are up.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var building sync.WaitGroup
	building.Go(func() {
		if _, err := g.build(ctx); err != nil && ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "testserver: %v\n", err)
		}
	})
	return func() {
		cancel()
		building.Wait()
	}
}
