package dbos

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	transact "github.com/dbos-inc/dbos-transact-golang/dbos"
)

// TestBegun holds DBOS to what a start relies on: whether an execution has begun is
// told by the handle.
func TestBegun(t *testing.T) {
	t.Parallel()
	ctx, err := transact.NewContext(context.Background(), transact.Config{
		AppName: "helix", DatabaseURL: "sqlite:" + filepath.Join(t.TempDir(), "dbos.db"), ExecutorID: "one", ApplicationVersion: "1",
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := transact.Shutdown(ctx, time.Minute); err != nil {
			t.Error(err)
		}
	}()
	ended := make(chan struct{})
	workflow := func(transact.Context, string) (string, error) { <-ended; return "", nil }
	transact.RegisterWorkflow(ctx, workflow)
	if err := transact.Launch(ctx); err != nil {
		t.Fatal(err)
	}
	begun := func() bool {
		s := &starter{Context: ctx}
		if _, err := transact.RunWorkflow(s, workflow, "", transact.WithWorkflowID("w")); err != nil {
			t.Fatal(err)
		}
		return s.begun
	}
	if !begun() {
		t.Error("the first start did not begin")
	}
	if begun() {
		t.Error("a second start of a workflow that runs seems to have begun")
	}
	close(ended)
	handle, err := transact.RetrieveWorkflow[string](ctx, "w")
	if err == nil {
		_, err = handle.GetResult(transact.WithHandlePollingInterval(time.Millisecond))
	}
	if err != nil {
		t.Fatal(err)
	}
	if begun() {
		t.Error("a start of a workflow that has ended seems to have begun")
	}
}
