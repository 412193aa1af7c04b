package stored

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

func TestCallKeepsBytes(t *testing.T) {
	t.Parallel()
	result := session.ToolResult(session.Part{CallID: "c", Tool: "t"}, []byte(`{"b" : 1,  "a":2}`))
	call := session.Call{
		MessageID: "m", ID: "c", Tool: "t", Status: session.CallSettled, BegunAt: time.Unix(1, 0).UTC(), Result: &result,
		Writes: session.Writes{
			Ops: []session.Op{
				{Kind: session.OpReplace, Key: "k\"<", Value: json.RawMessage(`{ "x":1 }`)},
				{Kind: session.OpAppend, Key: "l", Items: []json.RawMessage{[]byte(`1`), []byte(`2`)}},
				{Kind: session.OpDelete, Key: "d"},
			},
			Warnings: []string{"w"},
		},
	}
	row, err := EncodeCall(&call, func(c *session.Call) { c.Status, c.BegunAt = "", time.Time{} })
	if err != nil {
		t.Fatal(err)
	}
	got, err := row.Decode("s", "c")
	if err != nil || got.Status != "" || !got.BegunAt.IsZero() {
		t.Fatalf("got %+v, %v", got, err)
	}
	got.Status, got.BegunAt = call.Status, call.BegunAt
	if string(got.Writes.Ops[0].Value) != `{ "x":1 }` {
		t.Errorf("a value came back as %s", got.Writes.Ops[0].Value)
	}
	again, err := EncodeCall(&got, func(c *session.Call) { c.Status, c.BegunAt = "", time.Time{} })
	if err != nil || !reflect.DeepEqual(again, row) {
		t.Errorf("encoded again it is %s, %v\nnot %s", again, err, row)
	}
	if none, err := EncodeCall(&session.Call{ID: "c"}, func(*session.Call) {}); err != nil || none.Result != nil || none.Writes != nil {
		t.Errorf("a call without a result is %+v, %v", none, err)
	}
}

func TestPendingKeepsBytes(t *testing.T) {
	t.Parallel()
	entry := session.Pending{
		CallID: "c", State: session.PendingAnswered, Input: []byte(`{ "a":1}`),
		Response: &session.Response{Result: []byte(`{ "r":1}`)}, Late: &session.Response{Result: []byte(` 2`)},
	}
	row, err := EncodePending(&entry, func(*session.Pending) {})
	if err != nil {
		t.Fatal(err)
	}
	if string(entry.Response.Result) != `{ "r":1}` {
		t.Error("encoding has changed the entry")
	}
	got, err := row.Decode("s", "c")
	if err != nil || !reflect.DeepEqual(*got, entry) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, entry)
	}
}

func TestDocument(t *testing.T) {
	t.Parallel()
	for name, state := range map[string]session.State{
		"nothing": {ID: "s"},
		"all": {
			ID: "s", Error: session.ErrInternal.WithMessage("x"), FailureReason: "r", Interrupt: &session.InterruptContext{Reason: "i"},
			SuspendedStep: "m", Output: []byte(`{ "o":1}`), Mode: "x", WorkspaceRef: []byte(`1`), Tracing: &session.TracingContext{TraceID: "t"},
		},
	} {
		row, err := EncodeDocument(&state)
		if err != nil {
			t.Fatal(err)
		}
		got := session.State{ID: "s"}
		if err := row.Fill(&got); err != nil {
			t.Fatal(err)
		}
		if string(got.Output) != string(state.Output) || got.FailureReason != state.FailureReason || got.SuspendedStep != state.SuspendedStep ||
			(got.Error == nil) != (state.Error == nil) || (got.Interrupt == nil) != (state.Interrupt == nil) ||
			(got.Tracing == nil) != (state.Tracing == nil) || string(got.WorkspaceRef) != string(state.WorkspaceRef) || got.Mode != state.Mode {
			t.Errorf("%s: got %+v, want %+v", name, got, state)
		}
		if (row.Ending == nil) != (state.Error == nil) {
			t.Errorf("%s: the ending is %q", name, row.Ending)
		}
	}
}

func TestBatchRow(t *testing.T) {
	t.Parallel()
	at := time.Unix(9, 0).UTC()
	chunks, err := EncodeBatch("s", &stream.Batch{First: 1, Chunks: []stream.Chunk{
		{Kind: stream.TextDelta, Delta: "a", At: time.Unix(5, 0).UTC()}, {Kind: stream.Rewound},
	}}, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	row := NewBatchRow(7, 8, at, Join(chunks).Body)
	if err := row.Check("s"); err != nil {
		t.Fatal(err)
	}
	var sequences []int64
	for sequence, line := range row.After(7) {
		item, err := DecodeChunk("s", sequence, line)
		if err != nil || item.Frame != stream.FrameRewound {
			t.Errorf("chunk %d: %+v, %v", sequence, item, err)
		}
		sequences = append(sequences, sequence)
	}
	if len(sequences) != 1 || sequences[0] != 8 {
		t.Errorf("after 7 come %v", sequences)
	}
	if got := row.Time("s", 7); !got.Equal(time.Unix(5, 0)) {
		t.Errorf("the time of a chunk that has one is %s", got)
	}
	if got := row.Time("s", 8); !got.Equal(at) {
		t.Errorf("the time of a chunk without one is %s", got)
	}
	damaged := NewBatchRow(7, 9, at, []byte("x"))
	if damaged.Check("s") == nil || !damaged.Time("s", 9).Equal(at) {
		t.Error("a damaged batch is accepted, or has no time")
	}
}
