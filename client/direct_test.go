package client_test

import (
	"net/http"
	"testing"

	"github.com/helixagents/helix/client"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/pipe"
)

// direct opens a client of a handler without a network, which a bubble of testing/synctest would wait for.
func direct(t *testing.T, cfg client.Config, h http.Handler) *client.Client {
	t.Helper()
	listener := pipe.Listen()
	web := &http.Server{Handler: h}
	served := make(chan error, 1)
	go func() { served <- web.Serve(listener) }()
	dialer := &http.Transport{DialContext: listener.Dial}
	t.Cleanup(func() {
		dialer.CloseIdleConnections()
		if err := web.Shutdown(eventually.Context(t)); err != nil {
			t.Error(err)
		}
		<-served
	})
	cfg.URL, cfg.HTTP = "http://example.com", &http.Client{Transport: dialer}
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
