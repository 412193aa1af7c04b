package llmtest

import (
	"fmt"
	"strings"

	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// DeltasMatch reports what is wrong with the deltas of a reply: text and reasoning
// join to the text of the parts, and every call is started once, in order, given
// its arguments and ended. A model that streams nothing is fine.
func DeltasMatch(deltas []llm.Delta, parts []session.Part) error {
	if len(deltas) == 0 {
		return nil
	}
	said := map[session.PartKind]string{}
	var calls []*callDeltas
	for i, d := range deltas {
		switch d.Kind {
		case llm.DeltaText:
			said[session.PartText] += d.Text
		case llm.DeltaReasoning:
			said[session.PartReasoning] += d.Text
		case llm.DeltaCallStart:
			if d.Index != len(calls) || d.Tool == "" {
				return fmt.Errorf("delta %d starts call %d of %q where call %d is due", i, d.Index, d.Tool, len(calls))
			}
			calls = append(calls, &callDeltas{tool: d.Tool})
		case llm.DeltaCallArgs, llm.DeltaCallEnd:
			if d.Index < 0 || d.Index >= len(calls) || calls[d.Index].ended {
				return fmt.Errorf("delta %d (%s) is of call %d, which is not open", i, d.Kind, d.Index)
			}
			calls[d.Index].args.WriteString(d.Text)
			calls[d.Index].ended = d.Kind == llm.DeltaCallEnd
		default:
			return fmt.Errorf("delta %d is of the unknown kind %q", i, d.Kind)
		}
	}
	for _, kind := range []session.PartKind{session.PartText, session.PartReasoning} {
		var want strings.Builder
		for i := range parts {
			if parts[i].Kind == kind {
				want.WriteString(parts[i].Text)
			}
		}
		if got := said[kind]; got != want.String() && got != "" {
			return fmt.Errorf("the deltas of %s join to %q, the parts to %q", kind, got, want.String())
		}
	}
	return matchCalls(calls, parts)
}

// callDeltas is what was streamed of a call.
type callDeltas struct {
	tool  string
	args  strings.Builder
	ended bool
}

func matchCalls(calls []*callDeltas, parts []session.Part) error {
	if len(calls) == 0 {
		return nil
	}
	n := 0
	for i := range parts {
		if parts[i].Kind != session.PartToolCall {
			continue
		}
		if n == len(calls) {
			return fmt.Errorf("call %d was not streamed", n)
		}
		c := calls[n]
		if c.tool != parts[i].Tool || !c.ended {
			return fmt.Errorf("call %d was streamed as %q, ended %v; the part is of %q", n, c.tool, c.ended, parts[i].Tool)
		}
		if args := c.args.String(); args != "" && !sameJSON([]byte(args), parts[i].Input) {
			return fmt.Errorf("the arguments of call %d were streamed as %q, the part has %q", n, args, parts[i].Input)
		}
		n++
	}
	if n != len(calls) {
		return fmt.Errorf("%d calls were streamed, the reply has %d", len(calls), n)
	}
	return nil
}
