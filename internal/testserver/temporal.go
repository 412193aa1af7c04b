package testserver

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// Settings that every Temporal server starts with. Out of the box it looks for work so seldom that an activity takes a tenth
// of a second; with these it takes a tenth of that.
var temporalSettings = []string{
	"history.transferProcessorMaxPollRPS=2000",
	"history.timerProcessorMaxPollRPS=2000",
	"matching.numTaskqueueReadPartitions=1",
	"matching.numTaskqueueWritePartitions=1",
}

// temporalCLI is the last version that Go builds without its sources being at hand: later ones replace modules. It has the
// server inside. The driver of SQLite that it asks for leaks a statement when a query is cancelled in the wrong moment, and
// then every statement of the server fails as interrupted.
var temporalCLI = &goProgram{
	name: "temporal", module: "github.com/temporalio/cli", pkg: "cmd/temporal", version: "v1.5.1",
	newer: []string{"modernc.org/sqlite v1.54.0"},
	takes: "a few minutes",
}

func startSharedTemporal(ctx context.Context) (url string, servers []*server, err error) {
	// In memory: nobody restarts it.
	s, err := startTemporal(ctx, false, nil)
	if err != nil {
		return "", nil, err
	}
	return s.url(), []*server{s}, nil
}

func startTemporal(ctx context.Context, durable bool, settings []string) (*server, error) {
	if err := checkSettings(settings); err != nil {
		return nil, err
	}
	settings = slices.Concat(temporalSettings, settings)
	r := &recipe{
		server:  "temporal",
		find:    findTemporal,
		build:   temporalCLI.build,
		local:   func(inst *installation) (*program, error) { return localTemporal(inst, durable, settings), nil },
		install: "the Temporal CLI, with server " + oldestTemporal + " or later",
		env:     envTemporal,
	}
	p, err := r.program(ctx)
	if err != nil {
		return nil, err
	}
	return newServer(ctx, p)
}

// temporalToBuild reports whether the server has to be built before it can be started.
func temporalToBuild(ctx context.Context) bool {
	for _, from := range sources() {
		switch {
		case from == fromInstalled && findTemporal(ctx) != nil:
			return false
		case from == fromGo:
			return temporalCLI.built() == nil
		}
	}
	return false
}

func localTemporal(inst *installation, durable bool, settings []string) *program {
	return &program{
		name:    "temporal",
		prepare: func(context.Context, *place) error { return nil },
		launch: func(place *place, log *os.File) (process, error) {
			args := temporalArgs(place, settings)
			if durable {
				// What a process has written outlives it; to sync as well would take twice the time.
				args = append(args, "--db-filename", filepath.Join(place.dataDir(), "temporal.db"),
					"--sqlite-pragma", "journal_mode=wal", "--sqlite-pragma", "synchronous=off")
			}
			// A background context: the server lives until it is stopped.
			cmd := exec.CommandContext(context.Background(), inst.path("temporal"), args...)
			cmd.Dir, cmd.Env = place.dir, inst.environ()
			cmd.Stdout, cmd.Stderr = log, log
			return startLocal(cmd, syscall.SIGTERM, syscall.SIGKILL)
		},
		ping:    pingTemporal,
		url:     func(addr string) string { return addr }, // what the SDK calls HostPort
		dropped: true,
	}
}

// temporalArgs leaves the ports for metrics and between the server's own parts to the server, which finds free ones.
func temporalArgs(place *place, settings []string) []string {
	args := []string{
		"server", "start-dev", "--headless", "--log-level", "error",
		"--ip", "127.0.0.1", "--port", strconv.Itoa(place.port), "--http-port", strconv.Itoa(place.port + secondPort),
	}
	for _, s := range settings {
		args = append(args, "--dynamic-config-value", s)
	}
	return args
}

// pingTemporal asks by HTTP, which the server answers on its second port, for the namespace that it makes at the start.
func pingTemporal(ctx context.Context, addr string) error {
	conn, err := dial(ctx, addr)
	if err != nil {
		return err
	}
	if err := conn.Close(); err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	first, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	return pingHTTP(ctx, "http://"+net.JoinHostPort(host, strconv.Itoa(first+secondPort))+"/api/v1/namespaces/default")
}
