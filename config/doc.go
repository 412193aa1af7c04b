// Package config reads agents from a file, helix.yaml, for programs whose users
// configure them without writing Go.
//
//	file, err := config.Load("helix.yaml")
//	agents, err := file.Build(config.BuildOptions{})
//
// An invalid file yields an [*Error] with all its [Problem] values: the line, the column,
// and what was expected. [Watch] reports changes of a file.
//
// # Values
//
// In every value, ${NAME} is replaced by the environment variable of that name, and
// ${NAME:-default} by it or, if it is not set or empty, by the default; $${ is ${ as
// it is. What a variable holds is never part of an error.
//
// Durations are written as 90s, 1h30m or 7d. YAML's anchors and aliases may be used, its
// merge keys may not.
//
// The whole format is in [File] and the types it has, and in docs/helix-yaml.md.
package config
