package aisdk_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/helixagents/helix/server/aisdk"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// The options leave out the same while a reply is streamed and after a reload, and
// clients understand what is left.
func TestOptions(t *testing.T) {
	t.Parallel()
	for option, c := range map[string]struct {
		options aisdk.Options
		gone    []string // in what is shown of a message
	}{
		"reasoning": {aisdk.Options{OmitReasoning: true}, []string{`"type":"reasoning"`}},
		"results":   {aisdk.Options{OmitToolResults: true}, []string{`"output":"`, `"output":false`, `"output":{"deleted`}},
		"steps":     {aisdk.Options{OmitSteps: true}, []string{`"step-start"`}},
		"tools": {aisdk.Options{Filter: func(c *aisdk.Chunk) bool {
			return c.Type != aisdk.TypeInputStart
		}}, []string{`"dynamic-tool"`}},
		"text":  {aisdk.Options{Filter: func(c *aisdk.Chunk) bool { return c.Type != aisdk.TypeTextStart }}, []string{`"type":"text"`}},
		"files": {aisdk.Options{Filter: func(c *aisdk.Chunk) bool { return c.Type != aisdk.TypeFile }}, []string{`"type":"file"`}},
		"data": {aisdk.Options{Filter: func(c *aisdk.Chunk) bool {
			return !strings.HasPrefix(c.Type, aisdk.DataPrefix)
		}}, []string{`"data-`}},
		"everything": {aisdk.Options{
			Filter: func(*aisdk.Chunk) bool { return false }, OmitReasoning: true, OmitToolResults: true, OmitSteps: true,
		}, []string{`"type"`}},
	} {
		for name := range stories {
			for _, version := range []aisdk.Version{aisdk.V5, aisdk.V6, aisdk.V7} {
				t.Run(fmt.Sprint(option, "/", name, "/", int(version)), func(t *testing.T) {
					t.Parallel()
					s, last := play(name)
					told := encodeWith(c.options, version, s, last)
					understood(t, told)
					live := aisdk.Message{Role: "assistant", Parts: []aisdk.Part{}}
					for i := range told {
						live.Apply(&told[i])
					}
					late, _ := play(name)
					late.items = aisdk.Prune("ses", late.items)
					understood(t, encodeWith(c.options, version, late, last))
					history := aisdk.History(aisdk.Config{Version: version, Options: c.options}, &aisdk.Transcript{
						SessionID: "ses", Messages: stream.Fold("ses", chunks(s)), Waits: storyWaits[name],
						Suspended: last.End != nil && last.End.Status == stream.EndPaused,
					})
					if len(history) != 2 { // nothing of the reply stands
						return
					}
					for who, m := range map[string]aisdk.Message{"live": live, "after a reload": history[1]} {
						for _, gone := range c.gone {
							if strings.Contains(text(m.Parts), gone) {
								t.Errorf("%s there is %s: %s", who, gone, text(m.Parts))
							}
						}
					}
					if version == aisdk.V5 || option == "steps" { // they cannot take back what was shown
						return
					}
					if got, want := lasting(version, history[1]), lasting(version, live); got != want {
						t.Errorf("after a reload\n%s\nlive\n%s", got, want)
					}
				})
			}
		}
	}
}

// understood wants no chunk to be about a part that the client was not shown: clients
// fail then.
func understood(t *testing.T, chunks []aisdk.Chunk) {
	t.Helper()
	texts, calls, approvals := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for i := range chunks {
		switch c := &chunks[i]; c.Type {
		case aisdk.TypeTextStart, aisdk.TypeReasoningStart:
			texts[c.ID] = true
		case aisdk.TypeTextDelta, aisdk.TypeTextEnd, aisdk.TypeReasoningDelta, aisdk.TypeReasoningEnd:
			if !texts[c.ID] {
				t.Errorf("%s is about a text that was not begun", text(c))
			}
		case aisdk.TypeInputStart, aisdk.TypeInputAvailable, aisdk.TypeInputError:
			calls[c.CallID] = true
		case aisdk.TypeApprovalResponse:
			if !approvals[c.ApprovalID] {
				t.Errorf("%s is about an approval that was not asked for", text(c))
			}
		case aisdk.TypeApprovalRequest, aisdk.TypeInputDelta, aisdk.TypeOutputAvailable, aisdk.TypeOutputError, aisdk.TypeOutputDenied:
			if approvals[c.ApprovalID] = true; !calls[c.CallID] {
				t.Errorf("%s is about a call that was not shown", text(c))
			}
		}
	}
}

