package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/engine"
	"github.com/helixagents/helix/engine/machine"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testserver"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/llm"
	"github.com/helixagents/helix/session"
)

// counters is what a step costs the server, by the server's own counters.
type counters struct {
	statements float64 // without notifications
	notified   float64 // statements that notify other processes; how many depends on the time
	commits    float64 // transactions that wrote, without notifications
	inserted   float64 // rows
	updated    float64
	moved      float64 // rows updated with new entries in all indexes: not HOT
	deleted    float64
	entries    float64 // of indexes
	records    float64 // of the WAL
	bytes      float64 // of the WAL
	flushes    float64 // of the WAL
}

// each calls f for every counter.
func (c *counters) each(f func(name string, counter *float64)) {
	f("statements", &c.statements)
	f("notifications", &c.notified)
	f("commits", &c.commits)
	f("rows inserted", &c.inserted)
	f("rows updated", &c.updated)
	f("of these moved", &c.moved)
	f("rows deleted", &c.deleted)
	f("index entries", &c.entries)
	f("WAL records", &c.records)
	f("WAL bytes", &c.bytes)
	f("WAL flushes", &c.flushes)
}

func (c *counters) values() (values []float64) {
	c.each(func(_ string, v *float64) { values = append(values, *v) })
	return values
}

// measuring is a server whose counters a test reads while nobody else uses it.
type measuring struct {
	t      *testing.T
	url    string
	reader *pgx.Conn
	// statements and wal say whether the server has the extensions that count
	// statements, and index entries and commits in the WAL.
	statements, wal bool
}

// startMeasuring starts a server that writes to its WAL only what is asked of it:
// nothing is vacuumed, and no checkpoint makes it write whole pages again.
func startMeasuring(t *testing.T) *measuring {
	t.Helper()
	server := testserver.StartPostgres(t, "autovacuum=off", "checkpoint_timeout=1h", "max_wal_size=4GB", "wal_writer_delay=10s",
		"bgwriter_lru_maxpages=0")
	m := &measuring{t: t, url: server.URL()}
	m.connect()
	m.statements, m.wal = m.has("pg_stat_statements"), m.has("pg_walinspect")
	if m.statements {
		m.exec("ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'")
		m.close()
		server.Stop()
		server.Start()
		m.connect()
		m.exec("CREATE EXTENSION pg_stat_statements")
	} else {
		t.Log("STATEMENTS ARE NOT COUNTED: the server has no extension pg_stat_statements")
	}
	if m.wal {
		m.exec("CREATE EXTENSION pg_walinspect")
	} else {
		t.Log("INDEX ENTRIES ARE NOT COUNTED: the server has no extension pg_walinspect (it is part of version 15 and newer)")
	}
	m.close() // so that what this connection wrote is counted before the test begins
	m.connect()
	if m.statements {
		m.exec("SET pg_stat_statements.track = 'none'") // not those of the test
	}
	t.Cleanup(m.close)
	return m
}

func (m *measuring) connect() {
	m.t.Helper()
	var err error
	if m.reader, err = pgx.Connect(m.t.Context(), m.url); err != nil {
		m.t.Fatal(err)
	}
}

func (m *measuring) close() {
	ctx := eventually.Context(m.t)
	_ = m.reader.Close(ctx) // the server may be gone
}

func (m *measuring) has(extension string) (has bool) {
	m.t.Helper()
	m.query(&has, "SELECT count(*) > 0 FROM pg_available_extensions WHERE name = $1", extension)
	return has
}

func (m *measuring) exec(query string) {
	m.t.Helper()
	if _, err := m.reader.Exec(m.t.Context(), query); err != nil {
		m.t.Fatalf("%s: %v", query, err)
	}
}

func (m *measuring) query(into any, query string, args ...any) {
	m.t.Helper()
	if err := m.reader.QueryRow(m.t.Context(), query, args...).Scan(into); err != nil {
		m.t.Fatalf("%s: %v", query, err)
	}
}

// settled waits until the server has counted everything: a connection reports what
// it did at its end at the latest, and before version 15 a moment later.
func (m *measuring) settled(schema string) {
	m.t.Helper()
	const query = `
SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()) = 0
   AND (SELECT n_tup_ins FROM pg_stat_user_tables WHERE schemaname = '%[1]s' AND relname = 'messages') = (SELECT count(*) FROM %[1]s.messages)`
	eventually.Poll(m.t, "the server has counted everything", func() (settled bool) {
		m.query(&settled, fmt.Sprintf(query, schema))
		return settled
	})
}

