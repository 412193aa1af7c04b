package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/helixagents/helix/session"
)

// printPage prints a page of a list as a table, with a row of cells for each item, and says how to get the next page. An
// empty page prints the sentence none.
func printPage[T any](out io.Writer, page *session.Page[T], none, head string, cells func(*T) []any) {
	if len(page.Items) == 0 {
		fmt.Fprintln(out, none)
		return
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, head)
	for i := range page.Items {
		row := cells(&page.Items[i])
		fmt.Fprintf(table, strings.Repeat("%v\t", len(row)-1)+"%v\n", row...)
	}
	_ = table.Flush() // standard output: no way to report an error
	if page.HasMore {
		fmt.Fprintf(out, "There are more: --after %s\n", page.Next)
	}
}
