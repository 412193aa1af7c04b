package faultproxy

import (
	"bytes"
	"net/url"
	"testing"

	"github.com/helixagents/helix/internal/testserver"
)

// TestDropReplyOfRedis shows the fault on a real server: the write is done, and its client cannot know.
func TestDropReplyOfRedis(t *testing.T) {
	t.Parallel()
	server, err := url.Parse(testserver.Redis(t))
	if err != nil {
		t.Fatal(err)
	}
	p := New(t, server.Host)
	p.DropReply(func(request []byte) bool { return bytes.HasPrefix(request, []byte("SET ")) })
	c := dial(t, p)
	c.send("SET faultproxy:lost done\r\n")
	c.wantReset()
	p.Pass()
	c = dial(t, p)
	c.send("GET faultproxy:lost\r\n")
	c.wantReply("$4\r\ndone\r\n")
	c.send("DEL faultproxy:lost\r\n")
	c.wantReply(":1\r\n")
	if got := p.Counters(); got.Trips != 3 || got.Dropped != 1 {
		t.Errorf("got %+v, want 3 trips and 1 dropped", got)
	}
}
