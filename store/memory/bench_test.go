package memory

import (
	"fmt"
	"testing"

	"github.com/helixagents/helix/session"
)

// BenchmarkCommit measures a step's results commit on sessions of different
// lengths: the cost must be the same for all.
func BenchmarkCommit(b *testing.B) {
	for _, length := range []int{10, 1000, 100_000} {
		b.Run(fmt.Sprint(length), func(b *testing.B) {
			be := New(Config{})
			defer be.Close()
			ctx, s := b.Context(), be.Sessions()
			started, err := s.StartRun(ctx, &session.StartRun{
				SessionID: "a", Create: &session.State{ID: "a", Agent: "tester", Status: session.Active},
				Run: session.Run{ID: "r"}, Owner: "me",
			})
			if err != nil {
				b.Fatal(err)
			}
			version := started.Version
			step := func(i int) {
				call := session.Part{Kind: session.PartToolCall, CallID: fmt.Sprintf("c%d", i), Tool: "tool", Input: raw(`{"a":1}`)}
				out, err := s.Commit(ctx, &session.Commit{
					SessionID: "a", RunID: "r", Key: fmt.Sprint(i), Version: version, Fence: started.Lease.Fence(),
					Change: session.Change{
						Messages: []session.Message{
							{ID: fmt.Sprintf("m%d", i), Role: session.RoleAssistant, Parts: []session.Part{session.Text("so"), call}},
							session.ToolResult(call, raw(`{"ok":true}`)),
						},
						Writes:     push("list", raw(`{"step":%d}`, i)),
						StepCount:  new(i),
						Checkpoint: &session.NewCheckpoint{ID: fmt.Sprintf("cp%d", i), Step: i, Source: session.FromStep},
					},
				})
				if err != nil {
					b.Fatal(err)
				}
				version = out.Version
			}
			for i := range length {
				step(i)
			}
			b.ReportAllocs()
			n := length
			for b.Loop() {
				step(n)
				n++
			}
		})
	}
}
