package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/helixagents/helix/config"
)

const (
	// defaultConfig is the file that is used if none is named and this directory has it.
	defaultConfig = "helix.yaml"
	// demoConfig is the name of the demo's file, which is part of the program.
	demoConfig = "demo"
)

const configUsage = "`FILE` with the agents, or " + demoConfig + " (default: " + defaultConfig + " in this directory, or else the demo)"

// findConfig returns the file to use, "" for the demo. found reports that nobody named it.
func findConfig(named string) (path string, found bool) {
	switch named {
	case demoConfig:
		return "", false
	case "":
		if _, err := os.Lstat(defaultConfig); !errors.Is(err, fs.ErrNotExist) {
			return defaultConfig, true // reading it tells what is wrong with it
		}
	}
	return named, false
}

// tellConfig says which file a command uses that nobody named.
func tellConfig(out io.Writer, path string) {
	fmt.Fprintf(out, "helix: using %s of this directory\n", path)
}

// readConfig reads a file, or the demo's if path is empty.
func readConfig(path string) (*config.File, error) {
	if path == "" {
		return config.Parse("demo.yaml", demoYAML)
	}
	return config.Load(path)
}
