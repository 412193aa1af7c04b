package main

import (
	"strings"
	"testing"

	"github.com/helixagents/helix/config"
)

// DBOS keeps its workflows with the sessions, apart from those of other stores in the
// same database, unless it is told where.
func TestDBOSDatabase(t *testing.T) {
	t.Parallel()
	const pg = "postgres://helix@db/agents"
	for _, c := range []struct {
		store, database, schema  string
		wantDatabase, wantSchema string
	}{
		{"sqlite:/var/lib/helix/helix.db", "", "", "sqlite:/var/lib/helix/helix-dbos.db", ""},
		{"sqlite:data", "", "", "sqlite:data-dbos.db", ""},
		{pg, "", "", pg, ""},
		{pg + "?schema=team&sslmode=disable", "", "", pg + "?sslmode=disable", "team_dbos"},
		{pg + "?schema=team", "", "mine", pg, "mine"},
		{pg + "?schema=team", "sqlite:x.db", "", "sqlite:x.db", ""},
		{"redis://cache", pg, "", pg, ""},
		{"redis://cache", "", "", "", ""},
		{pg + "?schema=" + strings.Repeat("s", 60), "", "", "", ""},
	} {
		d := config.DBOS{Database: c.database, Schema: c.schema}
		err := completeDBOS(&d, c.store)
		switch {
		case c.wantDatabase == "":
			if err == nil {
				t.Errorf("%s: DBOS is in %s %s", c.store, d.Database, d.Schema)
			}
		case err != nil || d.Database != c.wantDatabase || d.Schema != c.wantSchema:
			t.Errorf("%s: DBOS is in %q %q, %v", c.store, d.Database, d.Schema, err)
		}
	}
}
