package redis_test

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	"github.com/helixagents/helix/store/redis"
)

// Otherwise the output of the client's package would appear in every program that
// uses the store. The test uses a separate process, because the package prints to
// the standard error of the start of the process.
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
