package storetest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/stream"
)

// Harness is one backend under test, with what the suite may do to it.
type Harness struct {
	// Backend is empty. The function that opened it closes it when the test ends; a
	// case may have closed it before.
	Backend store.Backend
	// Reopen opens a second handle on the same data, as another process or the next
	// start of this one would, and closes it when t ends. For a backend that exists
	// only in one process it may return Backend itself. Without it, cases that need a
	// second handle are skipped.
	Reopen func(t testing.TB) store.Backend
	// Persistent says that data outlives Close.
	Persistent bool
	// Advance moves the clock of the store, on every handle. Without it, cases that
	// need time to pass wait.
	Advance func(time.Duration)
	// Corrupt damages a stored row so that it can no longer be decoded. what is one of
	// the Row constants; id is the id of the session, or of the stream for a chunk. Of
	// several rows it damages the one written last. It skips t if the backend has
	// nothing to damage, such as a row that consists of typed columns.
	Corrupt func(t testing.TB, what, tenant, id string)
	// Deaf says that a handle does not hear at once what is written on another one, so
	// that it announces only its own signals.
	Deaf bool
	// Outdate makes the store require programs newer than this one, as a later version
	// does when it changes what is stored.
	Outdate func(t testing.TB)
}

// The kinds of rows that [Harness.Corrupt] damages.
const (
	RowSession    = "session"
	RowMessage    = "message"
	RowRun        = "run"
	RowCheckpoint = "checkpoint"
	RowCall       = "call"
	RowPending    = "pending"
	RowChild      = "child"
	RowChunk      = "chunk"
	RowBlob       = "blob" // a part of the bytes of the session's only blob
)

// Open returns a harness with new, empty data, which t's cleanup closes.
type Open func(t testing.TB) Harness

// Run tests a backend against the guarantees of the domain's interfaces.
//
// Opening a backend is expensive, so most cases share a harness and use a tenant
// each. Cases that move the clock share another harness and take turns, as do
// those that damage rows. Cases that look at the whole store or close it get their
// own.
func Run(t *testing.T, open Open) {
	run(t, open, func(string, int, testCase) bool { return true })
}

// RunShare is [Run] for another way to open a backend that Run tests in full: it runs
// all cases of some groups and one of so many parts of the others, another part for
// each value of HELIX_SCENARIOS. With HELIX_SOAK it runs all.
func RunShare(t *testing.T, of int, open Open, all ...string) {
	has := testshare.Has(t, of)
	run(t, open, func(group string, number int, _ testCase) bool { return slices.Contains(all, group) || has(number) })
}

// RunClock is [Run] for a backend with its server's clock, if Run tests it in full with
// a clock of the test: it runs the cases that look at the clock. With HELIX_SOAK it runs
// all.
func RunClock(t *testing.T, open Open) {
	all := os.Getenv("HELIX_SOAK") != ""
	run(t, open, func(_ string, _ int, c testCase) bool { return all || c.looks() })
}

func run(t *testing.T, open Open, has func(group string, number int, c testCase) bool) {
	suite := newSuite(t, open)
	t.Cleanup(func() { suite.report(t) })
	before := 0
	for _, g := range groups() {
		first := before
		before += len(g.cases)
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			for i, c := range g.cases {
				if !has(g.name, first+i, c) {
					continue
				}
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					suite.run(t, c)
				})
			}
		})
	}
}

// testCase is one guarantee and how to test it.
type testCase struct {
	name  string
	about string // one line, printed on failure
	needs need
	run   func(t *bed)
}

// need is what a case needs of its harness.
type need uint8

const (
	// alone needs a harness that no other case uses.
	alone need = 1 << iota
	// clock needs time to pass, while no other case runs on the harness.
	clock
	// corrupt needs rows to be damaged.
	corrupt
	second     // a second handle
	persistent // data that outlives Close
	outdate    // a store that becomes too new
	hearing    // a handle that hears what is written on another
	// dated compares times with the store's clock, which need not move.
	dated
)

// looks reports whether a case looks at the store's clock.
func (c testCase) looks() bool { return c.needs&(clock|dated) != 0 }

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
		{"signals", signalCases()},
		{"messages", messageCases()},
		{"views", viewCases()},
		{"runs", runCases()},
		{"checkpoints", checkpointCases()},
		{"children", childCases()},
		{"submissions", submissionCases()},
		{"asking", askingCases()},
		{"inbox", inboxCases()},
		{"tasks", taskCases()},
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
		{"opening", openingCases()},
		{"together", togetherCases()},
		{"closing", closingCases()},
		{"blobs", blobCases()},
		{"locks", lockCases()},
		{"ready", readyCases()},
	}
}

// suite is one call of Run.
type suite struct {
	tb   testing.TB // its end closes what cases share
	open Open
	// The harnesses that cases share, by what they do to them.
	quiet, clocked, damaged shared

	tenants atomic.Int64
	total   atomic.Int64
	mu      sync.Mutex
	skipped []string
}

