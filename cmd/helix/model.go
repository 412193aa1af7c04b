package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/models"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
)

// demoModel is the reference of the scripted model, which needs no API key.
const demoModel = "demo"

// openModel returns the model of the --model flag or HELIX_MODEL, and a sentence about it.
// The demo model writes one word per pace.
func openModel(reference string, pace time.Duration) (llm.Model, string, error) {
	reference = cmp.Or(reference, os.Getenv("HELIX_MODEL"), demoModel)
	if reference == demoModel {
		return scripted.Demo(scripted.DemoConfig{Delay: pace}), "No API key needed: the demo model is a script, its tools are real.", nil
	}
	model, err := models.Open(reference)
	if errors.Is(err, session.ErrInvalid) {
		return nil, "", usageError{fmt.Errorf("%w (see helix chat --help)", err)}
	}
	return model, "The model is " + reference + ".", err
}
