package testserver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/helixagents/helix/internal/eventually"
)

// Settings that every Postgres server starts with.
var postgresSettings = []string{
	"listen_addresses=127.0.0.1",
	"unix_socket_directories=", // their paths would be too long on some machines
	"max_connections=300",
	"shared_buffers=64MB",
	// Files in the data directory, which goes away with the server even if that was killed.
	"dynamic_shared_memory_type=mmap",
}

// Settings of the server that tests share: nobody restarts it, so nothing needs to reach the disk.
var sharedPostgresSettings = []string{"fsync=off", "full_page_writes=off"}

func startSharedPostgres(ctx context.Context) (url string, servers []*server, err error) {
	s, err := startPostgres(ctx, sharedPostgresSettings)
	if err != nil {
		return "", nil, err
	}
	return s.url(), []*server{s}, nil
}

func startPostgres(ctx context.Context, settings []string) (*server, error) {
	if err := checkSettings(settings); err != nil {
		return nil, err
	}
	settings = slices.Concat(postgresSettings, settings)
	r := &recipe{
		server:    "postgres",
		find:      findPostgres,
		fetch:     func(ctx context.Context, d *debian) (*installation, error) { return d.postgres(ctx) },
		local:     func(inst *installation) (*program, error) { return localPostgres(inst, settings) },
		container: func() *program { return containerPostgres(settings) },
		install:   fmt.Sprintf("postgresql (%d or later)", oldestPostgres),
		env:       envPostgres,
	}
	p, err := r.program(ctx)
	if err != nil {
		return nil, err
	}
	return newServer(ctx, p)
}

func localPostgres(inst *installation, settings []string) (*program, error) {
	owner, err := unprivileged()
	if err != nil {
		return nil, err
	}
	return &program{
		name:    "postgres",
		owner:   owner,
		prepare: func(ctx context.Context, place *place) error { return initdb(ctx, inst, owner, place) },
		launch: func(place *place, log *os.File) (process, error) {
			return launchPostgres(inst, owner, place, log, settings)
		},
		ping:  pingPostgres,
		url:   postgresURL,
		clean: removeSharedMemory,
	}, nil
}

// containerPostgres leaves the making of the data directory to the image.
func containerPostgres(settings []string) *program {
	return &program{
		name: "postgres",
		prepare: func(ctx context.Context, place *place) error {
			args := []string{
				"--env", "POSTGRES_HOST_AUTH_METHOD=trust", "--env", "POSTGRES_INITDB_ARGS=--encoding=UTF8 --locale=C",
				postgresImage, "postgres",
			}
			return createContainer(ctx, place, append(args, postgresArgs(place, settings)...)...)
		},
		launch: launchContainer,
		ping:   pingPostgres,
		url:    postgresURL,
	}
}

func postgresURL(addr string) string {
	return "postgres://postgres@" + addr + "/postgres?sslmode=disable"
}

func postgresArgs(place *place, settings []string) []string {
	args := []string{"-p", strconv.Itoa(place.port)}
	for _, s := range settings {
		args = append(args, "-c", s)
	}
	return args
}

func initdb(ctx context.Context, inst *installation, owner *account, place *place) error {
	ctx, cancel := context.WithTimeout(ctx, eventually.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, inst.path("initdb"), "--pgdata", place.dataDir(), "--username", "postgres", "--auth", "trust",
		"--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions")
	cmd.Dir, cmd.Env, cmd.SysProcAttr = place.dir, inst.environ(), owner.attr()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

func launchPostgres(inst *installation, owner *account, place *place, log *os.File, settings []string) (process, error) {
	args := append([]string{"-D", place.dataDir()}, postgresArgs(place, settings)...)
	// A background context: the server lives until it is stopped.
	cmd := exec.CommandContext(context.Background(), inst.path("postgres"), args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = place.dir, inst.environ(), owner.attr()
	cmd.Stdout, cmd.Stderr = log, log
	// SIGINT is the shutdown that waits for no client; SIGQUIT the one that does not even write a checkpoint, but takes all
	// processes along.
	return startLocal(cmd, syscall.SIGINT, syscall.SIGQUIT)
}

// pingPostgres opens a session and reports whether the server greets it.
func pingPostgres(ctx context.Context, addr string) error {
	conn, err := dial(ctx, addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	const params = "user\x00postgres\x00database\x00postgres\x00\x00"
	const version3 = 3 << 16
	hello := binary.BigEndian.AppendUint32(nil, uint32(8+len(params)))
	hello = binary.BigEndian.AppendUint32(hello, version3)
	if _, err := conn.Write(append(hello, params...)); err != nil {
		return err
	}
	for {
		kind, body, err := readPostgresMessage(conn)
		if err != nil {
			return err
		}
		switch kind {
		case 'E':
			return fmt.Errorf("postgres answers %q", body)
		case 'Z': // ready for queries: part as friends
			_, err := conn.Write([]byte{'X', 0, 0, 0, 4})
			return err
		}
	}
}

func readPostgresMessage(r io.Reader) (kind byte, body []byte, err error) {
	var header [5]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(header[1:])
	const tooBig = 1 << 16
	if size < 4 || size > tooBig {
		return 0, nil, errors.New("what listens there is not postgres")
	}
	body = make([]byte, size-4)
	_, err = io.ReadFull(r, body)
	return header[0], body, err
}

// removeSharedMemory gives back the System V segment of a server that was killed; the system has few.
func removeSharedMemory(place *place) {
	pidFile, err := os.ReadFile(filepath.Join(place.dataDir(), "postmaster.pid"))
	if err != nil {
		return // shut down in an orderly way
	}
	const segmentLine = 6 // counted from 0
	lines := strings.Split(string(pidFile), "\n")
	if len(lines) <= segmentLine {
		return
	}
	var key, id int
	if _, err := fmt.Sscan(lines[segmentLine], &key, &id); err == nil {
		removeSegment(id)
	}
}
