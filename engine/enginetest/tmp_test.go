package enginetest

import (
	"fmt"
	"testing"

	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/memory"
)

func TestTmp(t *testing.T) {
	open := func(t *testing.T) store.Backend { return memory.New(memory.Config{}) }
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			ctx := testContext(t)
			w := newWorld(t, open(t), s)
			h := w.handler(w.backend)
			n := 0
			if _, err := drive(ctx, h, w.open(ctx, h), func(engine.Effect, engine.Result) bool { n++; return true }); err != nil {
				t.Fatal(err)
			}
			want := w.inspect(ctx)
			for k := 0; k <= n; k++ {
				t.Run(fmt.Sprint("after ", k), func(t *testing.T) {
					ctx := testContext(t)
					w := newWorld(t, open(t), s)
					h := w.handler(w.backend)
					o := w.open(ctx, h)
					k := k
					if k > 0 {
						drive(ctx, h, o, func(engine.Effect, engine.Result) bool { k--; return k > 0 })
					}
					h.Drop(runID)
					unchanged := w.prefix(ctx)
					w.finish(ctx)
					unchanged()
					w.sameTurn(w.inspect(ctx), want)
				})
			}
		})
	}
}

func TestRe(t *testing.T) {
	Redelivery(t, func(t *testing.T) store.Backend { return memory.New(memory.Config{}) })
}
