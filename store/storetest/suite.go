package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
)

// Harness is one backend under test and what the suite may do with it.
type Harness struct {
	// Backend holds no data yet. Whoever opened it closes it when the test ends; a
	// case may have closed it before.
	Backend store.Backend
	// Reopen opens a second handle on the same data, as another process or the next
	// start of this one would, and closes it when t ends. For a backend that lives
	// in one process it may return Backend itself. Cases that need a second handle
	// are skipped without it.
	Reopen func(t testing.TB) store.Backend
	// Persistent says that data outlives Close.
	Persistent bool
	// Advance moves the clock of the store, on every handle. Without it, cases that
	// need time to pass wait for it.
	Advance func(time.Duration)
	// Corrupt damages a stored row so that it can no longer be decoded. what is one
	// of the Row constants; id is the session's, or the stream's for a chunk. Of
	// several rows the one written last is meant. It skips t where the backend has
	// nothing to damage, such as a row that is all typed columns.
	Corrupt func(t testing.TB, what, tenant, id string)
	// Outdate has the store say that only programs newer than this one can use it, as
	// a later version does when it changes what is stored.
	Outdate func(t testing.TB)
}

// The kinds of rows that [Harness.Corrupt] is asked to damage.
const (
	RowSession    = "session"
	RowMessage    = "message"
	RowRun        = "run"
	RowCheckpoint = "checkpoint"
	RowCall       = "call"
	RowPending    = "pending"
	RowChild      = "child"
	RowChunk      = "chunk"
)

// Open makes a harness with fresh, empty data and leaves its closing to t's
// cleanup.
type Open func(t testing.TB) Harness

// Run holds a backend to everything the domain's interfaces promise.
//
// Opening a backend is dear, so most cases share a harness and work in a tenant
// each; those that move the clock share another and take turns, as do those that
// damage rows. Cases that look at the whole store or close it get their own.
func Run(t *testing.T, open Open) {
	suite := newSuite(t, open)
	t.Cleanup(func() { suite.report(t) })
	for _, g := range groups() {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range g.cases {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					suite.run(t, c)
				})
			}
		})
	}
}

// testCase is one promise and how to see that it is kept.
type testCase struct {
	name  string
	about string // one line, printed on failure
	needs need
	run   func(t *bed)
}

// need is what a case asks of its harness.
type need uint8

const (
	// alone asks for a harness that no other case uses.
	alone need = 1 << iota
	// clock asks for time to pass, while no other case looks.
	clock
	// corrupt asks for rows to be damaged.
	corrupt
	second     // a second handle
	persistent // data that outlives Close
	outdate    // to have the store become too new
)

// group is the cases of one file.
type group struct {
	name  string
	cases []testCase
}

func groups() []group {
	return []group{
		{"lifecycle", lifecycleCases()},
		{"documents", documentCases()},
		{"commit", commitCases()},
		{"cas", casCases()},
		{"leases", leaseCases()},
		{"calls", callCases()},
		{"stops", stopCases()},
		{"messages", messageCases()},
		{"runs", runCases()},
		{"checkpoints", checkpointCases()},
		{"children", childCases()},
		{"submissions", submissionCases()},
		{"inbox", inboxCases()},
		{"listing", listingCases()},
		{"waiting", waitingCases()},
		{"sweeps", sweepCases()},
		{"tenants", tenantCases()},
		{"divergence", divergenceCases()},
		{"agreement", agreementCases()},
		{"hostile", hostileCases()},
		{"races", raceCases()},
		{"crash", crashCases()},
		{"linearize", linearizeCases()},
		{"streams", streamCases()},
		{"together", togetherCases()},
		{"locks", lockCases()},
		{"ready", readyCases()},
	}
}

// suite is one call of Run.
type suite struct {
	tb   testing.TB // whose end closes what cases share
	open Open
	// What cases share, by what they do to it.
	quiet, clocked, damaged shared

	tenants atomic.Int64
	total   atomic.Int64
	mu      sync.Mutex
	skipped []string
}

// shared is a harness that several cases use.
type shared struct {
	turns  sync.Mutex // held by a case that others must not see
	once   sync.Once
	reopen sync.Once
	Harness
	other store.Backend
}

func newSuite(tb testing.TB, open Open) *suite {
	s := &suite{tb: tb, open: open}
	s.quiet.get(s)
	return s
}

