package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/helixagents/helix/session"
)

const (
	storeFlag = "store"
	// dataFlag is what --store was called by commands other than serve and worker.
	// It is hidden, and stays for scripts.
	dataFlag = "data"
)

// addStoreFlag adds --store, and its older name.
func addStoreFlag(flags *pflag.FlagSet, store *string, usage string) {
	shared := &storeValue{value: store}
	flags.Var(&storeName{shared, storeFlag}, storeFlag, usage)
	flags.Var(&storeName{shared, dataFlag}, dataFlag, "older name of --"+storeFlag)
	flags.Lookup(dataFlag).Hidden = true
}

// storeValue is where the sessions are, and which flag said so.
type storeValue struct {
	value *string
	by    string
}

// storeName is one of the flag's names.
type storeName struct {
	*storeValue
	name string
}

// Set implements [pflag.Value].
func (s *storeName) Set(text string) error {
	if s.by != "" && s.by != s.name {
		return fmt.Errorf("--%s is another name of --%s: give one of them", dataFlag, storeFlag)
	}
	*s.value, s.by = text, s.name
	return nil
}

// String implements [pflag.Value].
func (s *storeName) String() string {
	if s.storeValue == nil {
		return ""
	}
	return *s.value
}

// Type implements [pflag.Value].
func (s *storeName) Type() string { return "ADDRESS" }

// pageFlags are those of commands that list.
func pageFlags(cmd *cobra.Command, page *session.PageRequest) {
	flags := cmd.Flags()
	flags.IntVar(&page.Limit, "limit", session.DefaultPageSize, fmt.Sprintf("list at most `N`, up to %d", session.MaxPageSize))
	flags.StringVar(&page.Cursor, "after", "", "go on after the `CURSOR` of the page before")
}

// checkPage refuses a limit that no page has.
func checkPage(page *session.PageRequest) error {
	if page.Limit < 1 {
		return usageError{fmt.Errorf("--limit %d is less than 1; a page has between 1 and %d", page.Limit, session.MaxPageSize)}
	}
	return nil
}