// read reads the counters. Those of the WAL's content begin at lsn; without it they
// are 0.
func (m *measuring) read(schema, lsn string) *counters {
	m.t.Helper()
	c := &counters{}
	if m.statements {
		// How many connections the pool makes, each with a setting, depends on the time, too.
		const calls = `SELECT coalesce(sum(calls), 0)::float8 FROM pg_stat_statements WHERE query `
		m.query(&c.statements, calls+`NOT LIKE '%pg_notify%' AND query NOT LIKE 'SET plan_cache_mode%'`)
		m.query(&c.notified, calls+`LIKE '%pg_notify%'`)
	}
	rows := m.reader.QueryRow(m.t.Context(), `
SELECT sum(n_tup_ins)::float8, sum(n_tup_upd)::float8, sum(n_tup_upd - n_tup_hot_upd)::float8, sum(n_tup_del)::float8
FROM pg_stat_user_tables WHERE schemaname = $1`, schema)
	if err := rows.Scan(&c.inserted, &c.updated, &c.moved, &c.deleted); err != nil {
		m.t.Fatal(err)
	}
	var version int
	m.query(&version, "SELECT current_setting('server_version_num')::integer")
	flushes := "SELECT wal_sync::float8 FROM pg_stat_wal"
	if version >= 180000 {
		flushes = "SELECT coalesce(sum(fsyncs), 0)::float8 FROM pg_stat_io WHERE object = 'wal'"
	}
	m.query(&c.flushes, flushes)
	if lsn == "" {
		return c
	}
	m.query(&c.bytes, "SELECT (pg_current_wal_flush_lsn() - $1::pg_lsn)::float8", lsn)
	if m.wal {
		// An entry for which a page is split is part of the record of the split.
		const count = `SELECT coalesce(sum(count), 0)::float8 FROM pg_get_wal_stats($1::pg_lsn, pg_current_wal_flush_lsn(), true)
WHERE "resource_manager/record_type" `
		m.query(&c.entries, count+`SIMILAR TO 'Btree/(INSERT_LEAF|INSERT_POST|SPLIT_L|SPLIT_R)'`, lsn)
		m.query(&c.records, count+`LIKE '%'`, lsn)
		m.query(&c.commits, count+`LIKE 'Transaction/COMMIT%'`, lsn)
	}
	return c
}

// run runs a session of some steps on a backend of its own and returns all that it
// cost, from opening the backend to closing it.
func (m *measuring) run(schema string, model labour, id string, steps int) *counters {
	m.t.Helper()
	var lsn string
	m.query(&lsn, "SELECT pg_current_wal_flush_lsn()::text")
	before := m.read(schema, "")
	b, err := OpenConfig(Config{URL: m.url, Schema: schema})
	if err != nil {
		m.t.Fatal(err)
	}
	model.steps = steps
	err = work(m.t.Context(), b, &model, id)
	if closing := b.Close(); err == nil {
		err = closing
	}
	if err != nil {
		m.t.Fatal(err)
	}
	m.settled(schema)
	after := m.read(schema, lsn)
	after.minus(before)
	if m.wal {
		after.commits -= after.notified // each is a transaction of its own
	}
	return after
}

func (c *counters) minus(other *counters) {
	values := other.values()
	c.each(func(_ string, v *float64) { *v, values = *v-values[0], values[1:] })
}

// perStep returns the cost of a step of an agent. It is the difference of a long
// session and a short one, so that what belongs to no step is not counted.
func (m *measuring) perStep(schema, name string, model labour) *counters {
	m.t.Helper()
	const short, long = 10, 110
	m.run(schema, model, "first-"+name, short) // fills pages that the others begin with
	less := m.run(schema, model, "short-"+name, short)
	c := m.run(schema, model, "long-"+name, long)
	c.minus(less)
	c.each(func(_ string, v *float64) { *v /= long - short })
	return c
}

// TestStepCounters holds what a step costs the server: a step whose call has an
// effect is two statements and two flushes of the WAL, another is one. The limits of
// the rest are a little above what was counted when they were set.
func TestStepCounters(t *testing.T) {
	t.Parallel()
	testshare.SkipUnless(t, 0, 2)
	m := startMeasuring(t)
	const schema = "counted"
	b, err := OpenConfig(Config{URL: m.url, Schema: schema}) // makes the tables
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	effect, reading := m.perStep(schema, "effect", labour{}), m.perStep(schema, "reading", labour{readOnly: true})
	extended := m.perStep(schema, "extended", labour{extended: true})
	names, a, c, x := []string{}, effect.values(), reading.values(), extended.values()
	effect.each(func(name string, _ *float64) { names = append(names, name) })
	var table strings.Builder
	for i, name := range names {
		fmt.Fprintf(&table, "%-15s %9.2f %11.2f %10.2f\n", name, a[i], c[i], x[i])
	}
	t.Logf("per step:        effect   read-only   extended\n%s", table.String())
	// Opening a session takes a few statements more or less, and what is written in the
	// background some flushes: for all steps together, a few more are allowed.
	limits := &counters{
		statements: 2.1, notified: 2.1, commits: 2.1, inserted: 6, updated: 4, moved: 0.1, deleted: 1, entries: 10.5, records: 28, bytes: 7200, flushes: 2.1,
	}
	effect.within(t, "a step with an effect", limits)
	extended.within(t, "a step with an effect of an agent with two extensions", limits)
	reading.within(t, "a read-only step", &counters{
		statements: 1.1, notified: 1.1, commits: 1.1, inserted: 4, updated: 2, moved: 0.1, deleted: 0, entries: 7.5, records: 17, bytes: 4100, flushes: 1.1,
	})
	if effect.flushes < 1.9 || reading.flushes < 0.9 {
		t.Errorf("%.2f and %.2f flushes per step: not all were counted", effect.flushes, reading.flushes)
	}
}

