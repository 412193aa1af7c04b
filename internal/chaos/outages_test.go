package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	goredis "github.com/redis/go-redis/v9"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/backend"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/faultproxy"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/llm/scripted"
	"github.com/helixagents/helix/runtime/dbos"
	"github.com/helixagents/helix/runtime/local"
	"github.com/helixagents/helix/runtime/temporal"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

const (
	longCalls  = 40 // calls of one process that are under way before the outage and after it
	shortCalls = 4  // that end while it lasts
	idlers     = 4  // processes that could take over
	lockedRows = 18
	// contact is how long processes know the store before it goes away: each may then
	// recover runs at once. A death is judged within settling after the store is back.
	contact  = 7 * time.Second
	settling = 10 * time.Second
)

// outage is a way for a store, or the workflow engine, to be away.
type outage struct {
	name  string
	lasts time.Duration
	begin func(o *outages) (end func())
	only  string // the kind of store, or the runtime; "" is every one
}

func outageList() []outage {
	killed := func(o *outages) func() { o.server.Kill(); return o.server.Start }
	paused := func(o *outages) func() { o.server.Pause(); return o.server.Resume }
	slow := func(o *outages) func() { o.proxy.Delay(time.Second); return o.proxy.Pass }
	cut := func(o *outages) func() { o.proxy.Refuse(); o.proxy.Reset(); return o.proxy.Pass }
	vanished := func(o *outages) func() { o.proxy.Vanish(); return func() {} }
	return []outage{
		{"killed for 7 s", 7 * time.Second, killed, ""},
		{"killed for 20 s", 20 * time.Second, killed, ""},
		{"paused for 7 s", 7 * time.Second, paused, ""},
		{"paused for 20 s", 20 * time.Second, paused, ""},
		{"connections cut for 7 s", 7 * time.Second, cut, ""},
		{"connections cut for 20 s", 20 * time.Second, cut, ""},
		{"vanished, another server answers", 7 * time.Second, vanished, ""},
		{"round trips of 2 s for 12 s", 12 * time.Second, slow, ""},
		{"writes refused for 20 s", 20 * time.Second, (*outages).refuseWrites, ""},
		{"18 rows locked for 12 s", 12 * time.Second, (*outages).lockRows, "postgres"},
		{"engine paused for 7 s", 7 * time.Second, (*outages).pauseEngine, temporal.Name},
		{"engine paused for 20 s", 20 * time.Second, (*outages).pauseEngine, temporal.Name},
		{"holder cut off from the engine for 7 s", 7 * time.Second, (*outages).cutHolderOff, temporal.Name},
		{"holder cut off from the engine for 20 s", 20 * time.Second, (*outages).cutHolderOff, temporal.Name},
		{"holder unheard by the engine for 7 s", 7 * time.Second, (*outages).silenceHolder, temporal.Name},
		{"holder unheard by the engine for 20 s", 20 * time.Second, (*outages).silenceHolder, temporal.Name},
	}
}

// TestOutages takes the store, or the workflow engine, away from a process with calls that may not run again, beside
// idle ones that could take its runs over, and from one that is alone. No call is cancelled or
// told as unknown, and no model is asked twice. One outage is tried with each commit; a long run
// tries all of them several times, and prints a table.
func TestOutages(t *testing.T) {
	t.Parallel()
	type trial struct {
		kind    kind
		runtime string
		others  int
		outage  outage
		times   int
	}
	var trials []trial
	for _, k := range kinds() {
		for _, o := range outageList() {
			for _, x := range []trial{
				{k, local.Name, idlers, o, 10}, {k, dbos.Name, idlers, o, 3}, {k, dbos.Name, 0, o, 3}, {k, temporal.Name, idlers, o, 3}, {k, temporal.Name, 0, o, 3},
			} {
				switch {
				case o.only != "" && o.only != k.name && o.only != x.runtime, o.only == temporal.Name && k.name != "postgres":
					continue
				case k.name != "postgres" && x.runtime != local.Name:
					x.times = 1
				case k.name != "postgres":
					x.times = 3
				}
				trials = append(trials, x)
			}
		}
	}
	var mu sync.Mutex // guards table
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "store\truntime\tprocesses\toutage\ttrials\tcalls\tcancelled\tunknown\tasked twice\ttaken over\tnot completed\tothers' leases expired")
	t.Run("trials", func(t *testing.T) {
		for i, x := range trials {
			if !testshare.HasTurn(t, i, len(trials)) {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s/%d others/%s", x.kind.name, x.runtime, x.others, x.outage.name), func(t *testing.T) {
				t.Parallel()
				if !testshare.Soak() {
					x.times = 1
				}
				var sum damage
				tried := 0
				for i := range x.times { // each with a server that ends with it
					t.Run(fmt.Sprint(i), func(t *testing.T) {
						tried++
						sum.add(tryOutage(t, x.kind, x.runtime, x.others, x.outage))
					})
				}
				if sum != (damage{}) {
					t.Errorf("%+v", sum)
				}
				mu.Lock()
				defer mu.Unlock()
				fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", x.kind.name, x.runtime, x.others+1, x.outage.name, tried,
					tried*(longCalls+shortCalls), sum.cancelled, sum.unknown, sum.askedTwice, sum.takenOver, sum.notCompleted, sum.expired)
			})
		}
	})
	fmt.Fprintln(w, "sqlite\tevery\tany\tall of these\tcannot be: the store is a file, and no server goes away")
	if err := w.Flush(); err != nil {
		t.Error(err)
	}
	t.Logf("\n%s", table.String())
}

