package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/runtime/local"
)

// mute is a model that says nothing until it is cancelled. It says when it is asked,
// and when it is cancelled.
type mute struct {
	asked     chan struct{}
	cancelled chan time.Time
}

// Generate implements [llm.Model].
func (m *mute) Generate(ctx context.Context, _ *llm.Request, _ func(llm.Delta)) (*llm.Response, error) {
	m.asked <- struct{}{}
	<-ctx.Done()
	m.cancelled <- time.Now()
	return nil, ctx.Err()
}

// stopElsewhere measures how long it takes until a stop that another process requests
// cancels a model call. The processes are two runtimes on handles of their own.
func stopElsewhere(ctx context.Context, k kind, quick bool) ([]row, error) {
	if k.reopen == nil {
		return nil, nil
	}
	rounds := 50
	if quick {
		rounds = 10
	}
	var took []time.Duration
	err := k.onRuntime(ctx, func(rt *local.Runtime, s *site) error {
		url, err := k.server.get(ctx)
		if err != nil {
			return err
		}
		db, err := k.reopen(url, s.name)
		if err != nil {
			return err
		}
		other, err := local.New(local.Config{Backend: db})
		if err != nil {
			return errors.Join(err, db.Close())
		}
		model := &mute{make(chan struct{}, 1), make(chan time.Time, 1)}
		agent := &helix.Agent{Name: "mute", Model: model}
		for i := range rounds {
			if err = stopOnce(ctx, rt, other, agent, model, fmt.Sprint("s-", i), &took); err != nil {
				break
			}
		}
		return errors.Join(err, other.Shutdown(ctx), db.Close())
	})
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, p := range []float64{50, 99} {
		rows = append(rows, row{Bench: "stop-elsewhere", Store: k.name, Runtime: local.Name, N: rounds, Unit: fmt.Sprintf("µs p%.0f", p), Value: percentile(took, p)})
	}
	return rows, nil
}

func stopOnce(ctx context.Context, rt, other *local.Runtime, agent *helix.Agent, model *mute, id string, took *[]time.Duration) error {
	run, err := rt.Execute(ctx, agent, helix.Input{SessionID: id, Message: helix.UserText("Begin.")})
	if err != nil {
		return err
	}
	<-model.asked
	began := time.Now()
	if err := other.Interrupt(ctx, id, ""); err != nil {
		return err
	}
	select {
	case at := <-model.cancelled:
		*took = append(*took, at.Sub(began))
	case <-ctx.Done():
		return ctx.Err()
	}
	_, err = run.Result(ctx)
	return err
}

// victims is how many runs the process has that is killed.
const victims = 100

// killed measures how long the runs of a process that is killed with SIGKILL wait until
// another process continues them, with the default settings.
func killed(ctx context.Context, k kind, _ bool) ([]row, error) {
	if k.reopen == nil {
		return nil, nil
	}
	var took []time.Duration
	err := k.on(ctx, func(s *site) error {
		url, err := k.server.get(ctx)
		if err != nil {
			return err
		}
		model := &mute{make(chan struct{}, victims), make(chan time.Time, victims)}
		rt, err := local.New(local.Config{Backend: s.Backend, Agents: []*helix.Agent{{Name: "mute", Model: model}}})
		if err != nil {
			return err
		}
		defer rt.Close()
		died, err := killOne(ctx, k.name+" "+s.name+" "+url)
		if err != nil {
			return err
		}
		for range victims {
			select {
			case <-model.asked:
				took = append(took, time.Since(died))
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, p := range []float64{50, 100} {
		rows = append(rows, row{Bench: "killed", Store: k.name, Runtime: local.Name, N: victims, Unit: fmt.Sprintf("µs p%.0f", p), Value: percentile(took, p)})
	}
	return rows, nil
}

// killOne starts another process and kills it once all its models are asked.
func killOne(ctx context.Context, where string) (died time.Time, err error) {
	self, err := os.Executable()
	if err != nil {
		return died, err
	}
	cmd := exec.CommandContext(ctx, self, "-victim", where)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return died, err
	}
	if err := cmd.Start(); err != nil {
		return died, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	died = time.Now()
	_ = cmd.Process.Kill()
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait() // it was killed
	if err != nil || line != "running\n" {
		return died, fmt.Errorf("the process to kill said %q: %w", line, err)
	}
	return died, nil
}

// beVictim runs sessions until the process is killed. It returns only why it cannot.
func beVictim(where string) error {
	ctx := context.Background()
	parts := strings.SplitN(where, " ", 3)
	for _, k := range kinds(newServers()) {
		if k.name != parts[0] || k.reopen == nil {
			continue
		}
		db, err := k.reopen(parts[2], parts[1])
		if err != nil {
			return err
		}
		model := &mute{make(chan struct{}, victims), make(chan time.Time, victims)}
		agent := &helix.Agent{Name: "mute", Model: model}
		rt, err := local.New(local.Config{Backend: db})
		if err != nil {
			return err
		}
		err = each(victims, func(i int) error {
			_, err := rt.Execute(ctx, agent, helix.Input{SessionID: fmt.Sprint("s-", i), Message: helix.UserText("Begin.")})
			if err == nil {
				<-model.asked
			}
			return err
		})
		if err != nil {
			return err
		}
		fmt.Println("running")
		select {} // until it is killed
	}
	return fmt.Errorf("there is no store %q", parts[0])
}
