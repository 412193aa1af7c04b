package testserver

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fakeDocker is a docker command without containers: it notes what it was asked and runs a Redis of this machine with the
// configuration that was mounted into the container.
const fakeDocker = `#!/bin/sh
set -eu
cd "$(dirname "$0")"
echo "$*" >>calls
command=$1
case $command in
create)
	while [ $# -gt 0 ]; do
		case $1 in *:/redis.conf:ro) echo "${1%%:*}" >config ;; esac
		shift
	done
	;;
start)
	mkdir -p data
	sed "s|^dir .*|dir $PWD/data|" "$(cat config)" >own.conf
	echo $$ >pid
	exec REDIS own.conf
	;;
stop) kill -TERM "$(cat pid)" ;;
kill) kill -KILL "$(cat pid)" ;;
pause) kill -STOP "$(cat pid)" ;;
unpause) kill -CONT "$(cat pid)" ;;
esac
`

// redisCommand is a shell command that starts Redis.
func redisCommand(t *testing.T) string {
	t.Helper()
	Redis(t) // fails or skips the test if there is no Redis
	inst := findRedis(t.Context())
	if inst == nil {
		d, err := newDebian()
		if err != nil {
			t.Skipf("the fake needs a Redis that is not in Docker: %v", err)
		}
		if inst, err = d.redis(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return strings.Join(slices.Concat([]string{"env"}, inst.env, []string{inst.path("redis-server")}), " ")
}

// installFakeDocker puts the fake first in PATH and returns what lists its calls.
func installFakeDocker(t *testing.T) (calls func() string) {
	t.Helper()
	dir := t.TempDir()
	script := strings.ReplaceAll(fakeDocker, "REDIS", redisCommand(t))
	if err := os.WriteFile(filepath.Join(dir, "docker"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	t.Setenv(envSources, string(fromDocker))
	return func() string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, "calls"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

func TestDockerRedis(t *testing.T) {
	calls := installFakeDocker(t)
	s, err := startRedis(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	name := containerName(s.place)
	for _, step := range []func() error{
		s.pause, s.resume, s.kill,
		func() error { return s.start(t.Context()) },
		s.close,
	} {
		if err := step(); err != nil {
			t.Error(err)
		}
	}
	want := []string{
		"version --format {{.Server.Version}}",
		"create --name " + name + " --network host --volume " + redisConfig(s.place) + ":/redis.conf:ro " + redisImage + " redis-server /redis.conf",
		"start --attach " + name, "pause " + name, "unpause " + name, "kill " + name,
		"start --attach " + name, "stop " + name,
		"rm --force --volumes " + name,
	}
	if got := calls(); got != strings.Join(want, "\n")+"\n" {
		t.Errorf("docker was called with\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

func TestDockerPostgres(t *testing.T) {
	calls := installFakeDocker(t)
	p := &place{port: 12345, dir: t.TempDir()}
	if err := containerPostgres([]string{"fsync=off"}).prepare(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	want := "create --name helix-testserver-12345 --network host --env POSTGRES_HOST_AUTH_METHOD=trust " +
		"--env POSTGRES_INITDB_ARGS=--encoding=UTF8 --locale=C " + postgresImage + " postgres -p 12345 -c fsync=off\n"
	if got := calls(); got != want {
		t.Errorf("docker was called with\n%s\nwant\n%s", got, want)
	}
}