// damage is what an outage may have done, in numbers of calls or runs.
type damage struct {
	cancelled, unknown, askedTwice, takenOver, notCompleted int
	expired                                                 int // leases of sessions that have nothing to do with it
}

func (d *damage) add(other damage) {
	d.cancelled += other.cancelled
	d.unknown += other.unknown
	d.askedTwice += other.askedTwice
	d.takenOver += other.takenOver
	d.notCompleted += other.notCompleted
	d.expired += other.expired
}

// outages is a store of the test's own, and a process whose calls wait.
type outages struct {
	t      *testing.T
	server *testserver.Server
	proxy  *faultproxy.Proxy
	engine *testserver.Server // nil if all trials share one
	schema string             // of DBOS
	// toEngine is between the process with the calls and its workflow engine.
	toEngine *faultproxy.Proxy
	agent    *helix.Agent
	model    *scripted.Model
	entered  chan struct{} // receives when a call begins
	short    chan struct{} // closed to end the calls that end in the outage
	long     chan struct{} // closed to end the others
	runs     []helix.Run
	log      journal

	cancelled atomic.Int64
	expired   map[string]bool // sessions that have nothing to do with the outage
}

func tryOutage(t *testing.T, k kind, runtime string, others int, fault outage) (sum damage) {
	t.Helper()
	o := newOutages(t, k)
	if fault.only == temporal.Name {
		o.engine = testserver.StartTemporal(t)
	}
	start := o.starter(runtime)
	system, ofHolder := o.engineAddresses(runtime)
	holder := start(ofHolder)
	for range others {
		start(system)
	}
	for i := range longCalls + shortCalls {
		o.execute(holder, payer(i))
	}
	for range o.runs {
		eventually.Receive(t, "a call begins", o.entered)
	}
	time.Sleep(contact) // waits: as long as processes know the store
	end := fault.begin(o)
	time.Sleep(fault.lasts / 2) // waits: the outage lasts as long as the trial says
	close(o.short)
	time.Sleep(fault.lasts / 2) // waits: the other half
	end()
	time.Sleep(settling) // waits: as long as somebody may judge wrongly
	close(o.long)
	return o.count()
}

func newOutages(t *testing.T, k kind) *outages {
	t.Helper()
	o := &outages{
		t: t, server: k.start(t), entered: make(chan struct{}, longCalls+shortCalls), expired: map[string]bool{},
		short: make(chan struct{}), long: make(chan struct{}), schema: fmt.Sprintf("dbos_%016x", rand.Uint64()),
	}
	o.proxy = faultproxy.New(t, o.server.Addr())
	o.model = scripted.New(scripted.Call("pay", map[string]any{}), scripted.Text("Done.")).ByPosition()
	o.agent = &helix.Agent{Name: "payer", Model: o.model, Tools: []helix.Tool{{
		Name: "pay", Description: "Pays.", Execute: helix.Func(func(ctx context.Context, call *helix.Call, _ struct{}) (int, error) {
			return o.pay(ctx, call)
		}),
	}}}
	return o
}

