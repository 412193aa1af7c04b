// Interrupt: stop a run in the middle of a reply and resume it later.
//
// An interrupt is durable and works from any process. The session keeps the part of
// the reply that the user saw, and marks it as interrupted. Another runtime then
// resumes the session, as a process does after a restart.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/sqlite"
	"github.com/helixagents/helix/stream"
)

const storyID = "story"

// narrator does not end its first reply until it is stopped.
var narrator = &helix.Agent{
	Name: "narrator",
	Model: scripted.New(
		scripted.Reply(scripted.Say("Once upon a time there was "), scripted.Until(nil)).WithPieceSize(100),
		scripted.Text("a compass that pointed south."),
	),
}

func main() {
	dir, err := os.MkdirTemp("", "helix-interrupt-")
	check(err)
	defer func() { _ = os.RemoveAll(dir) }()
	ctx := context.Background()
	path := filepath.Join(dir, "helix.db")
	tell(ctx, path)
	resume(ctx, path)
}

// tell starts the story and interrupts it after the first text.
func tell(ctx context.Context, path string) {
	db, rt := open(path)
	defer db.Close()
	defer rt.Shutdown(ctx)
	run, err := rt.Execute(ctx, narrator, helix.Input{SessionID: storyID, Message: helix.UserText("Tell me a story.")})
	check(err)
	heard := ""
	for item, err := range run.Stream(ctx) {
		check(err)
		if item.Chunk == nil || item.Chunk.Kind != stream.TextDelta {
			continue
		}
		if heard == "" {
			check(rt.Interrupt(ctx, storyID, "the user pressed stop"))
		}
		heard += item.Chunk.Delta
	}
	res, err := run.Result(ctx)
	check(err)
	fmt.Printf("heard %q, then the run was %s\n", heard, res.Status)
}

// resume continues the story. It needs only the database.
func resume(ctx context.Context, path string) {
	db, rt := open(path)
	defer db.Close()
	defer rt.Shutdown(ctx)
	state, err := rt.Sessions().Get(ctx, storyID)
	check(err)
	fmt.Printf("the session is %s, because %s\n", state.Status, state.Interrupt.Reason)
	run, err := rt.Resume(ctx, storyID, helix.ResumeOptions{})
	check(err)
	res, err := run.Result(ctx)
	check(err)
	fmt.Printf("resumed: the run is %s\n\n", res.Status)
	messages, err := rt.Sessions().Messages(ctx, storyID, session.PageRequest{})
	check(err)
	for _, m := range messages.Items {
		fmt.Printf("%-9s %s%s\n", m.Role, m.Content(), marks(&m))
	}
}

func marks(m *session.Message) string {
	switch {
	case m.Hidden():
		return "   (hidden: only the model sees it)"
	case m.Metadata[session.MetaInterrupted] != nil:
		return "   (interrupted)"
	}
	return ""
}

func open(path string) (*sqlite.Backend, *local.Runtime) {
	db, err := sqlite.Open(path)
	check(err)
	rt, err := local.New(local.Config{Backend: db, Agents: []*helix.Agent{narrator}})
	check(err)
	return db, rt
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
