package main

import (
	_ "embed"

	"github.com/helixagents/helix/config"
)

//go:embed demo.yaml
var demoYAML []byte

// demoFile is the configuration of the demo.
func demoFile() (*config.File, error) { return config.Parse("demo.yaml", demoYAML) }
