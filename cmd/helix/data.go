package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/helixagents/helix/internal/backend"
	"github.com/helixagents/helix/store"
)

// Environment variables for addresses that may contain a password: other users of the
// machine can see the arguments of a program, but not its environment.
const (
	storeVariable   = "HELIX_STORE"
	streamsVariable = "HELIX_STREAMS"
	dbosVariable    = "HELIX_DBOS_DATABASE"
)

// memoryStore is the address of a store that ends with the process.
const memoryStore = "memory:"

const storeUsage = "`ADDRESS` of the store: directory, SQLite file, postgres://… or redis://… (default: $" + storeVariable + ", or this user's directory)"

// dataAddress returns the store's address for a --store flag: a server, a file, or a file
// in a directory. It creates the file's directory if create is set.
func dataAddress(data string, create bool) (string, error) {
	if scheme, _, found := strings.Cut(data, ":"); found && !strings.ContainsAny(scheme, `/\.`) && len(scheme) > 1 {
		return data, nil
	}
	path := dataFile(data)
	if create {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return "", fmt.Errorf("cannot store data in %s: %w", filepath.Dir(path), err)
		}
	}
	return "sqlite:" + path, nil
}

// openStore opens a store. It refuses a SQLite file of another program before adding tables
// to it.
func openStore(address string, log *slog.Logger) (store.Backend, error) {
	if backend.Kind(address) == backend.SQLite {
		if _, err := backend.Migrations(address); err != nil {
			return nil, err
		}
	}
	return backend.Open(address, log)
}

// dataFile returns the database file for a path, or the default one.
func dataFile(data string) string {
	switch {
	case data != "":
	case os.Getenv("XDG_DATA_HOME") != "":
		data = filepath.Join(os.Getenv("XDG_DATA_HOME"), "helix")
	default:
		data = "helix-data"
		if home, err := os.UserHomeDir(); err == nil {
			data = filepath.Join(home, ".local", "share", "helix")
		}
	}
	if info, err := os.Stat(data); (err == nil && !info.IsDir()) || (err != nil && filepath.Ext(data) == ".db") {
		return data
	}
	return filepath.Join(data, "helix.db")
}

// shown returns an address without its password.
func shown(address string) string {
	path, ok := strings.CutPrefix(address, "sqlite:")
	if !ok {
		return backend.Redacted(address)
	}
	if home, err := os.UserHomeDir(); err == nil {
		if rest, ok := strings.CutPrefix(path, home+string(filepath.Separator)); ok {
			return filepath.Join("~", rest)
		}
	}
	return path
}
