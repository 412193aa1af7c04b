package host_test

import (
	"context"
	"fmt"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/host"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/memory"
)

// Runtime is a runtime that carries out the effects of a turn one after the other.
type Runtime struct {
	helix.Executor
	helix.Registry

	host *host.Host
}

// New starts a runtime.
func New(opts helix.RuntimeOptions) (*Runtime, error) {
	d := &driver{}
	h, err := host.New(host.Config{RuntimeOptions: opts, Name: "example"}, d)
	if err != nil {
		return nil, err
	}
	d.Host = h
	h.Start()
	return &Runtime{Executor: h.Executor(), Registry: h, host: h}, nil
}

// Cleanup implements [helix.Runtime].
func (r *Runtime) Cleanup(ctx context.Context, tenant string) (*session.Cleanup, error) {
	return r.host.Cleanup(ctx, tenant)
}

// TaskStats implements [helix.Runtime].
func (r *Runtime) TaskStats() helix.TaskStats { return r.host.TaskStats() }

// Shutdown implements [helix.Runtime].
func (r *Runtime) Shutdown(ctx context.Context) error { return r.host.Shutdown(ctx) }

// Close implements [helix.Runtime].
func (r *Runtime) Close() error { return host.CloseNow(r.Shutdown) }

type driver struct{ *host.Host }

// Drive implements [host.Driver].
func (d *driver) Drive(_ context.Context, turn *host.Turn) error {
	go func() { d.Finish(turn, d.loop(turn.Context, turn.Opened)) }()
	return nil
}

// EnsureDriven implements [host.Driver].
func (d *driver) EnsureDriven(context.Context, session.Due) error { return nil }

// NotifyStop implements [host.Driver].
func (d *driver) NotifyStop(context.Context, host.Start) {}

// loop carries out the effects of a turn, and returns the turn's end, or nil if the turn is
// released before.
func (d *driver) loop(ctx context.Context, opened *engine.Opened) *machine.Outcome {
	m, wave := machine.New(opened.Key, opened.Run.ID, opened.Position)
	for {
		results := make([]machine.Result, len(wave))
		for i, effect := range wave {
			result, err := d.carryOut(ctx, effect)
			if err != nil {
				d.Handler().Release(context.WithoutCancel(ctx), opened)
				return nil
			}
			results[i] = result
		}
		next, end := m.Next(results)
		if end != nil {
			return end
		}
		wave = next
	}
}

func (d *driver) carryOut(ctx context.Context, effect machine.Effect) (machine.Result, error) {
	if effect.Kind == machine.CallChild {
		child, err := d.OpenChild(ctx, effect)
		switch {
		case err != nil:
			return machine.Result{}, err
		case child == nil:
		case child.Detached:
			d.DriveDetached(child)
		default:
			end := d.loop(ctx, child)
			if end == nil {
				return machine.Result{}, fmt.Errorf("the turn of session %s was released", child.Key.ID)
			}
			d.FinishChild(ctx, end)
		}
	}
	return d.Handle(ctx, effect)
}

// A runtime whose driver carries out effects one after the other. Its Recover is
// [host.Host.Recover], through the embedded Host.
func Example() {
	ctx := context.Background()
	rt, err := New(helix.RuntimeOptions{Backend: memory.New(memory.Config{})})
	if err != nil {
		panic(err)
	}
	defer func() { _ = rt.Shutdown(ctx) }()
	researcher := &helix.Agent{Name: "researcher", Model: scripted.New(scripted.Text("The sky is blue."))}
	writer := &helix.Agent{
		Name:      "writer",
		Model:     scripted.New(scripted.Call("subagent__researcher", `{"task":"Which colour has the sky?"}`), scripted.Text("Blue, they say.")),
		SubAgents: []helix.SubAgent{{Agent: researcher}},
	}
	run, err := rt.Execute(ctx, writer, helix.Input{Message: helix.UserText("Write about the sky.")})
	if err != nil {
		panic(err)
	}
	result, err := run.Result(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println(result.Status, result.Text)
	// Output: completed Blue, they say.
}

var _ helix.Runtime = (*Runtime)(nil)
