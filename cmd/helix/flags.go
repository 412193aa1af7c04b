package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/helixagents/helix/session"
)

const (
	storeFlag = "store"
	// dataFlag is the former name of --store in commands other than serve and worker. It is
	// hidden and kept for scripts.
	dataFlag = "data"
)

// addStoreFlag adds --store and its former name.
func addStoreFlag(flags *pflag.FlagSet, store *string, usage string) {
	shared := &storeValue{value: store}
	flags.Var(&storeName{shared, storeFlag}, storeFlag, usage)
	flags.Var(&storeName{shared, dataFlag}, dataFlag, "former name of --"+storeFlag)
	flags.Lookup(dataFlag).Hidden = true
}

// storeValue is the store's address and the flag that set it.
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
		return fmt.Errorf("--%s is the former name of --%s: use only one of them", dataFlag, storeFlag)
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

// pageFlags adds the flags of commands that list.
func pageFlags(cmd *cobra.Command, page *session.PageRequest) {
	flags := cmd.Flags()
	flags.IntVar(&page.Limit, "limit", session.DefaultPageSize, fmt.Sprintf("list at most `N`, up to %d", session.MaxPageSize))
	flags.StringVar(&page.Cursor, "after", "", "continue after the `CURSOR` of the previous page")
}

// checkPage returns an error for an invalid limit.
func checkPage(page *session.PageRequest) error {
	if page.Limit < 1 {
		return usageError{fmt.Errorf("--limit %d is out of range: use 1 to %d", page.Limit, session.MaxPageSize)}
	}
	return nil
}
