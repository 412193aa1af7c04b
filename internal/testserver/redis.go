package testserver

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Settings that every Redis server starts with. Everything is in the append-only file.
var redisSettings = []string{"bind=127.0.0.1", "save=", "appendonly=yes", "appendfsync=always"}

// Settings of the server that tests share: nobody restarts it.
var sharedRedisSettings = []string{"appendfsync=everysec"}

func startSharedRedis(ctx context.Context) (url string, servers []*server, err error) {
	s, err := startRedis(ctx, sharedRedisSettings)
	if err != nil {
		return "", nil, err
	}
	return s.url(), []*server{s}, nil
}

func startRedis(ctx context.Context, settings []string) (*server, error) {
	if err := checkSettings(settings); err != nil {
		return nil, err
	}
	settings = slices.Concat(redisSettings, settings)
	r := &recipe{
		server:    "redis",
		find:      findRedis,
		fetch:     func(ctx context.Context, d *debian) (*installation, error) { return d.redis(ctx) },
		local:     func(inst *installation) (*program, error) { return localRedis(inst, settings), nil },
		container: func() *program { return containerRedis(settings) },
		install:   "redis-server or valkey-server",
		env:       envRedis + " (or " + envRedisCluster + ")",
	}
	p, err := r.program(ctx)
	if err != nil {
		return nil, err
	}
	return newServer(ctx, p)
}

func localRedis(inst *installation, settings []string) *program {
	return &program{
		name:    "redis",
		prepare: func(_ context.Context, place *place) error { return writeRedisConfig(place, place.dataDir(), settings) },
		launch:  func(place *place, log *os.File) (process, error) { return launchRedis(inst, place, log) },
		ping:    pingRedis,
		url:     redisURL,
	}
}

func containerRedis(settings []string) *program {
	return &program{
		name: "redis",
		prepare: func(ctx context.Context, place *place) error {
			if err := writeRedisConfig(place, "/data", settings); err != nil {
				return err
			}
			return createContainer(ctx, place, "--volume", redisConfig(place)+":/redis.conf:ro", redisImage, "redis-server", "/redis.conf")
		},
		launch: launchContainer,
		ping:   pingRedis,
		url:    redisURL,
	}
}

func redisURL(addr string) string { return "redis://" + addr }

func redisConfig(place *place) string { return filepath.Join(place.dir, "redis.conf") }

func writeRedisConfig(place *place, dataDir string, settings []string) error {
	settings = slices.Concat([]string{"port=" + strconv.Itoa(place.port), "dir=" + dataDir}, settings)
	var config strings.Builder
	for _, s := range settings {
		name, value, _ := strings.Cut(s, "=")
		if value == "" {
			value = `""`
		}
		fmt.Fprintln(&config, name, value)
	}
	return os.WriteFile(redisConfig(place), []byte(config.String()), 0o644)
}

func launchRedis(inst *installation, place *place, log *os.File) (process, error) {
	// A background context: the server lives until it is stopped.
	cmd := exec.CommandContext(context.Background(), inst.path("redis-server"), redisConfig(place))
	cmd.Dir, cmd.Env = place.dir, inst.environ()
	cmd.Stdout, cmd.Stderr = log, log
	return startLocal(cmd, syscall.SIGTERM, syscall.SIGKILL)
}

func pingRedis(ctx context.Context, addr string) error {
	answer, err := askRedis(ctx, addr, "PING")
	if err == nil && answer != "PONG" {
		return fmt.Errorf("what listens there answers %q", answer)
	}
	return err
}

// askRedis sends one command and returns its answer, which must be a string.
func askRedis(ctx context.Context, addr, command string) (string, error) {
	conn, err := dial(ctx, addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, command+"\r\n"); err != nil {
		return "", err
	}
	r := bufio.NewReader(conn)
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	switch {
	case strings.HasPrefix(line, "+"):
		return line[1:], nil
	case strings.HasPrefix(line, "$"):
		size, err := strconv.ParseUint(line[1:], 10, 16)
		if err != nil {
			return "", err
		}
		body := make([]byte, size)
		_, err = io.ReadFull(r, body)
		return string(body), err
	default:
		return "", fmt.Errorf("redis answers %q", line)
	}
}
