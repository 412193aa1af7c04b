package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testschema"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/postgres"
	"github.com/helixagents/helix/store/storetest"
)

func TestBackend(t *testing.T) {
	t.Parallel()
	storetest.Run(t, open)
}

func BenchmarkBackend(b *testing.B) { storetest.Benchmarks(b, open) }

func open(t testing.TB) storetest.Harness {
	return openConfig(t, postgres.Config{})
}

// TestServerClock runs the cases of the store suite that look at the clock with the
// server's, for which they have to wait.
func TestServerClock(t *testing.T) {
	t.Parallel()
	storetest.RunClock(t, func(t testing.TB) storetest.Harness {
		return openClock(t, postgres.Config{}, nil)
	})
}

// openConfig opens a backend in an empty schema, with a clock of the test.
func openConfig(t testing.TB, config postgres.Config) storetest.Harness {
	return openClock(t, config, storetest.NewClock())
}

func openClock(t testing.TB, config postgres.Config, clock *storetest.Clock) storetest.Harness {
	var advance func(time.Duration)
	if clock != nil {
		config.Clock, advance = clock.Now, clock.Advance
	}
	if config.URL == "" {
		config.URL, config.Schema = testschema.Lend(t)
	} else {
		config.Schema = postgres.SchemaForTest(t)
	}
	config.PollInterval, config.MaxConns = 20*time.Millisecond, 8
	config.ConnectTimeout = eventually.Patience // the server answers sooner or later
	connect := func(t testing.TB) store.Backend {
		b, err := postgres.OpenConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
		return b
	}
	return storetest.Harness{
		Backend:    connect(t),
		Reopen:     connect,
		Persistent: true,
		Deaf:       config.NoListen || config.Pooler,
		Advance:    advance,
		Corrupt: func(t testing.TB, what, tenant, id string) {
			query := fmt.Sprintf(damages[what], pgx.Identifier{config.Schema}.Sanitize())
			if n := postgres.ExecForTest(t, query, tenant, id); n != 1 {
				t.Fatalf("%d rows were damaged", n)
			}
		},
		Outdate: func(t testing.TB) { outdate(t, config.Schema) },
	}
}

// outdate records a migration whose result no earlier program can use.
func outdate(t testing.TB, schema string) {
	t.Helper()
	postgres.ExecForTest(t, fmt.Sprintf("INSERT INTO %s.migrations (number, name, applied_at, readable_from) VALUES (99, 'later', now(), 99)",
		pgx.Identifier{schema}.Sanitize()))
}

// damages make the row that was written last undecodable.
var damages = map[string]string{
	storetest.RowSession: `
UPDATE %[1]s.session_docs SET doc = '{'
WHERE session = (SELECT number FROM %[1]s.sessions WHERE tenant = $1 AND id = $2)`,
	storetest.RowMessage: `
UPDATE %[1]s.messages SET body = '{'
WHERE (session, number) = (SELECT number, message_count FROM %[1]s.sessions WHERE tenant = $1 AND id = $2)`,
	storetest.RowRun: `
UPDATE %[1]s.runs SET doc = '{'
WHERE (session, turn) = (SELECT number, turn FROM %[1]s.sessions WHERE tenant = $1 AND id = $2)`,
	storetest.RowCheckpoint: `
UPDATE %[1]s.checkpoints SET status = '{'
WHERE (session, checkpoint_id) = (SELECT number, checkpoint_id FROM %[1]s.sessions WHERE tenant = $1 AND id = $2)`,
	storetest.RowCall: `
UPDATE %[1]s.calls SET doc = '{'
WHERE (session, call_id) = (
    SELECT c.session, c.call_id FROM %[1]s.calls c JOIN %[1]s.sessions s ON s.number = c.session
    WHERE s.tenant = $1 AND s.id = $2
    ORDER BY c.position DESC
    LIMIT 1)`,
	storetest.RowPending: `
UPDATE %[1]s.pending SET doc = '{'
WHERE number = (SELECT max(number) FROM %[1]s.pending WHERE tenant = $1 AND session_id = $2)`,
	storetest.RowChild: `
UPDATE %[1]s.children SET doc = '{'
WHERE number = (
    SELECT max(c.number) FROM %[1]s.children c JOIN %[1]s.sessions s ON s.number = c.session
    WHERE s.tenant = $1 AND s.id = $2)`,
	storetest.RowBlob: `
UPDATE %[1]s.blob_pieces SET body = '{'
WHERE number = 1 AND blob = (
    SELECT r.blob FROM %[1]s.blob_refs r JOIN %[1]s.sessions s ON s.number = r.session WHERE s.tenant = $1 AND s.id = $2)`,
	storetest.RowChunk: `
UPDATE %[1]s.stream_batches SET body = '{'
WHERE (stream, last_sequence) = (SELECT number, last_sequence FROM %[1]s.streams WHERE tenant = $1 AND stream_id = $2)`,
}
