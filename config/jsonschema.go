package config

import (
	_ "embed"
	"encoding/json"
	"slices"
)

//go:embed schema.json
var fileSchema []byte

// FileSchema returns the JSON Schema of helix.yaml, with which editors complete and explain
// its keys. It is generated from the types and comments of this package.
func FileSchema() json.RawMessage { return slices.Clone(fileSchema) }
