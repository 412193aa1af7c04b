package engine

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/helixagents/helix/engine/internal/usercode"
	"github.com/helixagents/helix/usage"
)

// usageRecorder reports what a turn uses. Any goroutine may use it, also one of user
// code that outlived its call.
type usageRecorder struct {
	// These never change.
	sink usage.Sink
	log  *slog.Logger
	base usage.Entry // the fields that all entries of the turn share

	mu       sync.Mutex     // guards what follows
	reported map[string]int // how often an id was used in the step
}

// record reports an entry of a step.
func (r *usageRecorder) record(ctx context.Context, step int, e usage.Entry) {
	e.Tenant, e.SessionID, e.RunID, e.Agent = r.base.Tenant, r.base.SessionID, r.base.RunID, r.base.Agent
	e.UserID, e.ParentID, e.RootID = r.base.UserID, r.base.ParentID, r.base.RootID
	e.Step, e.At = step, time.Now().UTC()
	err := usercode.Guard(func() error {
		r.sink.Record(ctx, e)
		return nil
	})
	if err != nil {
		r.log.ErrorContext(ctx, "usage.sink_failed", "tenant", e.Tenant, "session", e.SessionID, "run", e.RunID, "step", step, "error", err)
	}
}

// uniqueID tells apart what one effect reports under one id.
func (r *usageRecorder) uniqueID(id string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reported[id]++
	if n := r.reported[id]; n > 1 {
		id += "/" + strconv.Itoa(n)
	}
	return id
}

// nextStep restarts the count of ids.
func (r *usageRecorder) nextStep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.reported)
}