// execute starts a run, again while the store is unavailable.
func (o *outages) execute(rt helix.Runtime, id string) {
	o.t.Helper()
	ctx := eventually.Context(o.t)
	input := helix.Input{SessionID: id, RequestID: id, Message: helix.UserText("Pay.")}
	run, err := rt.Execute(ctx, o.agent, input)
	for session.IsRetryable(err) {
		time.Sleep(100 * time.Millisecond) // waits: an outage lasts seconds
		run, err = rt.Execute(ctx, o.agent, input)
	}
	if err != nil {
		o.t.Fatal(err)
	}
	o.runs = append(o.runs, run)
}

// payer returns the id of a session. The name tells when its call ends.
func payer(i int) string {
	if i >= longCalls {
		return fmt.Sprintf("short-%d", i)
	}
	return fmt.Sprintf("long-%d", i)
}

// pay is a call that ends when the test says so.
func (o *outages) pay(ctx context.Context, call *helix.Call) (int, error) {
	o.entered <- struct{}{}
	ending := o.long
	if strings.HasPrefix(call.SessionID, "short-") {
		ending = o.short
	}
	select {
	case <-ending:
		return 1, nil
	case <-ctx.Done():
		o.cancelled.Add(1)
		return 0, ctx.Err()
	}
}

// engineAddresses returns the address of the workflow engine, and the one that the process with
// the calls gets.
func (o *outages) engineAddresses(runtime string) (system, ofHolder string) {
	switch {
	case runtime == dbos.Name && strings.HasPrefix(o.server.URL(), "redis"): // it keeps what is its own in another store
		system = testserver.Postgres(o.t)
		return system, system
	case runtime == dbos.Name:
		system = through(o.t, o.server, o.proxy)
		return system, system
	case runtime != temporal.Name:
		return "", ""
	case o.engine == nil:
		system = testserver.Temporal(o.t)
		return system, system
	}
	o.toEngine = faultproxy.New(o.t, o.engine.Addr())
	return o.engine.Addr(), o.toEngine.Addr()
}

// starter returns a function that starts a process, with connections of its own.
func (o *outages) starter(runtime string) func(engine string) helix.Runtime {
	t := o.t
	t.Helper()
	address := through(t, o.server, o.proxy)
	return func(engine string) helix.Runtime {
		t.Helper()
		db, err := backend.OpenWithin(eventually.Patience, address, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() }) // its server may be gone
		opts := helix.RuntimeOptions{Backend: db, Agents: []*helix.Agent{o.agent}, Logger: slog.New(&o.log)}
		rt, err := o.startRuntime(runtime, engine, opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := rt.Close(); err != nil {
				t.Error(err)
			}
		})
		return rt
	}
}

func (o *outages) startRuntime(name, system string, opts helix.RuntimeOptions) (helix.Runtime, error) {
	switch name {
	case temporal.Name:
		c, err := dialTemporal(system)
		if err != nil {
			return nil, err
		}
		o.t.Cleanup(c.Close) // after the runtime
		return temporal.New(temporal.Config{RuntimeOptions: opts, Client: c, TaskQueue: o.t.Name() + o.server.Addr()})
	case dbos.Name:
		return dbos.New(dbos.Config{RuntimeOptions: opts, DatabaseURL: system, Schema: o.schema})
	}
	return local.New(opts)
}

