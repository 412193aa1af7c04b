package main

import (
	"strings"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/browsertest"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/llm/scripted"
)

// TestPageAccessible has axe-core look at the page, in light and dark; testdata/axe.mjs says
// at what.
func TestPageAccessible(t *testing.T) {
	t.Parallel()
	testshare.SkipUnless(t, 0, 4)
	writer := &helix.Agent{Name: "writer", Description: "Writes reports.", Model: talking(func(string) scripted.Step {
		return scripted.Reply(scripted.Think("First the **numbers**."), scripted.Say(strings.Replace(report, "…", "", 1)))
	})}
	locked := writeDemo(t, "1ms", "server: {tokens: [{token: 0123456789abcdef, user: alice}]}\n")
	browsertest.New(t, "axe.mjs", "HELIX_URL="+servePage(t, asker(), writer), "HELIX_WRITER=writer",
		"HELIX_LOCKED_URL="+serve(t, locked, "--config", defaultConfig, "--data", "data").url()).Run(nil)
}
