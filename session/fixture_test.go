package session_test

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/helixagents/helix/session"
)

// The first version of the format wrote the files under testdata/v1. They never
// change: every later version must be able to read them.

// documents returns the type that a fixture contains, by the prefix of its name.
var documents = map[string]func() any{
	"state":      func() any { return new(session.State) },
	"message":    func() any { return new(session.Message) },
	"run":        func() any { return new(session.Run) },
	"checkpoint": func() any { return new(session.Checkpoint) },
	"call":       func() any { return new(session.Call) },
	"pending":    func() any { return new(session.Pending) },
	"child":      func() any { return new(session.ChildRef) },
}

// fixtures reads every file, together with the constructor of its type.
func fixtures(t rapid.TB) map[string]fixture {
	files, err := filepath.Glob("testdata/v1/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	out := map[string]fixture{}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		kind, _, _ := strings.Cut(name, "-")
		if documents[kind] == nil {
			t.Fatalf("%s holds no known document", file)
		}
		out[name] = fixture{must(os.ReadFile(file)), documents[kind]}
	}
	return out
}

type fixture struct {
	raw []byte
	new func() any
}

func TestFixturesAreReadAndWrittenBack(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for name, f := range fixtures(t) {
		kind, _, _ := strings.Cut(name, "-")
		seen[kind] = true
		doc := f.new()
		if err := session.Decode(name, f.raw, doc); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		sameJSON(t, name, encode(doc), f.raw)
		sameJSON(t, name+" through json.Marshal", must(json.Marshal(doc)), f.raw)
	}
	if len(seen) != len(documents) {
		t.Errorf("there are fixtures of %v only", slices.Sorted(maps.Keys(seen)))
	}
}

func TestFixturesMeanWhatTheyMeant(t *testing.T) {
	t.Parallel()
	all := fixtures(t)
	at := time.Date(2026, 3, 4, 5, 6, 7, 890123456, time.UTC)
	future := func(extra session.Extra) bool { return len(extra) == 2 && string(extra["futureFlag"]) == "true" }

	var s session.State
	read(t, all["state"], &s)
	if s.Tenant != "acme" || s.ID != "s-1" || s.Agent != "researcher" || s.StreamID != "s-0" || s.RootID != "s-0" || s.ParentID != "s-p" ||
		s.Status != session.Interrupted || s.StepCount != 3 || s.Version != 42 || s.Turn != 4 || s.MessageCount != 17 || s.ResumeCount != 2 ||
		s.CurrentRunID != "run_1" || s.LastCommit != "run_1/3/commit" || !s.ClosePending || s.UserID != "alice" || s.Metadata["k"] != "v" ||
		!s.CreatedAt.Equal(at) || s.CheckpointSource != session.FromStep || s.Mode != "durable" || s.SuspendedStep != "run_1/2" || !future(s.Extra) {
		t.Errorf("state: %+v", s)
	}
	if s.Lease.Owner != "local:me" || s.Lease.Epoch != 2 || s.Custom.Len() != 4 || string(s.Custom.Get("count")) != "2" || s.Interrupt.Step != 3 ||
		!errors.Is(s.Error, session.ErrStale) || s.Error.Saw.Version != 5 || s.Tracing.TraceID != "t" || len(s.Pending) != 1 || len(s.AwaitingChildren) != 1 {
		t.Errorf("state: %+v", s)
	}

	var r session.Run
	read(t, all["run"], &r)
	if r.ID != "run_1" || r.Turn != 4 || r.Kind != session.RunRetry || r.Status != session.RunSuspendedPartial || r.Runtime != "local" || r.RequestID != "req-1" ||
		r.StartSequence != 9 || r.Attempts != 2 || r.ProgressVersion != 41 || r.CompletionReason != session.ReasonFinish || r.Usage.ToolCalls != 7 ||
		r.Outcome.Reply != "bye" || r.Outcome.Pending[0].CallID != "call_1" || !r.StartedAt.Equal(at) || !future(r.Extra) || !future(r.Outcome.Pending[0].Extra) {
		t.Errorf("run: %+v", r)
	}

	var c session.Checkpoint
	read(t, all["checkpoint"], &c)
	if c.Step != 3 || c.Source != session.FromSave || c.MessageCount != 17 || c.StreamSequence != 99 || c.State == nil || c.State.Len() != 4 || !future(c.Extra) {
		t.Errorf("checkpoint: %+v", c)
	}

	var call session.Call
	read(t, all["call"], &call)
	if call.ID != "call_1" || call.MessageID != "run_1/2" || call.Index != 1 || call.Kind != session.CallServer || call.Status != session.CallSettled ||
		!call.MayRepeat() || !call.FinishWith || call.Result.Parts[0].CallID != "call_1" || len(call.Writes.Ops) != 3 || !future(call.Extra) {
		t.Errorf("call: %+v", call)
	}

	var p session.Pending
	read(t, all["pending"], &p)
	if p.CallID != "call_1" || p.Kind != session.PendingApproval || p.ApprovalID != "apr_1" || p.State != session.PendingTimedOut || !p.Response.Approved ||
		p.Late.By != "bob" || !p.LateNoticed || p.Fingerprint != "f00d" || p.Input == nil || !future(p.Extra) {
		t.Errorf("pending: %+v", p)
	}

	var child session.ChildRef
	read(t, all["child"], &child)
	if child.SessionID != "s-1-sub-call_1" || child.Mode != session.ChildPersistent || child.Status != session.ChildWaiting || !child.Blocking ||
		!child.Awaited || !child.StopPending || child.Remote == nil || !future(child.Extra) {
		t.Errorf("child: %+v", child)
	}

	var user, reply, result, text, failure session.Message
	read(t, all["message-user"], &user)
	read(t, all["message-assistant"], &reply)
	read(t, all["message-result"], &result)
	read(t, all["message-result-text"], &text)
	read(t, all["message-result-error"], &failure)
	if user.Content() != "Who invented the <compass>?\n" || !user.Hidden() || user.Parts[1].Filename != "x.txt" || !user.At.Equal(at) || !future(user.Extra) {
		t.Errorf("user's message: %+v", user)
	}
	if reply.ID != "run_1/2" || reply.Step != 2 || reply.Parts[0].Kind != session.PartReasoning || reply.Parts[0].Provider == nil || reply.Content() != "日本 🧭" ||
		reply.Calls()[0].ProviderCallID != "toolu_1" || reply.Calls()[0].Tool != "search" || !future(reply.Parts[2].Extra) {
		t.Errorf("reply: %+v", reply)
	}
	if result.Parts[0].CallID != "call_1" || result.Parts[0].Output == nil || text.Parts[0].Text != `plain "text"` || !errors.Is(failure.Parts[0].Error, session.ErrStale) {
		t.Errorf("results: %+v, %+v, %+v", result, text, failure)
	}
	if _, err := session.NewTranscript([]session.Message{user, reply, result, user}); err != nil {
		t.Error(err)
	}
}

