package enginetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
)

// StablePrefix requires that the requests of a turn begin with the same bytes: what a
// provider's cache knows of one is the beginning of the next. The turn has twelve steps, is
// taken over in the middle, and resumes after an approval; its agent has an extension that
// adds a message, and one that keeps its tools in a map, and evicts a large result.
func StablePrefix(t *testing.T, open Open) {
	ctx := testContext(t)
	steps := make([]scripted.Step, 0, 13)
	for range 10 {
		steps = append(steps, scripted.Reply(scripted.Calling("look", subject{"a"}), scripted.Calling("tool-7", subject{"b"})))
	}
	steps = append(steps, scripted.Call("print", subject{"d"}), scripted.Call("sign", subject{"c"}), scripted.Text("That is all."))
	w := newWorld(t, open(t), scenario{steps: steps, ledger: true, evicts: true, people: schedule{[]string{"sign"}, atOnce}})
	toolbox := &toolbox{tools: map[string]helix.Tool{}}
	for _, name := range []string{"tool-1", "tool-2", "tool-3", "tool-4", "tool-5", "tool-6", "tool-7", "tool-8"} {
		tool := w.tool(name)
		tool.ReadOnly = true
		toolbox.tools[name] = tool
	}
	w.agent.Extensions = append(w.agent.Extensions, toolbox)
	p := w.process(w.backend)
	left := 17 // effects until the process dies, between two steps
	if err := w.play(ctx, p, p, func(machine.Effect, machine.Result) bool { left--; return left > 0 }); !errors.Is(err, errKilled) {
		t.Fatalf("the first process ended with %v", err)
	}
	p.kill()
	w.finish(ctx)
	requests := w.model.Requests()
	if len(requests) < len(steps) {
		t.Fatalf("the model was asked %d times", len(requests))
	}
	fixed, sent := prefixOf(t, &requests[0])
	for i := range requests[1:] {
		same, longer := prefixOf(t, &requests[i+1])
		if !bytes.Equal(same, fixed) {
			t.Errorf("instructions and tools of request %d are\n%s\nbut were\n%s", i+2, same, fixed)
		}
		if !bytes.HasPrefix(longer, sent) {
			t.Errorf("request %d does not begin with the messages of the one before:\n%s\n%s", i+2, longer, sent)
		}
		sent = longer
	}
}

// checkRequests requires that a step is asked for with the same instructions, tools and
// choice of them in every attempt and every process.
func (w *world) checkRequests() {
	w.t.Helper()
	asked := map[string]string{}
	for _, r := range w.model.Requests() {
		fixed, _ := prefixOf(w.t, &r)
		step, got := fmt.Sprint(r.SessionID, " ", r.RunID, " ", r.Step), fmt.Sprintf("%s %+v", fixed, r.ToolChoice)
		if before, ok := asked[step]; ok && before != got {
			w.t.Errorf("the model was asked for step %s with\n%s\nand then with\n%s", step, before, got)
		}
		asked[step] = got
	}
}

// prefixOf encodes what is the same in all requests of a turn, and the messages.
func prefixOf(t *testing.T, r *llm.Request) (fixed, messages []byte) {
	t.Helper()
	fixed, err := json.Marshal([]any{r.Instructions, r.Tools})
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Messages {
		if messages, err = r.Messages[i].AppendJSON(messages); err != nil {
			t.Fatal(err)
		}
	}
	return fixed, messages
}

// toolbox is an extension that keeps its tools in a map.
type toolbox struct{ tools map[string]helix.Tool }

// Name implements [helix.Extension].
func (b *toolbox) Name() string { return "toolbox" }

// Attach implements [helix.Extension].
func (b *toolbox) Attach(context.Context, *helix.Turn) (*helix.Attachment, error) {
	out := &helix.Attachment{Instructions: "Tools of the box:"}
	for _, name := range slices.Sorted(maps.Keys(b.tools)) {
		out.Instructions += " " + name
		out.Tools = append(out.Tools, b.tools[name])
	}
	return out, nil
}
