package dbos

import (
	"net/url"
	"os"
	"strings"

	"github.com/helixagents/helix/session"
)

// checkEnvironment refuses variables with which DBOS would override the configuration
// without a word. Two processes that share DBOS__VMID would be one executor, and
// recover each other's live turns; a conductor could cancel and restart workflows
// whose turns are the store's. DBOS has no option to ignore them, and taking them out
// of the environment would take them from the rest of the process, too.
func (c *Config) checkEnvironment() error {
	for _, v := range []struct{ name, field, value string }{
		{"DBOS__VMID", "ExecutorID", c.ExecutorID},
		{"DBOS__APPVERSION", "AppVersion", c.AppVersion},
	} {
		if set := os.Getenv(v.name); set != "" && set != v.value {
			return session.Invalid(v.name, "is %q in the environment and would take the place of %s %q: "+
				"unset it, or give %s the same value", set, v.field, v.value, v.field)
		}
	}
	if os.Getenv("DBOS__CLOUD") != "true" {
		return nil
	}
	for _, name := range []string{"DBOS__CONDUCTOR_APP_NAME", "DBOS__CONDUCTOR_KEY", "DBOS__CONDUCTOR_URL"} {
		if os.Getenv(name) == "" {
			return nil // it connects with all of them only
		}
	}
	return session.Invalid("DBOS__CLOUD", "is true in the environment, with which DBOS would let its conductor manage the workflows: "+
		"unset it, or DBOS__CONDUCTOR_URL")
}

// makePrivate makes the file of a SQLite database, if there is none, for its owner
// alone. SQLite gives the files beside it the same mode. Where it cannot be made,
// DBOS says why when it tries.
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
