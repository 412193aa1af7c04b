package storetest

import (
	"fmt"
	"testing"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// Benchmarks measures the costs of a turn on a backend: a commit, a step of two
// commits with a claim and a settle between, reading a session, and a stream chunk
// from append to durable.
func Benchmarks(b *testing.B, open Open) {
	for _, c := range []struct {
		name string
		run  func(b *testing.B, t *bed)
	}{
		{"commit", benchCommit},
		{"commit-parallel", benchCommitParallel},
		{"step", benchStep},
		{"load", benchLoad},
		{"messages", benchMessages},
		{"append", benchAppend},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			c.run(b, newSuite(b, open).bed(b, 0))
		})
	}
}

// typical returns a step's change: a reply, a state write, a checkpoint.
func typical(n int) session.Change {
	change := step(n, fmt.Sprintf("cp-%d", n), reply(fmt.Sprintf("m%d", n)))
	change.Writes = put("k", fmt.Sprint(n))
	return change
}

func benchCommit(b *testing.B, t *bed) {
	r := t.running("a")
	for n := 1; b.Loop(); n++ {
		r.commit(typical(n))
	}
}

func benchCommitParallel(b *testing.B, t *bed) {
	turns := make(chan *turn, 64)
	for i := range cap(turns) {
		turns <- t.running(fmt.Sprintf("s%d", i))
	}
	b.ResetTimer()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r := <-turns
			out, err := t.store().Commit(b.Context(), r.request(session.Change{Messages: []session.Message{reply(fmt.Sprintf("m%d", r.commits))}}))
			if err != nil {
				b.Errorf("commit: %v", err)
				return
			}
			r.version = out.Version
			r.commits++
			turns <- r
		}
	})
}

func benchStep(b *testing.B, t *bed) {
	r := t.running("a")
	for n := 1; b.Loop(); n++ {
		message, callID := fmt.Sprintf("m%d", n), fmt.Sprintf("c%d", n)
		begun := call(message, callID, 0)
		begun.Status = session.CallBegun
		r.commit(session.Change{Messages: []session.Message{reply(message, callID)}, Calls: []session.Call{begun}, StepCount: new(n)})
		answer := result(callID, `{"ok":true}`)
		change := step(n, fmt.Sprintf("cp-%d", n))
		change.Writes = push("list", fmt.Sprint(n%10))
		change.Promote = &session.Promotion{MessageID: message, Results: []session.Promoted{{CallID: callID, Message: &answer}}}
		r.commit(change)
	}
}

// long creates a session of 200 steps.
func (t *bed) long(id string) {
	t.Helper()
	r := t.running(id)
	for n := 1; n <= 200; n++ {
		change := typical(n)
		change.Writes = push("list", fmt.Sprintf(`{"step":%d}`, n))
		r.commit(change)
	}
}

func benchLoad(b *testing.B, t *bed) {
	t.long("a")
	for b.Loop() {
		if _, err := t.store().Load(b.Context(), "a"); err != nil {
			b.Fatal(err)
		}
	}
}

func benchMessages(b *testing.B, t *bed) {
	t.long("a")
	for b.Loop() {
		if _, err := t.store().AllMessages(b.Context(), "a"); err != nil {
			b.Fatal(err)
		}
	}
}

func benchAppend(b *testing.B, t *bed) {
	p := producer("a", 1)
	t.open("a", p)
	for n := int64(1); b.Loop(); n++ {
		out, err := t.streams().Append(b.Context(), "a", stream.Batch{Producer: p, First: n, Chunks: []stream.Chunk{text("a few words of text")}})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := out.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