// A client that has the beginning of a message is not told of calls in it which it was
// not shown.
func TestFilterHoldsWhenAMessageContinues(t *testing.T) {
	t.Parallel()
	e := aisdk.NewEncoder(aisdk.Config{Version: aisdk.V7, SessionID: "ses", Options: aisdk.Options{
		Filter: func(c *aisdk.Chunk) bool { return c.Tool != "secret" },
	}})
	e.Continue([]session.Pending{{CallID: "c1", SessionID: "ses", Tool: "secret", Kind: session.PendingClientTool}})
	for _, call := range []string{"c1", "c2"} {
		c := &stream.Chunk{Kind: stream.ToolEnd, AgentID: "ses", CallID: call, Tool: "secret", Result: json.RawMessage(`1`)}
		if got := e.Encode(1, c); len(got) > 0 {
			t.Errorf("the client is told %s", text(got))
		}
	}
}

// Metadata of the application stands beside that of Helix, which it cannot change.
func TestApplicationMetadata(t *testing.T) {
	t.Parallel()
	options := aisdk.Options{
		StartMetadata: func(m *aisdk.Metadata) map[string]any {
			return map[string]any{"model": "m-1", "sessionId": "another", "for": m.RunID, "bad": func() {}}
		},
		FinishMetadata: func(m *aisdk.Metadata) map[string]any {
			return map[string]any{"cost": m.Usage.InputTokens * 2, "status": "splendid", "model": "m-2"}
		},
	}
	s, last := play("text")
	live := aisdk.Message{}
	for _, c := range encodeWith(options, aisdk.V5, s, last) {
		raw, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}
		var read aisdk.Chunk
		if err := json.Unmarshal(raw, &read); err != nil {
			t.Fatal(err)
		}
		live.Apply(&read)
	}
	history := aisdk.History(aisdk.Config{Options: options}, &aisdk.Transcript{
		SessionID: "ses", Messages: stream.Fold("ses", chunks(s)),
		Metadata: &aisdk.Metadata{SessionID: "ses", RunID: "run_1", Status: "completed", Usage: last.End.Usage},
	})
	const want = `{"sessionId":"ses","runId":"run_1","status":"completed","usage":{"inputTokens":3,"outputTokens":5},"cost":6,"for":"run_1","model":"m-2"}`
	for who, m := range map[string]aisdk.Message{"live": live, "after a reload": history[1]} {
		if got := text(m.Metadata); got != want {
			t.Errorf("%s the metadata is\n%s\nwant\n%s", who, got, want)
		}
	}
	if got := text(aisdk.Metadata{Extra: map[string]json.RawMessage{"a": json.RawMessage("1")}}); got != `{"a":1}` {
		t.Errorf("metadata of the application alone is %s", got)
	}
}

// Pages are parts of the whole, whatever they begin and end with.
func TestPagesAreThoseOfTheWhole(t *testing.T) {
	t.Parallel()
	reply := func(id, said string) session.Message {
		return session.Message{ID: id, Role: session.RoleAssistant, RunID: "run_" + id, Parts: []session.Part{session.Text(said)}}
	}
	hidden := func(id string) session.Message {
		m := user(id, "note")
		m.Metadata = map[string]json.RawMessage{session.MetaHidden: json.RawMessage("true")}
		return m
	}
	messages := []session.Message{
		hidden("h0"), reply("a0", "Welcome."), user("u1", "one"), hidden("h1"), reply("a1", "1"), hidden("h2"), reply("a2", "1b"),
		user("u2", "nothing"), user("u3", "three"), reply("a3", "3"), user("u4", "four"), reply("a4", "4"),
	}
	for n := range len(messages) + 1 {
		for state, change := range map[string]func(*aisdk.Transcript){
			"at rest": func(*aisdk.Transcript) {},
			"running": func(t *aisdk.Transcript) { t.Running = true },
			"begun":   func(t *aisdk.Transcript) { t.Running, t.Begun = true, true },
			"failed":  func(t *aisdk.Transcript) { t.Metadata = &aisdk.Metadata{Status: "failed", Error: "It failed."} },
			"waiting": func(t *aisdk.Transcript) { t.Suspended = true },
			"ids": func(t *aisdk.Transcript) {
				t.GenerateID = func(i int, m *aisdk.Message) string { return fmt.Sprint(i, "-", m.Role) }
			},
		} {
			whole := &aisdk.Transcript{SessionID: "ses", Messages: messages[:n]}
			change(whole)
			all := aisdk.History(aisdk.Config{}, whole)
			for offset := range len(all) + 2 {
				for limit := 1; limit < len(all)+2; limit++ {
					page, skip, total := whole.Page(offset, limit)
					got := aisdk.History(aisdk.Config{}, page)
					got = got[min(skip, len(got)):]
					got = got[:min(limit, len(got))]
					want := all[min(offset, len(all)):min(offset+limit, len(all))]
					if text(got) != text(want) || total != len(all) {
						t.Fatalf("%d messages, %s: %d from %d of %d are\n%s\nwant\n%s", n, state, limit, offset, total, text(got), text(want))
					}
				}
			}
		}
	}
}
