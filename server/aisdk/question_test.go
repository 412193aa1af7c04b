package aisdk_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/helixagents/helix/server/aisdk"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// A client that is not shown a call is not shown its questions either: not those of the
// session, not those of an agent below it, neither live nor after a reload.
func TestQuestionsOfOmittedCalls(t *testing.T) {
	t.Parallel()
	for _, version := range []aisdk.Version{aisdk.V5, aisdk.V6, aisdk.V7} {
		for _, omitted := range []bool{false, true} {
			t.Run(strconv.Itoa(int(version))+"/"+strconv.FormatBool(omitted), func(t *testing.T) {
				t.Parallel()
				own := session.Pending{
					CallID: "c1.q1", For: "c1", Tool: "secret", Kind: session.PendingQuestion, Prompt: "Which vault?",
					Schema: []byte(`{"type":"boolean"}`), Input: []byte(`{}`), SessionID: "ses", State: session.PendingWaiting,
				}
				below := own
				below.CallID, below.For, below.SessionID, below.Prompt = "c9.q1", "c9", "kid", "Which key?"
				s := &script{session: "ses"}
				s.begin("run_1", user("u1", "Hi"))
				s.next(1)
				s.say("Well,")
				s.start("c1", "secret", `{}`)
				s.start("c2", "subagent__kid", `{}`)
				s.asked(&own)
				s.as("kid", "kid", func(s *script) { s.asked(&below) })
				s.suspends(own, below)
				var options aisdk.Options
				if omitted {
					options.Filter = func(c *aisdk.Chunk) bool { return c.Tool != "secret" }
				}
				last := stream.Item{Frame: stream.FrameEnd, End: &stream.End{Status: stream.EndPaused}}
				told := encodeWith(options, version, s, last)
				understood(t, told)
				over := s.items
				s.end("c1", "secret", `1`)
				ended := encodeWith(options, version, s, last)
				s.items = over
				history := aisdk.History(aisdk.Config{Version: version, Options: options}, &aisdk.Transcript{
					SessionID: "ses", Suspended: true, Messages: stream.Fold("ses", chunks(s)),
					Waits: []aisdk.Wait{{Pending: own}, {Pending: below, Under: "c2"}},
				})
				for who, shown := range map[string]string{"live": text(told), "at the end": text(ended), "after a reload": text(history)} {
					for _, secret := range []string{"data-question", "Which vault?", "Which key?", "c1.q1", "c9.q1"} {
						if strings.Contains(shown, secret) == omitted {
							t.Errorf("%s %q is shown: %v, in %s", who, secret, omitted, shown)
						}
					}
				}
			})
		}
	}
}

// asked tells that a call asks a question.
func (s *script) asked(p *session.Pending) {
	s.tell(stream.Custom, func(c *stream.Chunk) {
		q := stream.NewQuestion(p)
		c.Name, c.CallID, c.Tool, c.Arguments, c.Data = q.Name, q.CallID, q.Tool, q.Arguments, q.Data
	})
}

// An agent below the session cannot put its question or its approval on the card of
// another's call, neither with a chunk nor with what it says it waits for. The agents that
// work for a remote one are relayed by the same session.
func TestQuestionsOfAnothersCall(t *testing.T) {
	t.Parallel()
	last := stream.Item{Frame: stream.FrameEnd, End: &stream.End{Status: stream.EndPaused}}
	own := session.Pending{
		CallID: "c9.q1", For: "c9", Tool: "size", Kind: session.PendingQuestion, Prompt: "Which size?",
		Schema: []byte(`{"type":"string"}`), Input: []byte(`{}`), SessionID: "kid", State: session.PendingWaiting,
	}
	forged := own
	forged.CallID, forged.Prompt = "c9.q2", "Your password?"
	ways := map[string]func(s *script){
		"chunk": func(s *script) { s.asked(&forged) },
		"approval": func(s *script) {
			s.tell(stream.ApprovalRequest, func(c *stream.Chunk) { c.CallID, c.Tool, c.ApprovalID = "c9", "size", "password" })
		},
		"suspension": func(s *script) {
			p := forged
			p.SessionID = s.items[len(s.items)-1].Chunk.AgentID
			s.suspends(p)
		},
	}
	for agent, shown := range map[string]bool{"kid": true, "other": false, "kid@peer.1-sub-2": true, "kid2": false} {
		for name, tell := range ways {
			if name == "suspension" && agent == "kid@peer.1-sub-2" {
				continue // a remote's calls are listed by the session that relays it
			}
			s := &script{session: "ses"}
			s.begin("run_1", user("u1", "Hi"))
			s.next(1)
			s.start("c2", "subagent__kid", `{}`)
			s.as("kid", "kid", func(s *script) { s.asked(&own) })
			s.as(agent, "kid", func(s *script) {
				s.say("so")
				tell(s)
			})
			told := text(encodeWith(aisdk.Options{}, aisdk.V7, s, last))
			if !strings.Contains(told, "Which size?") {
				t.Errorf("%s, %s: the question is not shown: %s", agent, name, told)
			}
			if got := strings.Contains(told, "password"); got != shown {
				t.Errorf("%s, %s: shown: %v, in %s", agent, name, got, told)
			}
		}
	}
}

// A marker may not be committed when the run fails; the transcript says whether it was.
func TestMarkerOfFailedRun(t *testing.T) {
	t.Parallel()
	s := &script{session: "ses"}
	s.begin("run_1", user("u1", "Hi"))
	s.mark()
	for shown, last := range map[bool]stream.Item{
		true:  {Frame: stream.FrameEnd, End: &stream.End{Status: stream.EndCompleted}},
		false: {Frame: stream.FrameFail, Error: session.ErrInternal},
	} {
		told := text(encodeWith(aisdk.Options{}, aisdk.V7, s, last))
		if strings.Contains(told, "data-compacted") != shown {
			t.Errorf("want a marker: %v, in %s", shown, told)
		}
	}
}