// get opens the harness for the first case that needs it.
func (h *shared) get(s *suite) Harness {
	h.once.Do(func() { h.Harness = s.open(s.tb) })
	return h.Harness
}

// run carries out one case. It takes a testing.TB so that tests of the suite
// itself can see a case fail.
func (s *suite) run(tb testing.TB, c testCase) {
	tb.Helper()
	s.total.Add(1)
	if lacks := s.quiet.lacks(c.needs); lacks != "" {
		s.skip(tb.Name(), lacks)
		tb.Skipf("SKIPPED, %s: %s", lacks, c.about)
	}
	t := s.bed(tb, c.needs)
	tb.Cleanup(func() {
		switch {
		case tb.Failed():
			tb.Logf("promise: %s", c.about)
		case tb.Skipped():
			s.skip(tb.Name(), "by the harness")
		}
	})
	c.run(t)
}

// bed gives a case its harness and its tenant.
func (s *suite) bed(tb testing.TB, needs need) *bed {
	if needs&alone != 0 {
		// The default tenant is only used where nobody else does.
		own := s.open(tb)
		return &bed{TB: tb, Harness: own, tenant: session.DefaultTenant, second: sync.OnceValue(func() store.Backend { return own.Reopen(tb) })}
	}
	from := &s.quiet
	if needs&clock != 0 {
		from = &s.clocked
	}
	if needs&corrupt != 0 {
		from = &s.damaged
	}
	if from != &s.quiet && s.quiet.Advance != nil {
		from.turns.Lock() // where time cannot be moved it passes for all
		tb.Cleanup(from.turns.Unlock)
	}
	return &bed{
		TB: tb, Harness: from.get(s), tenant: fmt.Sprintf("tenant-%d", s.tenants.Add(1)),
		second: func() store.Backend {
			from.reopen.Do(func() { from.other = from.Reopen(s.tb) })
			return from.other
		},
	}
}

func (s *suite) skip(name, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skipped = append(s.skipped, name+": "+why)
}

func (s *suite) report(t *testing.T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Logf("storetest: %d cases, %d skipped", s.total.Load(), len(s.skipped))
	for _, line := range s.skipped {
		t.Logf("storetest: SKIPPED %s", line)
	}
}

// lacks names a capability that is needed and missing.
func (h Harness) lacks(n need) string {
	switch {
	case n&second != 0 && h.Reopen == nil:
		return "no second handle (Harness.Reopen)"
	case n&persistent != 0 && !h.Persistent:
		return "data does not outlive Close (Harness.Persistent)"
	case n&corrupt != 0 && h.Corrupt == nil:
		return "rows cannot be damaged (Harness.Corrupt)"
	case n&outdate != 0 && h.Outdate == nil:
		return "the store cannot become too new (Harness.Outdate)"
	}
	return ""
}

// bed is a case in progress: its harness, its tenant and what it asserts with.
type bed struct {
	testing.TB
	Harness

	tenant string
	// second is the other handle on the same data, if the harness has one.
	second func() store.Backend
}

// store is the session store of the case's tenant, on the first handle.
func (t *bed) store() session.Store { return t.sessionsOf(t.Backend) }

// streams is the stream manager of the case's tenant, on the first handle.
func (t *bed) streams() stream.Manager { return t.streamsOf(t.Backend) }

func (t *bed) sessionsOf(b store.Backend) session.Store {
	if t.tenant == session.DefaultTenant {
		return b.Sessions()
	}
	return b.Sessions().Tenant(t.tenant)
}

func (t *bed) streamsOf(b store.Backend) stream.Manager {
	if t.tenant == session.DefaultTenant {
		return b.Streams()
	}
	return b.Streams().Tenant(t.tenant)
}

// ttl is a lease that a case can wait for the end of.
func (t *bed) ttl() time.Duration {
	if t.Advance != nil {
		return time.Minute
	}
	return 300 * time.Millisecond
}

// pass lets time pass on the store's clock.
func (t *bed) pass(d time.Duration) {
	t.Helper()
	if t.Advance != nil {
		t.Advance(d)
		return
	}
	until := t.now().Add(d)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !t.now().After(until) {
		<-tick.C
	}
}

// now is the store's clock.
func (t *bed) now() time.Time {
	t.Helper()
	now, err := t.store().Now(t.Context())
	t.ok(err, "Now")
	return now
}
