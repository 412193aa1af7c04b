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
		file, err := parseDemo()
		if failure, ok := errors.AsType[*config.Error](err); ok { // which nothing but the variable can cause
			return nil, usageError{fmt.Errorf("HELIX_MODEL %q: %s", os.Getenv("HELIX_MODEL"), failure.Problems[0].Message)}
		}
		return file, err
	}
	file, err := config.Load(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf(`there is no file %s; choose another with --config, or let "helix init" write one`, path)
	}
	return file, err
}

func parseDemo() (*config.File, error) { return config.Parse("demo.yaml", demoYAML) }

// noConfig says that this directory has no file.
func noConfig() string {
	text := "there is no " + defaultConfig + " here"
	if _, err := os.Lstat("helix.yml"); err == nil {
		return text + `, and helix.yml is not read without "--config helix.yml"`
	}
	return text + `; "helix init" writes one`
}