// shared is a harness that several cases use.
type shared struct {
	turns  sync.Mutex // held by a case that must run alone
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

// run runs one case. It takes a testing.TB so that tests of the suite itself can
// see a case fail.
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
	if got := t.looked.Load(); got != c.looks() {
		tb.Errorf("the case looks at the store's clock: %v; its needs say %v", got, c.looks())
	}
}

// bed returns a case's harness and tenant.
func (s *suite) bed(tb testing.TB, needs need) *bed {
	if needs&alone != 0 {
		// The default tenant is only used where no other case uses it.
		own := s.open(tb)
		return &bed{
			TB: tb, Harness: own, tenant: session.DefaultTenant, looked: &atomic.Bool{},
			second: sync.OnceValue(func() store.Backend { return own.Reopen(tb) }),
		}
	}
	from := &s.quiet
	if needs&clock != 0 {
		from = &s.clocked
	}
	if needs&corrupt != 0 {
		from = &s.damaged
	}
	if from != &s.quiet && s.quiet.Advance != nil {
		from.turns.Lock() // if time cannot be moved, it passes for all
		tb.Cleanup(from.turns.Unlock)
	}
	return &bed{
		TB: tb, Harness: from.get(s), tenant: fmt.Sprintf("tenant-%d", s.tenants.Add(1)), looked: &atomic.Bool{},
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

// lacks returns the name of a capability that is needed and missing.
func (h Harness) lacks(n need) string {
	switch {
	case n&second != 0 && h.Reopen == nil:
		return "no second handle (Harness.Reopen)"
	case n&persistent != 0 && !h.Persistent:
		return "data does not outlive Close (Harness.Persistent)"
	case n&corrupt != 0 && h.Corrupt == nil:
		return "rows cannot be damaged (Harness.Corrupt)"
	case n&hearing != 0 && h.Deaf:
		return "signals of another handle are not announced (Harness.Deaf)"
	case n&outdate != 0 && h.Outdate == nil:
		return "the store cannot become too new (Harness.Outdate)"
	}
	return ""
}

// bed is a case in progress: its harness, its tenant and its assertions.
type bed struct {
	testing.TB
	Harness

	tenant string
	// second returns the other handle on the same data, if the harness has one.
	second func() store.Backend
	// looked says whether the case has looked at the store's clock.
	looked *atomic.Bool
}

// store returns the session store of the case's tenant, on the first handle.
func (t *bed) store() session.Store { return t.sessionsOf(t.Backend) }

// renew renews a lease.
func (t *bed) renew(id string, fence session.Fence, ttl time.Duration) error {
	return t.renewAt(t.Context(), t.Backend, id, fence, ttl)
}

func (t *bed) renewAt(ctx context.Context, b store.Backend, id string, fence session.Fence, ttl time.Duration) error {
	return b.RenewLeases(ctx, []session.Held{{Key: session.Key{Tenant: t.tenant, ID: id}, Fence: fence}}, ttl)[0].Err
}

// streams returns the stream manager of the case's tenant, on the first handle.
func (t *bed) streams() stream.Manager { return t.streamsOf(t.Backend) }

func (t *bed) sessionsOf(b store.Backend) session.Store {
	if t.tenant == session.DefaultTenant {
		return b.Sessions()
	}
	return b.Sessions().Tenant(t.tenant)
}

// blobs returns the blob store of the case's tenant, on the first handle.
func (t *bed) blobs() blob.Store { return t.blobsOf(t.Backend) }

func (t *bed) blobsOf(b store.Backend) blob.Store {
	if t.tenant == session.DefaultTenant {
		return b.Blobs()
	}
	return b.Blobs().Tenant(t.tenant)
}

func (t *bed) streamsOf(b store.Backend) stream.Manager {
	if t.tenant == session.DefaultTenant {
		return b.Streams()
	}
	return b.Streams().Tenant(t.tenant)
}

// ttl returns the duration of a lease whose end a case can wait for. Without Advance a
// case may not rely on getting anything done before it: a busy machine may take longer.
func (t *bed) ttl() time.Duration {
	t.looked.Store(true)
	if t.Advance != nil {
		return time.Minute
	}
	return 50 * time.Millisecond
}

// pass lets time pass on the store's clock.
func (t *bed) pass(d time.Duration) {
	t.Helper()
	t.looked.Store(true)
	if t.Advance != nil {
		t.Advance(d)
		return
	}
	until := t.now().Add(d)
	eventually.Poll(t, "time passes on the store's clock", func() bool { return t.now().After(until) })
}

// now returns the time of the store's clock.
func (t *bed) now() time.Time {
	t.Helper()
	t.looked.Store(true)
	now, err := t.store().Now(t.Context())
	t.ok(err, "Now")
	return now
}
