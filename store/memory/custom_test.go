package memory

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/helixagents/helix/session"
)

// raw returns a value that nobody else references.
func raw(format string, args ...any) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(format, args...))
}

func push(key string, item json.RawMessage) session.Writes {
	return session.Writes{Ops: []session.Op{{Kind: session.OpAppend, Key: key, Items: []json.RawMessage{item}}}}
}

func encode(t *testing.T, d session.CustomState) string {
	t.Helper()
	out, err := d.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// Every version returns the state that it marked, whatever is written later, and
// the maintained sizes equal those of the document.
func TestVersionsGiveBackWhatTheyMarked(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	c := newCustom(session.CustomState{})
	var versions []*version
	var want []string
	for i := range 2000 {
		key := fmt.Sprintf("k%d", r.IntN(8))
		op := session.Op{Kind: session.OpReplace, Key: key, Value: raw(`[%d]`, i)}
		switch r.IntN(10) {
		case 0:
			op = session.Op{Kind: session.OpDelete, Key: key}
		case 1, 2, 3, 4, 5, 6:
			op = push(key, raw(`"item %d"`, i)).Ops[0]
		}
		if err := c.apply(session.Writes{Ops: []session.Op{op}}); err != nil {
			t.Fatal(err)
		}
		if r.IntN(3) > 0 {
			versions = append(versions, c.mark())
			want = append(want, encode(t, c.doc))
		}
		if size := c.doc.Size(); c.size != size {
			t.Fatalf("after %d operations the size is counted as %d, it is %d", i+1, c.size, size)
		}
	}
	for i, v := range versions {
		if got := encode(t, v.document()); got != want[i] {
			t.Fatalf("version %d: got %s, want %s", i, got, want[i])
		}
	}
}

// A state that grows by one item per step must not be copied at every step, and
// restoring a checkpoint must not replay the whole history.
func TestVersionsCostWhatIsWritten(t *testing.T) {
	t.Parallel()
	const steps = 4096
	c := newCustom(session.CustomState{})
	whole := 0
	for i := range steps {
		if err := c.apply(push("list", raw(`{"step":%d}`, i))); err != nil {
			t.Fatal(err)
		}
		if c.mark().whole != nil {
			whole++
		}
	}
	if whole > 24 { // it doubles in size 12 times
		t.Errorf("%d of %d checkpoints have the whole state", whole, steps)
	}
	if c.chain > c.size {
		t.Errorf("restoring a checkpoint performs %d bytes of operations on a state of %d", c.chain, c.size)
	}
}

// A step without writes adds nothing.
func TestVersionsAreShared(t *testing.T) {
	t.Parallel()
	c := newCustom(session.CustomState{})
	if err := c.apply(push("list", raw(`1`))); err != nil {
		t.Fatal(err)
	}
	if first, second := c.mark(), c.mark(); first != second {
		t.Error("two checkpoints of the same state have two versions")
	}
}