// within fails the test if a counter exceeds its limit.
func (c *counters) within(t *testing.T, what string, limits *counters) {
	t.Helper()
	values := limits.values()
	c.each(func(name string, v *float64) {
		if *v > values[0] {
			t.Errorf("%s: %s: %.2f, at most %.2f are allowed", what, name, *v, values[0])
		}
		values = values[1:]
	})
}

// labour is a model that answers at once: it calls its tool for a number of steps,
// then ends.
type labour struct {
	steps    int
	readOnly bool
	extended bool // the agent has two extensions
}

// labourText is what model and tool say.
var labourText = strings.Repeat("All work and no play makes a dull agent. ", 12)

// Generate implements [llm.Model].
func (l *labour) Generate(_ context.Context, r *llm.Request, emit func(llm.Delta)) (*llm.Response, error) {
	emit(llm.Delta{Kind: llm.DeltaText, Text: labourText})
	response := &llm.Response{Parts: []session.Part{session.Text(labourText)}, Finish: llm.FinishStop}
	if r.Step <= l.steps {
		response.Parts = append(response.Parts, session.Part{
			Kind: session.PartToolCall, Tool: "work", ProviderCallID: "call_1", Input: json.RawMessage(`{"n":1}`),
		})
		response.Finish = llm.FinishToolCalls
	}
	return response, nil
}

func (l *labour) agent() *helix.Agent {
	var extensions []helix.Extension
	if l.extended {
		extensions = []helix.Extension{statute("first"), statute("second")}
	}
	return &helix.Agent{
		Extensions: extensions,
		Name:       "labourer", Model: l, MaxSteps: helix.Unlimited,
		Tools: []helix.Tool{{
			Name: "work", Description: "Works.", ReadOnly: l.readOnly,
			Execute: helix.Func(func(context.Context, *helix.Call, struct {
				N int `json:"n"`
			},
			) (string, error) {
				return labourText, nil
			}),
		}},
	}
}

// statute is an extension with instructions, a message before each turn, a look at every
// call and its result, and a task after the turn.
type statute string

func (s statute) Name() string { return string(s) }

func (s statute) Attach(context.Context, *helix.Turn) (*helix.Attachment, error) {
	return &helix.Attachment{Instructions: labourText}, nil
}

func (s statute) Prepare(context.Context, *helix.Turn) ([]session.Message, error) {
	return []session.Message{helix.UserText(labourText)}, nil
}

func (s statute) Check(context.Context, *helix.Call) error { return nil }

func (s statute) Filter(_ context.Context, _ *helix.Call, result helix.CallResult) (helix.CallResult, error) {
	return result, nil
}

func (s statute) Finish(context.Context, *helix.Turn, *session.Outcome) ([]session.Task, error) {
	return []session.Task{{Kind: string(s)}}, nil
}

func (s statute) TaskKinds() []string { return []string{string(s)} }

func (s statute) HandleTask(context.Context, *session.Task) error { return nil }

// work runs a session to its end, with the engine's own effects. A runtime would
// write tokens that the machine holds up for some milliseconds by themselves, and
// renew leases: what it writes depends on the time.
func work(ctx context.Context, b *Backend, model *labour, id string) error {
	h := engine.NewHandler(engine.Config{Backend: b, Runtime: "test", LeaseTTL: time.Hour, FlushEvery: time.Hour})
	agent := model.agent()
	if _, err := h.Register(agent); err != nil {
		return err
	}
	opened, err := h.Open(ctx, engine.OpenRequest{
		Kind: session.RunExecute, Agent: agent, SessionID: id, RunID: "run-" + id, Input: helix.Input{Message: helix.UserText("Begin.")},
	})
	if err != nil {
		return err
	}
	turn, wave := machine.New(opened.Key, opened.Run.ID, opened.Position)
	for {
		results := make([]machine.Result, len(wave))
		for i, effect := range wave {
			if results[i], err = h.Handle(ctx, effect); err != nil {
				return err
			}
		}
		next, end := turn.Next(results)
		if end == nil {
			wave = next
			continue
		}
		if end.Status != session.RunCompleted {
			return fmt.Errorf("the run ended %s", end.Status)
		}
		return nil
	}
}
