package main

import (
	"embed"

	"github.com/helixagents/helix/skill"
	"github.com/helixagents/helix/skill/files"
)

//go:embed demo.yaml
var demoYAML []byte

//go:embed skills
var demoFiles embed.FS

// demoSkills are the skills of the demo, which are part of the program.
func demoSkills() skill.Provider { return files.FS(demoFiles) }
