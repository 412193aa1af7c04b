package main

import (
	"context"
	"reflect"
	"strings"

	"github.com/helixagents/helix/config"
)

// reload takes the agents and the tokens from the file whenever it changes. The rest
// is as the file had it at the start, and the log says when that is not so any more.
func (s *service) reload(ctx context.Context, started *config.File) {
	if s.opts.config == "" {
		return
	}
	config.Watch(ctx, s.opts.config, reloadEvery, started, func(file *config.File, err error) {
		if err == nil {
			err = s.replace(file)
		}
		if err != nil {
			s.log.ErrorContext(ctx, "the file was refused; the agents stay as they were", "file", s.opts.config, "error", err)
			return
		}
		if sections := s.changed(started, file); len(sections) > 0 {
			s.log.WarnContext(ctx, "the file has other settings than the server began with: restart it to have them take effect",
				"file", s.opts.config, "sections", strings.Join(sections, ", "))
		}
		if s.authenticate != nil && len(file.Server.Tokens) == 0 {
			s.log.WarnContext(ctx, "the file has no tokens any more: nobody is let in", "file", s.opts.config)
		}
		s.log.InfoContext(ctx, "the file was reloaded", "file", s.opts.config, "agents", len(*s.agents.Load()))
	})
}

func (s *service) replace(file *config.File) error {
	agents, err := file.Build(buildOptions(s.log))
	if err != nil {
		return err
	}
	known, err := tokensOf(file)
	if err != nil {
		return err
	}
	if err := s.rt.Replace(agents...); err != nil {
		return err
	}
	s.agents.Store(&agents)
	s.tokens.Store(&known)
	return nil
}

// changed lists the sections of a file that differ from those the server began with,
// of those that only a start takes in. Flags go before the file.
func (s *service) changed(started, file *config.File) []string {
	was, is := started.Server, file.Server
	if s.authenticate != nil { // tokens take effect at once
		was.Tokens, is.Tokens = nil, nil
	}
	if s.opts.addr != "" {
		was.Addr, is.Addr = "", ""
	}
	var sections []string
	for _, section := range []struct {
		name    string
		changed bool
	}{
		{"server", !reflect.DeepEqual(was, is)},
		{"store", s.opts.store == "" && s.opts.data == "" && started.Store != file.Store},
		{"streams", s.opts.streams == "" && started.Streams != file.Streams},
		{"runtime", !reflect.DeepEqual(started.Runtime, file.Runtime)},
		{"cleanup", started.Cleanup != file.Cleanup},
	} {
		if section.changed {
			sections = append(sections, section.name)
		}
	}
	return sections
}
