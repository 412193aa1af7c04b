package config

import (
	_ "embed"
	"encoding/json"
	"slices"
)

//go:embed schema.json
var fileSchema []byte

// FileSchema is the JSON Schema of helix.yaml, for editors: they complete and explain
// its keys. It is made of the types and comments of this package.
func FileSchema() json.RawMessage { return slices.Clone(fileSchema) }
