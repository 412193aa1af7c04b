package local_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/memory"
)

// A run that fails leaves a trace though nobody configured a logger: the program's own
// has it.
func TestDefaultLogger(t *testing.T) {
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	var log bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError})))
	backend := memory.New(memory.Config{})
	t.Cleanup(func() { _ = backend.Close() })
	rt, err := local.New(local.Config{Backend: backend})
	if err != nil {
		t.Fatal(err)
	}
	agent := &helix.Agent{Name: "a", Model: scripted.New(scripted.Fail(session.CodeProvider, false, "no credit"))}
	run, err := rt.Execute(t.Context(), agent, helix.Input{SessionID: "s-1", Message: helix.UserText("Hi!")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run.Result(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := rt.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := log.String(); strings.Count(got, "run.failed") != 1 || !strings.Contains(got, "session=s-1") || !strings.Contains(got, "no credit") {
		t.Errorf("the log is %q", got)
	}
}
