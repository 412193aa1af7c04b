package main

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
)

// floor is the least that any design could do with the same facts: it writes the
// rows of a commit in one durable transaction and one round trip, with prepared
// statements, no checks and no logic.
type floor interface {
	// begin makes a session to write to.
	begin(ctx context.Context, id string) error
	// reply and results are the two commits of a step whose call has an effect, each
	// with its chunks. The second may write custom state, too. Steps of a session count
	// from 0.
	reply(ctx context.Context, id string, n int) error
	results(ctx context.Context, id string, n int, growing bool) error
	// whole is the one commit of a step whose calls have no effect, with its chunks.
	whole(ctx context.Context, id string, n int) error
	// both is the same commit without chunks.
	both(ctx context.Context, id string, n int) error
	// bare is a durable transaction that changes one row.
	bare(ctx context.Context, id string, n int) error
	Close() error
}

// floorStep performs the commits of a step.
func floorStep(ctx context.Context, f floor, id string, n int, of work) error {
	if of == reading {
		return f.whole(ctx, id, n)
	}
	growing := of == growingState
	if err := f.reply(ctx, id, n); err != nil {
		return err
	}
	return f.results(ctx, id, n, growing)
}

// Names as long as those of the benchmarks' sessions.
const (
	floorRun  = "run_06gxtm3jvmftg2p8j98xr4hc6w"
	floorCall = "call_5fa839b497ea10dd46d6f095"
)

// floorWrites is what a step does to growing state, floorCalls the calls of its
// reply.
var (
	floorWrites = []byte(`{"ops":[{"kind":"append","key":"items","items":["an item of the list, some forty bytes long"]}]}`)
	floorCalls  = []byte(`["` + floorCall + `"]`)
)

// names are those of a step's rows.
type names struct{ message, result, checkpoint, model, commit string }

func namesOf(n int) names {
	at := strconv.Itoa(n)
	message := floorRun + "/" + at
	return names{
		message: message, result: floorCall[:len(floorCall)-1-len(at)] + "-" + at + ".r", checkpoint: "cpv1-s-1-s" + at + "-t1794714399461-c37189",
		model: message + "/model", commit: message + "/commit",
	}
}

// payload is the rows' content, of the size that the benchmarks' steps have.
type payload struct {
	assistant, tool, call     []byte
	replyChunks, resultChunks [][]byte
	wholeChunks               [][]byte // both
	patch                     []byte   // the further chunk of a result that changes state
}

func newPayload() payload {
	now := time.Now()
	part := session.Part{
		Kind: session.PartToolCall, CallID: floorCall, ProviderCallID: "call_1", Tool: "work", Input: json.RawMessage(`{"n":1}`),
	}
	assistant := session.Message{
		ID: floorRun + "/1", Role: session.RoleAssistant, Parts: []session.Part{session.Text(text), part},
		RunID: floorRun, Step: 1, At: now,
	}
	tool := session.ToolResult(part, json.RawMessage(`"`+text+`"`))
	tool.RunID, tool.Step, tool.At = floorRun, 1, now
	chunk := func(kind stream.Kind) stream.Chunk {
		return stream.Chunk{Kind: kind, AgentID: "s-1", AgentType: "bench", At: now, Step: 1, RunID: floorRun}
	}
	committed, started, delta := chunk(stream.StepCommitted), chunk(stream.StepStarted), chunk(stream.TextDelta)
	start, end, patch := chunk(stream.ToolStart), chunk(stream.ToolEnd), chunk(stream.StatePatch)
	committed.MessageID, committed.CheckpointID = assistant.ID, namesOf(1).checkpoint
	started.MessageID, started.Attempt = assistant.ID, 1
	delta.Delta = text
	start.CallID, start.Tool, start.Arguments = floorCall, "work", part.Input
	end.CallID, end.Tool, end.Result, end.Success = floorCall, "work", json.RawMessage(`"`+text+`"`), true
	patch.Patches = []session.Patch{{Op: "add", Path: "/items/-", Value: json.RawMessage(`"an item of the list, some forty bytes long"`)}}
	p := payload{
		assistant: must(session.Encode(&assistant)),
		tool:      must(session.Encode(&tool)),
		call: must(session.Encode(&session.Call{
			MessageID: assistant.ID, ID: floorCall, Tool: "work", Kind: session.CallServer,
		})),
		replyChunks:  [][]byte{must(committed.Encode()), must(started.Encode()), must(delta.Encode()), must(start.Encode())},
		resultChunks: [][]byte{must(end.Encode())},
		patch:        must(patch.Encode()),
	}
	p.wholeChunks = slices.Concat(p.replyChunks, p.resultChunks)
	return p
}

func must(raw []byte, err error) []byte {
	if err != nil {
		panic(err) // the payload is fixed
	}
	return raw
}

// chunks are those of a step's result.
func (p *payload) chunks(growing bool) [][]byte {
	if growing {
		return append(p.resultChunks[:1:1], p.patch)
	}
	return p.resultChunks
}

// lines puts chunks together as a stream's row has them.
func lines(chunks [][]byte) []byte { return bytes.Join(chunks, []byte{'\n'}) }

// beginSession has a backend make a session with a run, and its stream: the rows
// that commits and appends then change.
func beginSession(ctx context.Context, db store.Backend, id string) (*session.Started, error) {
	started, err := db.Sessions().StartRun(ctx, &session.StartRun{
		SessionID: id, Create: &session.State{ID: id, Agent: "bench", StreamID: id, Status: session.Active},
		Run: session.Run{ID: "run-" + id, Kind: session.RunExecute, Status: session.RunRunning, Runtime: local.Name}, Owner: "bench",
	})
	if err != nil {
		return nil, err
	}
	_, err = db.Streams().Reactivate(ctx, id, stream.Producer{Session: id, Epoch: started.Lease.Epoch, RunID: "run-" + id})
	return started, err
}
