package helix_test

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/helixagents/helix"
)

// TestParsingIsLinear parses a schema without resolving it again for each alternative.
func TestParsingIsLinear(t *testing.T) {
	allocs := func(branches int) float64 {
		schema := json.RawMessage(`{"type":"object","anyOf":[` + strings.Repeat(`{"required":["a"]},`, branches-1) + `{"required":["b"]}]}`)
		return testing.AllocsPerRun(1, func() {
			if _, err := helix.ParseSchema(schema); err != nil {
				t.Fatal(err)
			}
		})
	}
	if few, many := allocs(20), allocs(160); many > 12*few {
		t.Errorf("8 times the alternatives make %.0f allocations of %.0f", many, few)
	}
}

// TestSchemaIsShared uses a schema in several goroutines from the beginning.
func TestSchemaIsShared(t *testing.T) {
	t.Parallel()
	schema, err := helix.ParseSchema(json.RawMessage(`{"type":"object","properties":{"a":{"minimum":1}},"anyOf":[{"required":["a"]},{"properties":{"b":{}}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := schema.Validate(json.RawMessage(`{"a":1}`)); err != nil {
				t.Error(err)
			}
			if err := schema.ValidateInput(json.RawMessage(`{"a":1,"c":2}`)); err == nil || !strings.Contains(err.Error(), `"c"`) {
				t.Errorf("an undeclared argument: %v", err)
			}
		})
	}
	all.Wait()
}