// count waits for all runs, and counts what the outage did.
func (o *outages) count() (sum damage) {
	t := o.t
	t.Helper()
	ctx := eventually.Context(t)
	for _, run := range o.runs {
		if res, err := run.Result(ctx); err != nil || res.Status != helix.Completed {
			t.Logf("%s: %+v, %v", run.SessionID(), res, err)
			sum.notCompleted++
		}
	}
	db, err := backend.OpenWithin(eventually.Patience, o.server.URL(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, run := range o.runs {
		sum.addSession(t, db, run.SessionID())
	}
	sum.cancelled = int(o.cancelled.Load())
	sum.askedTwice = max(len(o.model.Requests())-2*len(o.runs), 0)
	sum.expired = len(o.expired)
	if sum != (damage{}) {
		t.Logf("%+v; the log ends with:\n%s", sum, o.log.tail(60))
	}
	return sum
}

// addSession adds how the session's only run was disturbed.
func (d *damage) addSession(t *testing.T, db store.Backend, id string) {
	t.Helper()
	run, err := db.Sessions().CurrentRun(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if run.Attempts > 0 {
		d.takenOver++
	}
	messages, err := db.Sessions().AllMessages(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for i := range messages {
		for _, p := range messages[i].Parts {
			if p.Error != nil && p.Error.Code == session.CodeToolOutcome {
				d.unknown++
			}
		}
	}
}

// pauseEngine has the server of the workflow engine stop answering.
func (o *outages) pauseEngine() (end func()) {
	o.engine.Pause()
	return o.engine.Resume
}

// cutHolderOff has the process with the calls lose its connections to the workflow engine.
func (o *outages) cutHolderOff() (end func()) {
	o.toEngine.Refuse()
	o.toEngine.Reset()
	return o.toEngine.Pass
}

// silenceHolder has nothing pass between the process with the calls and the workflow engine.
func (o *outages) silenceHolder() (end func()) {
	o.toEngine.Stall()
	return o.toEngine.Pass
}

// refuseWrites has the store answer reads and refuse writes.
func (o *outages) refuseWrites() (end func()) {
	if strings.HasPrefix(o.server.URL(), "redis") {
		client := goredis.NewClient(&goredis.Options{Addr: o.server.Addr()})
		set := func(replicas int) {
			if err := client.ConfigSet(o.t.Context(), "min-replicas-to-write", fmt.Sprint(replicas)).Err(); err != nil {
				o.t.Error(err)
			}
		}
		set(1)
		return func() { set(0); _ = client.Close() }
	}
	conn := o.connect()
	set := func(value string) {
		for _, statement := range []string{"ALTER SYSTEM SET default_transaction_read_only = " + value, "SELECT pg_reload_conf()"} {
			if _, err := conn.Exec(o.t.Context(), statement); err != nil {
				o.t.Error(err)
			}
		}
	}
	set("on")
	return func() { set("off"); _ = conn.Close(o.t.Context()) }
}

// connect connects to a Postgres, without the proxy.
func (o *outages) connect() *pgx.Conn {
	o.t.Helper()
	conn, err := pgx.Connect(o.t.Context(), o.server.URL())
	if err != nil {
		o.t.Fatal(err)
	}
	return conn
}

// lockRows locks the rows of some sessions, and looks for others whose leases expire.
func (o *outages) lockRows() (end func()) {
	conn := o.connect()
	ctx, cancel := context.WithCancel(o.t.Context())
	tx, err := conn.Begin(ctx)
	if err != nil {
		o.t.Fatal(err)
	}
	locked := map[string]bool{}
	for i := range lockedRows {
		locked[payer(i)] = true
		if tag, err := tx.Exec(ctx, "SELECT 1 FROM helix.sessions WHERE id = $1 FOR UPDATE", payer(i)); err != nil || tag.RowsAffected() != 1 {
			o.t.Fatal(tag, err)
		}
	}
	looked := make(chan struct{}) // closed after the first look
	var watching sync.WaitGroup
	watching.Go(func() { o.watchOthers(ctx, locked, looked) })
	eventually.Receive(o.t, "the leases of others are looked at", looked)
	return func() {
		cancel()
		watching.Wait()
		_ = tx.Rollback(o.t.Context())
		_ = conn.Close(o.t.Context())
	}
}

// watchOthers notes the sessions whose leases expire, without the given ones. A lease that
// expires because the machine is busy counts in a long run only.
func (o *outages) watchOthers(ctx context.Context, locked map[string]bool, looked chan<- struct{}) {
	first := sync.OnceFunc(func() { close(looked) })
	defer first()
	db, err := backend.OpenWithin(eventually.Patience, o.server.URL(), nil)
	if err != nil {
		o.t.Error(err)
		return
	}
	defer db.Close()
	for ctx.Err() == nil {
		now, err := db.Sessions().Now(ctx)
		var due []session.Due
		if err == nil {
			due, err = db.Sessions().ExpiredLeases(ctx, session.SweepRequest{Limit: session.MaxPageSize})
		}
		if err != nil && !errors.Is(err, context.Canceled) && ctx.Err() == nil {
			o.t.Error(err)
		}
		for _, d := range due {
			if !locked[d.ID] && !d.Lease.Live(now) && testshare.Soak() {
				o.expired[d.ID] = true
			}
		}
		first()
		time.Sleep(50 * time.Millisecond) // waits: between two looks
	}
}