func read(t *testing.T, f fixture, v any) {
	t.Helper()
	if err := session.Decode("fixture", f.raw, v); err != nil {
		t.Fatal(err)
	}
}

func TestUnknownFieldsSurvive(t *testing.T) {
	t.Parallel()
	all := fixtures(t)
	names := slices.Sorted(maps.Keys(all))
	rapid.Check(t, func(t *rapid.T) {
		f := all[rapid.SampledFrom(names).Draw(t, "fixture")]
		doc := decoded(t, f.raw).(map[string]any)
		add := func(object map[string]any) {
			for name, value := range genExtra().Draw(t, "extra") {
				object[name] = decoded(t, value)
			}
		}
		add(doc)
		if parts, ok := doc["parts"].([]any); ok {
			for _, part := range parts {
				add(part.(map[string]any))
			}
		}
		raw := space(t, encode(doc))
		v := f.new()
		if err := session.Decode("document", raw, v); err != nil {
			t.Fatal(err)
		}
		sameJSON(t, "after a round trip", encode(v), raw)
	})
}

// A name that differs from a known one only in case is decoded as the known one,
// as encoding/json does. It must not also be kept as an unknown field, which would
// then override the known one.
func TestNamesInAnotherCase(t *testing.T) {
	t.Parallel()
	var m session.Message
	if err := session.Decode("message", []byte(`{"ID":"upper","id":"lower","role":"user"}`), &m); err != nil {
		t.Fatal(err)
	}
	var again session.Message
	if err := session.Decode("message", encode(&m), &again); err != nil || m.ID != "lower" || again.ID != "lower" {
		t.Errorf("%q, then %q, %v", m.ID, again.ID, err)
	}
}

func TestLaterFormatsAreRefused(t *testing.T) {
	t.Parallel()
	for name, f := range fixtures(t) {
		doc := decoded(t, f.raw).(map[string]any)
		doc["v"] = session.FormatVersion + 1
		err := session.Decode(name, encode(doc), f.new())
		if !errors.Is(err, session.ErrCorrupt) || !strings.Contains(err.Error(), "version 2") {
			t.Errorf("%s of version 2: got %v", name, err)
		}
	}
}

func TestWhatCannotBeDecodedIsCorrupt(t *testing.T) {
	t.Parallel()
	for name, makes := range documents {
		for _, raw := range []string{``, `{`, `[]`, `"x"`, `1`, `{"v":"one"}`, "\x00", `{"v":1}}`} {
			err := session.Decode(name+" x", []byte(raw), makes())
			if !errors.Is(err, session.ErrCorrupt) || !strings.Contains(err.Error(), name+" x") {
				t.Errorf("%s from %q: got %v", name, raw, err)
			}
		}
	}
}
