package testserver

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Settings that every PgBouncer starts with. It lets everybody in, as the user that its target names.
var pgbouncerSettings = []string{"listen_addr=127.0.0.1", "unix_socket_dir=", "auth_type=any", "max_client_conn=500"}

func startPgBouncer(ctx context.Context, target string, settings []string) (*server, error) {
	if err := checkSettings(settings); err != nil {
		return nil, err
	}
	to, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	settings = slices.Concat(pgbouncerSettings, settings)
	r := &recipe{
		server:  "pgbouncer",
		find:    findPgBouncer,
		fetch:   func(ctx context.Context, d *debian) (*installation, error) { return d.pgbouncer(ctx) },
		local:   func(inst *installation) (*program, error) { return localPgBouncer(inst, to, settings) },
		install: "pgbouncer",
	}
	p, err := r.program(ctx)
	if err != nil {
		return nil, err
	}
	return newServer(ctx, p)
}

func localPgBouncer(inst *installation, to *url.URL, settings []string) (*program, error) {
	owner, err := unprivileged()
	if err != nil {
		return nil, err
	}
	return &program{
		name:    "pgbouncer",
		owner:   owner,
		prepare: func(_ context.Context, place *place) error { return writePgBouncerConfig(place, to, settings) },
		launch:  func(place *place, log *os.File) (process, error) { return launchPgBouncer(inst, owner, place, log) },
		ping:    pingPostgres,
		url: func(addr string) string {
			through := *to
			through.Host = addr
			return through.String()
		},
	}, nil
}

func pgbouncerConfig(place *place) string { return filepath.Join(place.dir, "pgbouncer.ini") }

func writePgBouncerConfig(place *place, to *url.URL, settings []string) error {
	var config strings.Builder
	fmt.Fprintf(&config, "[databases]\n* = host=%s port=%s user=%s", to.Hostname(), to.Port(), to.User.Username())
	if password, ok := to.User.Password(); ok {
		fmt.Fprintf(&config, " password='%s'", strings.ReplaceAll(password, "'", "''"))
	}
	fmt.Fprintf(&config, "\n[pgbouncer]\nlisten_port = %d\n", place.port)
	for _, s := range settings {
		name, value, _ := strings.Cut(s, "=")
		fmt.Fprintln(&config, name, "=", value)
	}
	return os.WriteFile(pgbouncerConfig(place), []byte(config.String()), 0o644)
}

func launchPgBouncer(inst *installation, owner *account, place *place, log *os.File) (process, error) {
	// A background context: the server lives until it is stopped.
	cmd := exec.CommandContext(context.Background(), inst.path("pgbouncer"), pgbouncerConfig(place))
	cmd.Dir, cmd.Env, cmd.SysProcAttr = place.dir, inst.environ(), owner.attr()
	cmd.Stdout, cmd.Stderr = log, log
	// SIGQUIT is the one that waits for no client in every version.
	return startLocal(cmd, syscall.SIGQUIT, syscall.SIGKILL)
}
