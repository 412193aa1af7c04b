package testserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The images to use where nothing else can be had.
const (
	postgresImage = "postgres:17-alpine"
	redisImage    = "redis:7-alpine"
)

// dockerTimeout is how long the engine may take for anything but fetching an image.
const dockerTimeout = time.Minute

// checkDocker finds out whether there is an engine.
func checkDocker(ctx context.Context) error {
	if _, err := exec.LookPath("docker"); err != nil {
		return errors.New("not installed")
	}
	return docker(ctx, dockerTimeout, "version", "--format", "{{.Server.Version}}")
}

// docker runs a docker command.
func docker(ctx context.Context, timeout time.Duration, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout) // waits: for another program, which may hang, and fetches images from elsewhere
	defer cancel()
	if out, err := exec.CommandContext(ctx, "docker", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("docker %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return nil
}

func containerName(place *place) string { return "helix-testserver-" + strconv.Itoa(place.port) }

// containerMark is a file that says that a place has a container, which outlives a crash.
func containerMark(place *place) string { return filepath.Join(place.dir, "container") }

// createContainer makes the container of a place, which keeps its data when it is started again. It shares the machine's
// network: the server listens on the same loopback address as a local one would, and nodes of a cluster find each other.
func createContainer(ctx context.Context, place *place, args ...string) error {
	if err := os.WriteFile(containerMark(place), nil, 0o600); err != nil {
		return err
	}
	create := []string{"create", "--name", containerName(place), "--network", "host"}
	return docker(ctx, fetchTimeout, append(create, args...)...)
}

// removeContainer removes the container of a place, if it has one.
func removeContainer(place *place) error {
	if _, err := os.Stat(containerMark(place)); err != nil {
		return nil //nolint:nilerr // it has none
	}
	return docker(context.Background(), dockerTimeout, "rm", "--force", "--volumes", containerName(place))
}

// container is a server that runs in Docker.
type container struct {
	name string
	// attached is the docker command that shows what the container prints. It ends when the container does, and passes the
	// signal on that it gets when this process dies.
	attached *localProcess
}

func launchContainer(place *place, log *os.File) (process, error) {
	name := containerName(place)
	// A background context: the server lives until it is stopped.
	cmd := exec.CommandContext(context.Background(), "docker", "start", "--attach", name)
	cmd.Stdout, cmd.Stderr = log, log
	attached, err := startLocal(cmd, syscall.SIGTERM, syscall.SIGTERM)
	if err != nil {
		return nil, err
	}
	return &container{name: name, attached: attached}, nil
}

func (c *container) done() <-chan struct{} { return c.attached.done() }

func (c *container) shutdown() error { return c.do("stop") }

func (c *container) kill() error {
	select {
	case <-c.done():
		return nil
	default:
	}
	return errors.Join(c.do("kill"), c.attached.awaitEnd(nil))
}

func (c *container) pause() error { return c.do("pause") }

func (c *container) resume() error { return c.do("unpause") }

func (c *container) do(command string) error {
	return docker(context.Background(), dockerTimeout, command, c.name)
}
