package chaos

import (
	"testing"
	"time"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/runtime/dbos"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/runtime/temporal"
)

// TestServerVanishes has the store's server go away without a word while 40 runs write to it: their connections stay open, and
// nothing arrives on them any more. New connections reach a server. All runs end, and a new one, within three times the limit of
// a call.
func TestServerVanishes(t *testing.T) {
	t.Parallel()
	const limit = 15 * time.Second // the default of store/postgres; the one of Redis is shorter
	turn := 0
	for _, k := range kinds() {
		for _, runtime := range []string{local.Name, dbos.Name, temporal.Name} {
			if k.name != "postgres" && runtime != local.Name {
				continue
			}
			if turn++; !takesPart(t, turn-1) {
				continue
			}
			t.Run(k.name+"/"+runtime, func(t *testing.T) {
				t.Parallel()
				o := newOutages(t, k)
				start := o.starter(runtime)
				system, _ := o.engineAddresses(runtime)
				rt := start(system)
				for i := range longCalls {
					o.execute(rt, payer(i))
				}
				for range o.runs {
					eventually.Receive(t, "a call begins", o.entered)
				}
				close(o.long)
				o.proxy.Vanish()
				began := time.Now()
				o.execute(rt, "new")
				for i, run := range o.runs {
					if res, err := run.Result(eventually.Context(t)); err != nil || res.Status != helix.Completed {
						t.Errorf("run %d: %+v, %v", i, res, err)
					}
				}
				took := time.Since(began) // waits: three limits are what is promised
				t.Logf("all was done after %s", took.Round(time.Millisecond))
				if took > 3*limit {
					t.Errorf("all was done after %s", took)
				}
				if sum := o.count(); sum != (damage{}) {
					t.Errorf("%+v", sum)
				}
			})
		}
	}
}
