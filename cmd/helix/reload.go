package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/helixagents/helix/config"
)

const reloadEvery = time.Second

// reload calls replace whenever the file changes. Some sections take effect only at
// startup; changed lists those that differ, and the log warns about them.
func (n *node) reload(ctx context.Context, started *config.File, replace func(*config.File) error, changed func(started, file *config.File) []string) {
	if n.opts.config == "" {
		return
	}
	var one sync.Mutex // the watcher and a signal may report the same change
	take := func(file *config.File, err error) {
		one.Lock()
		defer one.Unlock()
		if err == nil {
			err = replace(file)
		}
		if err != nil {
			n.log.ErrorContext(ctx, "config.refused", "file", n.opts.config, "error", err)
			n.tellRefused(err)
			return
		}
		if sections := changed(started, file); len(sections) > 0 {
			n.log.WarnContext(ctx, "config.restart_required",
				"file", n.opts.config, "sections", strings.Join(sections, ", "))
		}
		n.log.InfoContext(ctx, "config.reloaded", "file", n.opts.config, "agents", len(*n.agents.Load()))
	}
	var asked sync.WaitGroup
	defer asked.Wait()
	asked.Go(func() {
		for {
			select {
			case <-n.hangup:
				take(config.Load(n.opts.config))
			case <-ctx.Done():
				return
			}
		}
	})
	config.Watch(ctx, n.opts.config, reloadEvery, started, take)
}

// tellRefused prints what is wrong with a file, one problem per line, for whoever is editing
// it. Programs read the log.
func (n *node) tellRefused(err error) {
	if n.opts.logFormat != logText {
		return
	}
	fmt.Fprintf(n.out, "helix: %s is refused, and the old settings stay in effect:\n", n.opts.config)
	if failure, ok := errors.AsType[*config.Error](err); ok {
		for i := range failure.Problems {
			fmt.Fprintln(n.out, " ", printable(failure.Problems[i].String()))
		}
		return
	}
	fmt.Fprintln(n.out, " ", printable(err.Error()))
}

// awaitStop returns when a signal to stop arrives or done is closed. SIGHUP does not stop
// the process: it reloads the file.
func (n *node) awaitStop(ctx context.Context, signals <-chan os.Signal, done <-chan struct{}) {
	for {
		select {
		case s := <-signals:
			switch {
			case s != syscall.SIGHUP:
				return
			case n.opts.config == "":
				n.log.InfoContext(ctx, "config.reload_skipped", "reason", "SIGHUP, but the process was started without a file")
			default:
				select {
				case n.hangup <- struct{}{}:
				default: // it is about to be read
				}
			}
		case <-done:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (n *node) replace(file *config.File) error {
	agents, err := file.Build(buildOptions(n.log))
	if err != nil {
		return err
	}
	if err := n.rt.Replace(agents...); err != nil {
		return err
	}
	n.agents.Store(&agents)
	n.warn(context.Background(), file)
	return nil
}

// replace also replaces the tokens.
func (s *service) replace(file *config.File) error {
	known, err := tokensOf(file)
	if err != nil {
		return err
	}
	if err := s.node.replace(file); err != nil {
		return err
	}
	s.tokens.Store(&known)
	if s.authenticate != nil && len(file.Server.Tokens) == 0 {
		s.log.Warn("config.tokens_missing", "effect", "all requests are refused", "file", s.opts.config)
	}
	return nil
}

// changed returns the sections that differ from those at startup and take effect only at
// startup. A section that a flag overrides does not count.
func (n *node) changed(started, file *config.File) []string {
	was, _ := n.opts.runtime.over(started.Runtime)
	is, err := n.opts.runtime.over(file.Runtime)
	return names(
		section{"store", n.opts.store == "" && os.Getenv(storeVariable) == "" && started.Store != file.Store},
		section{"streams", n.opts.streams == "" && os.Getenv(streamsVariable) == "" && started.Streams != file.Streams},
		section{"runtime", err != nil || !reflect.DeepEqual(was, is)},
	)
}

// changed adds the sections of a server.
func (s *service) changed(started, file *config.File) []string {
	was, is := started.Server, file.Server
	if s.authenticate != nil { // tokens take effect at once
		was.Tokens, is.Tokens = nil, nil
	}
	if s.asked.addr != "" {
		was.Addr, is.Addr = "", ""
	}
	if len(s.asked.hosts) > 0 {
		was.Hosts, is.Hosts = nil, nil
	}
	sections := names(section{"server", !reflect.DeepEqual(was, is)})
	sections = append(sections, s.node.changed(started, file)...)
	return append(sections, names(section{"cleanup", started.Cleanup != file.Cleanup})...)
}

// section is a section of the file, and whether it differs from startup.
type section struct {
	name    string
	changed bool
}

func names(of ...section) (changed []string) {
	for _, s := range of {
		if s.changed {
			changed = append(changed, s.name)
		}
	}
	return changed
}
