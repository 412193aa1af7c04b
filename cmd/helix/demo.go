package main

import (
	"embed"

	"github.com/helixagents/helix/config"
	"github.com/helixagents/helix/skill"
	"github.com/helixagents/helix/skill/files"
)

//go:embed demo.yaml
var demoYAML []byte

//go:embed skills
var demoFiles embed.FS

// demoFile is the configuration of the demo.
func demoFile() (*config.File, error) { return config.Parse("demo.yaml", demoYAML) }

// demoSkills are the skills of the demo, which are part of the program.
func demoSkills() skill.Provider { return files.FS(demoFiles) }
