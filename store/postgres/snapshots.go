package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// minSnapshot is how many bytes of writes may accumulate before a full snapshot is
// considered: below it, replaying them costs less than a snapshot.
const minSnapshot = 4 << 10

// snapshots adds snapshots of custom state when the writes since the last one
// outweigh it, so that the cost of reading a session stays within a few times its
// size. They are not part of a commit, whose cost would then depend on the state's
// size: one goroutine adds them after the commit. A snapshot that is not added,
// because the queue is full or the process ends, is requested again by the next
// commit or read.
type snapshots struct {
	b      *Backend
	queue  chan snapshot
	stop   context.CancelFunc
	worker sync.WaitGroup

	mu    sync.Mutex
	asked map[int64]bool // sessions in the queue
}

// snapshot is a session whose custom state needs a snapshot.
type snapshot struct {
	number     int64
	tenant, id string
}

func newSnapshots(b *Backend) *snapshots {
	ctx, stop := context.WithCancel(context.Background())
	p := &snapshots{b: b, queue: make(chan snapshot, 64), stop: stop, asked: map[int64]bool{}}
	p.worker.Go(func() { p.work(ctx) })
	return p
}

func (p *snapshots) close() {
	p.stop()
	p.worker.Wait()
}

// consider requests a snapshot of a session if it is worth it.
func (p *snapshots) consider(number int64, tenant, id string, snapshotBytes, deltaBytes int64) {
	if deltaBytes <= max(snapshotBytes, minSnapshot) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked[number] {
		return
	}
	select {
	case p.queue <- snapshot{number, tenant, id}:
		p.asked[number] = true
	default:
	}
}

func (p *snapshots) work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case next := <-p.queue:
			p.mu.Lock()
			delete(p.asked, next.number)
			p.mu.Unlock()
			ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
			if err := p.add(ctx, next); err != nil && ctx.Err() == nil {
				p.b.config.Logger.WarnContext(ctx, "a snapshot of custom state could not be added",
					"tenant", next.tenant, "session", next.id, "error", err)
			}
			cancel()
		}
	}
}

// A snapshot is the state at a version, which stays true whatever happens in the
// meantime. The lock prevents the session from being deleted without it.
const addSnapshot = `
WITH held AS (
    SELECT number FROM helix.sessions WHERE number = $1 FOR KEY SHARE
),
added AS (
    INSERT INTO helix.state_snapshots (session, version, body)
    SELECT held.number, $2, $3 FROM held
    ON CONFLICT DO NOTHING
    RETURNING session
)
UPDATE helix.sessions s SET snapshot_bytes = length($3), delta_bytes = greatest(s.delta_bytes - $4, 0)
FROM added
WHERE s.number = added.session`

func (p *snapshots) add(ctx context.Context, at snapshot) error {
	s := &sessions{p.b, at.tenant}
	var (
		h      *header
		custom *rebuilt
	)
	err := p.b.read(ctx, what(at.id, "read custom state"), func(ctx context.Context, t *tx) error {
		s.askHeader(t, at.id, &h)
		custom = s.askState(t, at.id, nil)
		return t.finish(ctx)
	})
	if err != nil || h == nil || h.number != at.number || custom.err != nil || custom.delta == 0 {
		return err // readers report a state that cannot be rebuilt
	}
	body, err := custom.doc.MarshalJSON()
	if err != nil {
		return err
	}
	return p.b.query(ctx, what(at.id, "add a snapshot"), func(pgx.Rows) error { return nil },
		addSnapshot, h.number, h.Version, body, custom.delta)
}
