package enginetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/session"
)

// evictions is how many blobs the turn with large results puts if it is not interrupted.
const evictions = 7

// evicting is a policy that evicts the results of these tools.
func evicting() *helix.ContextPolicy {
	return &helix.ContextPolicy{
		TriggerMessages: helix.Unlimited, TriggerTokens: helix.Unlimited, TriggerFraction: helix.Unlimited, EvictOver: 1000,
	}
}

// large are the tools that have large results.
var large = map[string]bool{"dump": true, "print": true, "issue": true}

// lineBytes is the length of a line of a flood.
const lineBytes = 1000

// partBytes is the size of the parts in which a result of a few megabytes is evicted.
const partBytes = 1 << 20

// flood is a result of more than 16 MiB, which is evicted in 17 parts.
func flood() string {
	var out strings.Builder
	for i := range 16*partBytes/lineBytes + 1000 {
		fmt.Fprintf(&out, "%0*d\n", lineBytes-1, i+1)
	}
	return out.String()
}

// SeveralBlobs requires that a large result is evicted in several blobs, and that a model reads
// it across their borders.
func SeveralBlobs(t *testing.T, open Open) {
	whole := flood()
	id := func(r *llm.Request) string { return r.Messages[2].Evicted().ID }
	border := partBytes/lineBytes + 1 // the line in which the first blob ends
	offset := partBytes - 100
	w := newWorld(t, open(t), scenario{evicts: true, steps: []scripted.Step{
		scripted.Call("flood", subject{"a"}),
		scripted.Func(func(r *llm.Request) scripted.Step {
			return scripted.Reply(scripted.Calling(helix.ReadResultTool, map[string]any{"id": id(r), "from": border, "lines": 2}),
				scripted.Calling(helix.ReadResultTool, map[string]any{"id": id(r), "offset": offset, "bytes": 200}),
				scripted.Calling(helix.ReadResultTool, map[string]any{"id": id(r), "from": len(whole) / lineBytes}))
		}),
		scripted.Text("That is all."),
	}})
	tool := w.tool("flood")
	tool.ReadOnly = true
	tool.Execute = helix.RawFunc([]byte(`{"type":"object","additionalProperties":true}`), func(context.Context, *helix.Call, json.RawMessage) (json.RawMessage, error) {
		return session.AppendString(nil, whole), nil
	})
	w.agent.Tools = append(w.agent.Tools, tool)
	ctx := testContext(t)
	p := w.process(w.backend)
	if err := w.play(ctx, p, p, nil); err != nil {
		t.Fatal(err)
	}
	messages, err := w.sessions().AllMessages(ctx, sessionID)
	if err != nil {
		t.Fatal(err)
	}
	about := messages[2].Evicted()
	if about == nil || len(about.Blobs) != 17 || about.Bytes != int64(len(whole)) || about.Lines != int64(len(whole)/lineBytes) {
		t.Fatalf("the result is evicted as %+v: %v", about, messages[2].Parts[0].Error)
	}
	var stored []byte
	for _, ref := range about.Blobs {
		part, err := w.backend.Blobs().Tenant(w.tenant).Get(ctx, sessionID, ref)
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, part...)
	}
	if !bytes.Equal(stored, []byte(whole)) {
		t.Errorf("the blobs have %d bytes, which are not those of the result", len(stored))
	}
	for i, want := range []string{
		whole[(border-1)*lineBytes : (border+1)*lineBytes], whole[offset : offset+200], whole[len(whole)-lineBytes:],
	} {
		if _, got, _ := strings.Cut(messages[4+i].Parts[0].Text, ".]\n\n"); got != want {
			t.Errorf("read %d is %.300q, want %.300q", i+1, messages[4+i].Parts[0].Text, want)
		}
	}
}

// report is the result of such a tool.
func report(tool, what string) string {
	var out strings.Builder
	for i := range 100 {
		fmt.Fprintf(&out, "%s done: %s, line %d\n", tool, what, i+1)
	}
	return out.String()
}

// reading are the arguments with which the model reads the result of such a tool.
func reading(tool, what, from string, at int) map[string]any {
	return map[string]any{"id": blob.Digits(blob.RefOf([]byte(report(tool, what)))), from: at}
}
