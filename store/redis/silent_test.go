package redis_test

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	"github.com/helixagents/helix/store/redis"
)

// What the client's package prints otherwise would show up in every program that
// uses the store. A process of its own tells, for it prints to wherever the
// standard error was when it began.
func TestSilent(t *testing.T) {
	t.Parallel()
	const variable = "HELIX_TEST_REDIS_ADDRESS"
	if address := os.Getenv(variable); address != "" {
		refused(t, redis.Config{URL: urlOf(address)})
		return
	}
	command := exec.Command(os.Args[0], "-test.run=^TestSilent$")
	command.Env = append(os.Environ(), variable+"="+freeAddress(t))
	var printed bytes.Buffer
	command.Stderr = &printed
	if err := command.Run(); err != nil {
		t.Fatal(err)
	}
	if printed.Len() > 0 {
		t.Errorf("it printed %s", printed.String())
	}
}
