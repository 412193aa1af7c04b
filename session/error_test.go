package session_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/helixagents/helix/session"
)

var sentinels = []*session.Error{
	session.ErrNotFound, session.ErrExists, session.ErrStale, session.ErrUnavailable, session.ErrCorrupt,
	session.ErrTransition, session.ErrAlreadyRunning, session.ErrAwaitingInput, session.ErrAnswered, session.ErrPaused,
	session.ErrNotResumable, session.ErrInvalid, session.ErrSubmissionKind, session.ErrTooLarge, session.ErrMaxSteps,
	session.ErrNoOutput, session.ErrCancelled, session.ErrCrashLoop, session.ErrInternal, session.ErrNotSupported,
	session.ErrClosed, session.ErrUnknownAgent, session.ErrTruncated, session.ErrStreamClosed,
}

func TestErrorsMatchByCode(t *testing.T) {
	t.Parallel()
	for i, sentinel := range sentinels {
		particular := sentinel.WithCause(io.EOF, "session %s", "s-1").WithSaw(session.Saw{Version: 3})
		var stored session.Error
		if err := json.Unmarshal(encode(particular), &stored); err != nil {
			t.Fatal(err)
		}
		for name, err := range map[string]error{
			"itself": sentinel, "a copy": particular, "stored": &stored,
			"wrapped": fmt.Errorf("commit step: %w", fmt.Errorf("store: %w", particular)),
			"joined":  errors.Join(io.ErrUnexpectedEOF, particular),
			"a cause": session.ErrInternal.WithCause(particular, "x"),
		} {
			if !errors.Is(err, sentinel) {
				t.Errorf("%s: %s does not match", sentinel.Code, name)
			}
			for j, other := range sentinels {
				if j != i && (name != "a cause" || other != session.ErrInternal) && errors.Is(err, other) {
					t.Errorf("%s: %s matches %s", sentinel.Code, name, other.Code)
				}
			}
		}
		if !errors.Is(particular, io.EOF) {
			t.Errorf("%s: the cause is lost", sentinel.Code)
		}
		if sentinel.Saw != nil || sentinel.Cause != nil {
			t.Errorf("%s: the sentinel was changed", sentinel.Code)
		}
		if retryable := sentinel == session.ErrUnavailable; session.IsRetryable(fmt.Errorf("x: %w", particular)) != retryable {
			t.Errorf("%s: retryable is not %v", sentinel.Code, retryable)
		}
	}
}

func TestErrorSurvivesStorage(t *testing.T) {
	t.Parallel()
	saw := session.Saw{Status: session.Active, Version: 7, RunID: "run_1", Owner: "local:x", Epoch: 2}
	e := session.ErrStale.WithCause(errors.New("disk on <fire>"), "session s-1: commit").WithSaw(saw)
	e.StatusCode, e.Field, e.Calls = http.StatusConflict, "version", []string{"call_1"}
	var stored session.Error
	if err := json.Unmarshal(encode(e), &stored); err != nil {
		t.Fatal(err)
	}
	if stored.Code != e.Code || stored.Category != "state" || stored.Message != "session s-1: commit: disk on <fire>" ||
		stored.Saw == nil || *stored.Saw != saw || stored.StatusCode != http.StatusConflict || stored.Field != "version" || len(stored.Calls) != 1 {
		t.Errorf("%+v became %+v", e, stored)
	}
	again := encode(&stored)
	if string(again) != string(encode(e)) {
		t.Errorf("stored twice it is %s, once %s", again, encode(e))
	}
}

func TestErrorCategories(t *testing.T) {
	t.Parallel()
	for code, want := range map[session.Code]string{
		session.CodeStale: "state", session.CodeInvalid: "validation", session.CodeMaxSteps: "framework",
		session.CodeToolTimeout: "tool", session.CodeRateLimited: "provider", session.CodeRunStopped: "tool",
		session.CodeAbandoned: "tool", session.CodeClientTimeout: "tool", session.CodeTruncated: "stream",
		"provider_of_ones_own": "provider", "odd": "odd", "": "",
	} {
		var stored session.Error
		if err := json.Unmarshal(encode(&session.Error{Code: code}), &stored); err != nil || stored.Category != want {
			t.Errorf("%q is of category %q, want %q (%v)", code, stored.Category, want, err)
		}
	}
	var own session.Error
	if err := json.Unmarshal(encode(&session.Error{Code: "a_b", Category: "mine"}), &own); err != nil || own.Category != "mine" {
		t.Errorf("a category that was set became %q (%v)", own.Category, err)
	}
}

func TestAsError(t *testing.T) {
	t.Parallel()
	if session.AsError(nil) != nil {
		t.Error("nil became an error")
	}
	saw := session.Saw{Version: 7, Owner: "o", Epoch: 1}
	stale := session.ErrStale.WithCause(io.EOF, "commit").WithSaw(saw)
	if session.AsError(stale) != stale {
		t.Error("an error is not itself")
	}
	wrapped := fmt.Errorf("session s-1: %w", stale)
	got := session.AsError(wrapped)
	if got.Code != session.CodeStale || got.Error() != wrapped.Error() {
		t.Errorf("%q became %q", wrapped, got)
	}
	if got.Saw == nil || *got.Saw != saw || !errors.Is(got, io.EOF) {
		t.Errorf("wrapping lost what the store saw or the cause: %+v", got)
	}
	if stale.Message != "commit" {
		t.Error("the wrapped error was changed")
	}
	for name, err := range map[string]error{
		"text after it": fmt.Errorf("%w, sadly", stale),
		"joined":        errors.Join(stale, io.ErrClosedPipe),
	} {
		if got := session.AsError(err); got.Code != session.CodeStale || got.Error() != err.Error() {
			t.Errorf("%s: %q became %q", name, err, got)
		}
	}
	if got := session.AsError(io.EOF); got.Code != session.CodeInternal || got.Error() != "EOF" {
		t.Errorf("a foreign error became %+v", got)
	}
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	e := session.ErrStale.WithMessage("session s-1: stale").WithSaw(session.Saw{Version: 3, Status: session.Paused, Owner: "local:x", Epoch: 2})
	for _, want := range []string{"session s-1", "version 3", "status paused", "owner local:x epoch 2"} {
		if !strings.Contains(e.Error(), want) {
			t.Errorf("%q does not say %q", e, want)
		}
	}
	if got := session.Invalid("offset", "%d is negative", -1); got.Error() != "offset -1 is negative" || got.Field != "offset" {
		t.Errorf("got %q about %q", got, got.Field)
	}
}
