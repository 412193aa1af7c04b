package testserver

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// childEnv makes a copy of the test binary a process that will crash.
const childEnv = "HELIX_TESTSERVER_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		crash()
	}
	goleak.VerifyTestMain(Main(m))
}

// crash starts servers, says where they are, and waits to be killed.
func crash() {
	ctx := context.Background()
	for _, start := range []func(context.Context, []string) (*server, error){startPostgres, startRedis} {
		s, err := start(ctx, nil)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(s.addr(), s.place.dir)
	}
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the test has closed it, which it does by ending
	os.Exit(1)
}
