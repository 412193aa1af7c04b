package dbos

import (
	"net/url"
	"os"
	"strings"

	"github.com/helixagents/helix/session"
)

// checkEnvironment refuses environment variables with which DBOS would silently override
// the configuration. Two processes that share DBOS__VMID would be one executor and recover
// each other's live turns; a conductor could cancel and restart workflows, although the
// store decides about their turns. DBOS has no option to ignore the variables, and unsetting
// them would affect the rest of the process, too.
func (c *Config) checkEnvironment() error {
	for _, v := range []struct{ name, field, value string }{
		{"DBOS__VMID", "ExecutorID", c.ExecutorID},
		{"DBOS__APPVERSION", "AppVersion", c.AppVersion},
	} {
		if set := os.Getenv(v.name); set != "" && set != v.value {
			return session.Invalid(v.name, "is %q in the environment and would override %s %q: "+
				"unset it, or give %s the same value", set, v.field, v.value, v.field)
		}
	}
	if os.Getenv("DBOS__CLOUD") != "true" {
		return nil
	}
	for _, name := range []string{"DBOS__CONDUCTOR_APP_NAME", "DBOS__CONDUCTOR_KEY", "DBOS__CONDUCTOR_URL"} {
		if os.Getenv(name) == "" {
			return nil // DBOS connects only if all of them are set
		}
	}
	return session.Invalid("DBOS__CLOUD", "is true in the environment, with which DBOS would let its conductor manage the workflows: "+
		"unset it, or DBOS__CONDUCTOR_URL")
}

// makePrivate creates the file of a SQLite database, if there is none, with access for its
// owner only. SQLite gives the files beside it the same mode. If the file cannot be
// created, DBOS reports why when it opens it.
func makePrivate(database string) {
	u, err := url.Parse(database)
	if err != nil || (u.Scheme != "sqlite" && u.Scheme != "sqlite3") {
		return
	}
	path := u.Opaque
	if path == "" {
		path = u.Path
	}
	if path == "" || strings.Contains(path, ":") { // in memory, or an address of SQLite's own
		return
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_ = file.Close()
	}
}
