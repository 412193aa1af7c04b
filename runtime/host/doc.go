// Package host is what the runtimes of helix share. It is for authors of runtimes;
// an application imports a runtime, such as runtime/local.
//
// # What a runtime is
//
// A run is what one Execute, Resume or Retry starts. While a process works on a run,
// it holds the run's turn: it has opened the session, owns the session's lease and
// keeps the turn's state in memory. A turn is a sequence of waves of effects. An
// effect is one unit of work: ask the model, carry out a call, commit a step, close
// the turn. [machine.Machine] decides which effects follow from the results of the
// wave before; it does no I/O. [engine.Handler] carries an effect out.
//
// A runtime decides where effects run, and where it is recorded which are done.
// That part is its [Driver]. The rest is in [Host]: the executor that applications
// call, the registry of agents, the turns that this process holds, the renewal of
// their leases, the recovery of runs whose process died, the sweep for deadlines and
// other work that is due, and shutdown.
//
// # Writing a runtime
//
// A runtime wraps a Host and implements [helix.Runtime] with it:
//
//	type Runtime struct {
//		helix.Executor // Host.Executor
//		helix.Registry // the Host
//		host *host.Host
//	}
//
//	func New(opts helix.RuntimeOptions) (*Runtime, error) {
//		d := &driver{}
//		h, err := host.New(host.Config{RuntimeOptions: opts, Name: "mine"}, d)
//		if err != nil {
//			return nil, err
//		}
//		d.host = h
//		h.Start()
//		return &Runtime{Executor: h.Executor(), Registry: h, host: h}, nil
//	}
//
// Cleanup, TaskStats and Shutdown call the methods of the Host that have the same names, and
// Close is [CloseNow].
//
// The Host calls Driver.Drive with each turn that it has opened. The driver runs a
// loop over the turn's machine and calls [Host.Finish] when the loop ends:
//
//	m, wave := machine.New(opened.Key, opened.Run.ID, opened.Position)
//	for {
//		results, err := run(ctx, wave) // all effects at the same time, see below
//		if err != nil {
//			h.Handler().Release(context.WithoutCancel(ctx), opened)
//			return nil // another process continues the run
//		}
//		next, end := m.Next(results)
//		if end != nil {
//			return end
//		}
//		wave = next
//	}
//
// The results have the order of the wave. The context is [Turn].Context: it ends when
// this process must stop working on the turn.
//
// An effect is carried out with [Host.Handle]. An effect of the kind
// [machine.CallChild] calls another agent: before Handle, the driver calls
// [Host.OpenChild]. If that returns no turn, nothing has to be driven. A turn that is
// Detached is passed to [Host.DriveDetached]. Any other turn the driver drives with
// the same loop, and passes its end to [Host.FinishChild].
//
// Driver.Recover continues a run whose process died; a driver without a workflow
// engine calls [Host.Recover] there. EnsureDriven and NotifyStop can be empty.
// The example of this package is a complete runtime of this kind; runtime/local carries
// out the effects of a wave at the same time. runtime/runtimetest is the suite that a
// runtime has to pass.
//
// # Runtimes over a workflow engine
//
// A workflow engine records which effects are done and starts a workflow again
// elsewhere when a process dies. Such a runtime sets [Config].WorkflowEngine. It starts
// one workflow per run, with a [Start] as its input and the id [Start.WorkflowID].
// [StartOf] makes the Start of a turn that this process opened; [Host.LoadStart] makes
// that of a run which has to be recovered.
//
// The workflow runs the loop above. It does not call Handle and OpenChild: it passes
// each effect to [Host.Do] and [Host.DoOpenChild] in the process that holds the turn,
// and records the [EffectResult]. Both may be called again with an effect that is in
// flight; they then wait for it. An EffectResult that is NotHeld says that the process
// no longer holds the turn: the workflow has some process take the turn over with
// [Host.TakeOver] and makes its machine again from [Takeover].Position. The workflow
// of a child ends instead, because the turn that waits for it is taken over as a whole.
//
// [Host.Holds], [Host.LeaseLost], [Host.HoldsLease] and [Host.Renew] tell the driver whether this
// process may still work on a run. [Host.Release] releases a turn whose workflow
// does not run here. If turns wait in a queue, or this process only starts them, the
// runtime sets [Config].ReleaseOpened. runtime/temporal and runtime/dbos are runtimes
// of this kind.
//
// Workflows in flight have recorded Start, EffectResult and Takeover as JSON: their
// JSON field names do not change.
package host
