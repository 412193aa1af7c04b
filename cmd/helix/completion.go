package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/client"
	"github.com/helixagents/helix/session"
)

const (
	// completionTime limits how long a shell waits for completions.
	completionTime = 2 * time.Second
	// maxCompletions limits how many sessions a shell is offered.
	maxCompletions = 50
)

// completeNoFiles keeps shells from completing the names of files where a command takes none.
func completeNoFiles(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	cmd.Flags().VisitAll(func(flag *pflag.Flag) { completeFlag(cmd, flag) })
	cmd.PersistentFlags().VisitAll(func(flag *pflag.Flag) { completeFlag(cmd, flag) })
	for _, below := range cmd.Commands() {
		completeNoFiles(below)
	}
}

// completeFlag keeps the completion of files for the flags that take one.
func completeFlag(cmd *cobra.Command, flag *pflag.Flag) {
	switch flag.Name {
	case "config", storeFlag, dataFlag, "streams", "replace", "out", "manifest":
		return
	}
	_ = cmd.RegisterFlagCompletionFunc(flag.Name, cobra.NoFileCompletions) // it fails if the flag has one
}

// completeSession offers the ids of the newest sessions.
func (t *target) completeSession(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if t.url() == "" && t.store == "" && t.config == "" && os.Getenv(storeVariable) == "" {
		if _, found := findConfig(""); found {
			// It may name any server, and be of anybody who wrote a file into this directory: it is
			// read when somebody runs a command, not when somebody presses a key.
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
	}
	t.runs = false
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	var offers []string
	err := t.reach(ctx, func(ctx context.Context, c *client.Client) error {
		page, err := c.Sessions(ctx, session.Query{PageRequest: session.PageRequest{Limit: maxCompletions}})
		if err != nil {
			return err
		}
		for i := range page.Items {
			s := &page.Items[i]
			if session.CheckID(s.ID) == nil { // a server may say anything
				offers = append(offers, s.ID+"\t"+visible(s.Agent)+", "+visible(string(s.Activity)))
			}
		}
		return nil
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return offers, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// completeAgent offers the names of the agents. Of a file it reads nothing but those.
func (t *target) completeAgent(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var offers []string
	offer := func(name, description string) {
		if helix.CheckAgentName(name) == nil { // a server may say anything
			offers = append(offers, name+"\t"+firstSentence(description))
		}
	}
	if t.url() == "" {
		path, _ := findConfig(t.config)
		file, err := readConfig(path)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		for i := range file.Agents {
			if !file.Agents[i].Internal {
				offer(file.Agents[i].Name, file.Agents[i].Description)
			}
		}
		return offers, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	err := t.reach(ctx, func(ctx context.Context, c *client.Client) error {
		agents, err := c.Agents(ctx)
		for i := range agents {
			offer(agents[i].Name, agents[i].Description)
		}
		return err
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return offers, cobra.ShellCompDirectiveNoFileComp
}

// explainFlag returns an error of a flag without the names of Go's functions.
func explainFlag(err error) error {
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	flag := invalid.GetFlag()
	var what string
	switch flag.Value.Type() {
	case "int", "int64", "uint", "uint64":
		what = "a whole number"
	case "float64":
		what = "a number"
	case "duration":
		what = "a duration such as 30s, 5m or 2h"
	case "bool":
		what = "true or false"
	default:
		return err
	}
	if errors.Is(err, strconv.ErrRange) {
		what += " of this size"
	}
	return fmt.Errorf("--%s %q is not %s", flag.Name, invalid.GetValue(), what)
}
