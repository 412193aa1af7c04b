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

// demoModel is the reference of the model that needs nothing.
const demoModel = "demo"

// openModel is the model that a --model flag or else HELIX_MODEL names, and what to
// say about it. The demo model says a word each pace.
func openModel(reference string, pace time.Duration) (llm.Model, string, error) {
	reference = cmp.Or(reference, os.Getenv("HELIX_MODEL"), demoModel)
	if reference == demoModel {
		return scripted.Demo(scripted.DemoConfig{Delay: pace}), "No API key needed: a scripted demo model answers, its tools are real.", nil
	}
	model, err := models.Open(reference)
	if errors.Is(err, session.ErrInvalid) {
		return nil, "", usageError{fmt.Errorf("%w (see helix chat --help)", err)}
	}
	return model, "The model is " + reference + ".", err
}
