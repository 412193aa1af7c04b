package testserver

import (
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"testing"
)

// FreeAddress returns an address of this machine on which nobody listens. On Linux it has an
// IP of its own, so that no other test gets it meanwhile.
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	if runtime.GOOS == "linux" {
		return fmt.Sprintf("127.%d.%d.%d:4170", 1+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250))
	}
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		tb.Fatal(err)
	}
	return listener.Addr().String()
}
