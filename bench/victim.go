package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// victim is a process of the bench's own whose runs do not end before it is killed.
type victim struct {
	cmd *exec.Cmd
	out *bufio.Reader
	in  io.WriteCloser
}

// victimOf returns the argument of a victim with so many runs on the data of a site.
func victimOf(k kind, s *site, url string, runs int) string {
	return fmt.Sprint(runs, " ", k.name, " ", s.name, " ", url)
}

// startVictim starts another process, and waits until all its models are asked.
func startVictim(ctx context.Context, argument string) (*victim, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	v := &victim{cmd: exec.CommandContext(ctx, self, "-victim", argument)}
	v.cmd.Stderr = os.Stderr
	out, err := v.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	v.out = bufio.NewReader(out)
	if v.in, err = v.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := v.cmd.Start(); err != nil {
		return nil, err
	}
	if line, err := v.out.ReadString('\n'); err != nil || line != "running\n" {
		v.kill()
		return nil, fmt.Errorf("the process to kill said %q: %w", line, err)
	}
	return v, nil
}

// kill kills the process with SIGKILL, and returns when it is gone.
func (v *victim) kill() {
	_ = v.cmd.Process.Kill()
	_, _ = io.Copy(io.Discard, v.out)
	_ = v.cmd.Wait() // it was killed
}

// renewals returns what the process has spent on renewals so far.
func (v *victim) renewals() (r renewals, err error) {
	if _, err := fmt.Fprintln(v.in, "renewals"); err != nil {
		return r, err
	}
	_, err = fmt.Fscanln(v.out, &r.Calls, &r.Leases, &r.Time, &r.Longest)
	return r, err
}

// renewals are calls that renew leases.
type renewals struct {
	Calls, Leases int64
	Time, Longest time.Duration
}

// counted is a backend that counts renewals.
type counted struct {
	store.Backend
	mu sync.Mutex
	renewals
}

// RenewLeases implements [store.Backend].
func (c *counted) RenewLeases(ctx context.Context, leases []session.Held, ttl time.Duration) []session.Renewed {
	began := time.Now()
	out := c.Backend.RenewLeases(ctx, leases, ttl)
	took := time.Since(began)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Calls++
	c.Leases += int64(len(leases))
	c.Time += took
	c.Longest = max(c.Longest, took)
	return out
}

// starting is how many sessions a victim starts at the same time.
const starting = 32

// beVictim runs sessions until the process is killed. It returns only why it cannot.
func beVictim(argument string) error {
	ctx := context.Background()
	parts := strings.SplitN(argument, " ", 4)
	if len(parts) < 4 {
		return fmt.Errorf("-victim %q has fewer than four words", argument)
	}
	store, name, at := parts[1], parts[2], parts[3] // no address with SQLite
	runs, err := strconv.Atoi(parts[0])
	if err != nil {
		return err
	}
	for _, k := range kinds(newServers()) {
		if k.name != store || k.reopen == nil {
			continue
		}
		db, err := k.reopen(at, name)
		if err != nil {
			return err
		}
		model := &mute{make(chan struct{}, runs), make(chan time.Time, runs)}
		agent := &helix.Agent{Name: "mute", Model: model}
		backend := &counted{Backend: db}
		rt, err := local.New(local.Config{Backend: backend})
		if err != nil {
			return err
		}
		slots := make(chan struct{}, starting)
		err = each(runs, func(i int) error {
			slots <- struct{}{}
			defer func() { <-slots }()
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
		for asked := bufio.NewScanner(os.Stdin); asked.Scan(); {
			backend.mu.Lock()
			r := backend.renewals
			backend.mu.Unlock()
			fmt.Println(r.Calls, r.Leases, int64(r.Time), int64(r.Longest))
		}
		return errors.New("the bench has ended")
	}
	return fmt.Errorf("there is no store %q", store)
}
