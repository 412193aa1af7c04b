package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/helixagents/helix/config"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
)

func Example() {
	file, err := config.Parse("helix.yaml", []byte(`
version: 1
agents:
  writer: {model: demo, tools: [clok]}
tools:
  clock: {type: builtin, builtin: time, approvals: always}
`))
	fmt.Println(file == nil, err)
	// Output:
	// true helix.yaml:4:33: agents.writer.tools[0]: there is no tool "clok"; did you mean clock?
	// helix.yaml:6:41: tools.clock.approvals: unknown key; did you mean approval?
}

// The example is valid as it is, with nothing set in the environment.
func TestExampleFile(t *testing.T) {
	for _, name := range []string{"HELIX_MODEL", "SHOP_URL", "SHOP_TOKEN", "SUPPORT_TOKEN", "OPERATOR_TOKEN", "HELIX_STORE"} {
		t.Setenv(name, "")
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
	file, err := config.Load(filepath.Join("..", "examples", "helix-yaml", "helix.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	agents, err := file.Build(config.BuildOptions{OpenModel: func(config.Model) (llm.Model, error) { return scripted.New(), nil }})
	if err != nil || len(agents) != len(file.Agents) || agents[0].Name != "support" {
		t.Errorf("%v, %v", agents, err)
	}
}
