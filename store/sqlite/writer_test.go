package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/internal/lite"
	"github.com/helixagents/helix/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// openTest opens a backend on a file of its own.
func openTest(t *testing.T) *Backend {
	t.Helper()
	return openPath(t, filepath.Join(t.TempDir(), "helix.db"))
}

func openPath(t *testing.T, path string) *Backend {
	t.Helper()
	b, err := Open(path)
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

// hold keeps the writer busy until it is released.
func hold(t *testing.T, b *Backend) (release func()) {
	t.Helper()
	entered, leave, left := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		left <- b.write(context.Background(), "wait", func(*lite.Tx) error {
			close(entered)
			<-leave
			return nil
		})
	}()
	<-entered
	return func() {
		close(leave)
		if err := <-left; err != nil {
			t.Error(err)
		}
	}
}

// inOneBatch performs operations in one transaction.
func inOneBatch(t *testing.T, b *Backend, ops ...func() error) []error {
	t.Helper()
	release := hold(t, b)
	errs := make([]chan error, len(ops))
	for i, do := range ops {
		errs[i] = make(chan error, 1)
		go func() { errs[i] <- do() }()
		waitQueued(t, b, i+1)
	}
	release()
	out := make([]error, len(ops))
	for i := range errs {
		out[i] = <-errs[i]
	}
	return out
}

// waitQueued waits until n operations are queued.
func waitQueued(t *testing.T, b *Backend, n int) {
	t.Helper()
	eventually.Poll(t, fmt.Sprint(n, " operations are queued"), func() bool {
		b.writer.mu.Lock()
		defer b.writer.mu.Unlock()
		return len(b.writer.queue) >= n
	})
}

func create(t *testing.T, b *Backend, id string) {
	t.Helper()
	err := session.Create(t.Context(), b.Sessions(), &session.State{ID: id, Agent: "a", Status: session.Active})
	if err != nil {
		t.Fatal(err)
	}
}

func replace(key, value string) session.Writes {
	return session.Writes{Ops: []session.Op{{Kind: session.OpReplace, Key: key, Value: []byte(value)}}}
}

func TestGroupCommitFailsAlone(t *testing.T) {
	t.Parallel()
	b := openTest(t)
	s, ctx := b.Sessions(), t.Context()
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		create(t, b, id)
	}
	message := []session.Message{{ID: "m", Role: session.RoleUser, Parts: []session.Part{session.Text("hello")}}}
	if _, err := session.AppendMessages(ctx, s, "d", message); err != nil {
		t.Fatal(err)
	}
	before := b.writer.transactions.Load()
	merge := func(id string) func() error {
		return func() error { _, err := session.Merge(ctx, s, id, replace("k", `1`)); return err }
	}
	errs := inOneBatch(t, b,
		merge("a"),
		func() error { // refused before it writes
			return session.Save(ctx, s, &session.State{ID: "b", Agent: "a", Status: session.Active, Version: 99})
		},
		merge("c"),
		func() error { // refused in the middle of its writes
			_, err := session.AppendMessages(ctx, s, "d", append([]session.Message{{Role: session.RoleUser, Parts: message[0].Parts}}, message...))
			return err
		},
		func() error { // a fault of the store itself
			return b.write(ctx, "panic", func(t *lite.Tx) error {
				if _, err := t.Exec("DELETE FROM sessions"); err != nil {
					return err
				}
				panic("on purpose")
			})
		},
		merge("e"),
	)
	for i, want := range []error{nil, session.ErrStale, nil, session.ErrInvalid, session.ErrInternal, nil} {
		if !errors.Is(errs[i], want) {
			t.Errorf("operation %d: got %v, want %v", i, errs[i], want)
		}
	}
	// The transaction that blocked the others, the attempt that was undone, and the
	// one with savepoints.
	if n := b.writer.transactions.Load() - before; n != 3 {
		t.Errorf("%d transactions were made", n)
	}
	for id, version := range map[string]int64{"a": 2, "b": 1, "c": 2, "d": 2, "e": 2} {
		state, err := s.Load(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if state.Version != version {
			t.Errorf("session %s has version %d, want %d", id, state.Version, version)
		}
	}
	if n, err := session.MessageCount(ctx, s, "d"); err != nil || n != 1 {
		t.Errorf("session d has %d messages (%v)", n, err)
	}
}

func TestCancelledWhileQueued(t *testing.T) {
	t.Parallel()
	b := openTest(t)
	create(t, b, "a")
	release := hold(t, b)
	ctx, cancel := context.WithCancel(t.Context())
	merged := make(chan error, 1)
	go func() {
		_, err := session.Merge(ctx, b.Sessions(), "a", replace("k", `1`))
		merged <- err
	}()
	waitQueued(t, b, 1)
	cancel()
	if err := <-merged; !errors.Is(err, context.Canceled) {
		t.Errorf("the cancelled operation: %v", err)
	}
	release()
	if out, err := session.Merge(t.Context(), b.Sessions(), "a", replace("l", `1`)); err != nil || out.Version != 2 {
		t.Errorf("the next operation: version %d, %v", out.Version, err)
	}
}

func TestAppendRidesAlong(t *testing.T) {
	t.Parallel()
	b := openTest(t)
	ctx := t.Context()
	started, err := b.Sessions().StartRun(ctx, &session.StartRun{
		SessionID: "a", Create: &session.State{ID: "a", Agent: "a", Status: session.Active},
		Run: session.Run{ID: "r"}, Owner: "o",
	})
	if err != nil {
		t.Fatal(err)
	}
	openStream(t, b, "a")
	release := hold(t, b)
	before := b.writer.transactions.Load()
	appended, err := b.Streams().Append(ctx, "a", stream.Batch{
		Producer: stream.Producer{Session: "a", Epoch: started.Lease.Epoch, RunID: "r"},
		First:    1, Chunks: []stream.Chunk{{Kind: stream.TextDelta, Delta: "x"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	committed := make(chan error, 1)
	go func() {
		_, err := b.Sessions().Commit(ctx, &session.Commit{
			SessionID: "a", RunID: "r", Key: "k", Version: started.Version, Fence: started.Lease.Fence(),
		})
		committed <- err
	}()
	waitQueued(t, b, 2)
	release()
	if err := <-committed; err != nil {
		t.Fatal(err)
	}
	if n := b.writer.transactions.Load() - before; n != 1 {
		t.Errorf("an append and the commit that followed took %d transactions", n)
	}
	if last, err := appended.Wait(ctx); err != nil || last != 1 {
		t.Errorf("appended %d, %v", last, err)
	}
}

func openStream(t *testing.T, b *Backend, id string) {
	t.Helper()
	if _, err := b.Streams().Reactivate(t.Context(), id, stream.Producer{Session: id}); err != nil {
		t.Fatal(err)
	}
}

func TestAppendAlone(t *testing.T) {
	t.Parallel()
	b := openTest(t)
	batch := stream.Batch{Producer: stream.Producer{Session: "a"}, Chunks: []stream.Chunk{{Kind: stream.TextDelta, Delta: "x"}}}
	openStream(t, b, "a")
	if _, err := b.Streams().Append(t.Context(), "a", batch); err != nil {
		t.Fatal(err)
	}
	// Nobody waits for the batch, and nothing else is written.
	for item, err := range b.Streams().Read(t.Context(), "a", 0, true) {
		if err == nil && item.Frame == stream.FrameCaughtUp {
			continue
		}
		if err != nil || item.Sequence != 1 {
			t.Fatalf("read %+v, %v", item, err)
		}
		break
	}
}

func TestCloseWritesWhatIsQueued(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "helix.db")
	b, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	batch := stream.Batch{Producer: stream.Producer{Session: "a"}, Chunks: []stream.Chunk{{Kind: stream.TextDelta, Delta: "x"}}}
	openStream(t, b, "a")
	appended, err := b.Streams().Append(t.Context(), "a", batch)
	if err != nil {
		t.Fatal(err)
	}
	create(t, b, "a")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Errorf("closing again: %v", err)
	}
	if last, err := appended.Wait(t.Context()); err != nil || last != 1 {
		t.Errorf("the append that was queued: %d, %v", last, err)
	}
	_, loading := b.Sessions().Load(t.Context(), "a")
	_, merging := session.Merge(t.Context(), b.Sessions(), "a", replace("k", `1`))
	_, appending := b.Streams().Append(t.Context(), "a", batch)
	for _, err := range []error{loading, merging, appending} {
		if !errors.Is(err, session.ErrClosed) {
			t.Errorf("after the close: %v", err)
		}
	}
	b = openPath(t, path)
	if _, err := b.Sessions().Load(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if info, err := b.Streams().Info(t.Context(), "a"); err != nil || info.Last != 1 {
		t.Errorf("the stream after reopening: %+v, %v", info, err)
	}
}

// TestCacheSeesOtherProcesses lets two handles write to one session in turn: the
// cache of each is out of date as soon as the other has written.
func TestCacheSeesOtherProcesses(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "helix.db")
	handles := []*Backend{openPath(t, path), openPath(t, path)}
	create(t, handles[0], "a")
	openStream(t, handles[0], "a")
	for i := range 20 {
		b := handles[i%2]
		out, err := session.Merge(t.Context(), b.Sessions(), "a", replace("k", fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		if out.Version != int64(i+2) {
			t.Fatalf("write %d made version %d", i, out.Version)
		}
		appended, err := b.Streams().Append(t.Context(), "a", stream.Batch{
			Producer: stream.Producer{Session: "a"}, First: int64(i), Chunks: []stream.Chunk{{Kind: stream.TextDelta, Delta: "x"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if last, err := appended.Wait(t.Context()); err != nil || last != int64(i+1) {
			t.Fatalf("append %d got sequence %d, %v", i, last, err)
		}
	}
}

// TestStateLog checks that the rows of a growing state grow with what is added and
// not with the size of the state, and that every checkpoint still has its state.
func TestStateLog(t *testing.T) {
	t.Parallel()
	b := openTest(t)
	s, ctx := b.Sessions(), t.Context()
	create(t, b, "a")
	const steps = 100
	item := `"` + strings.Repeat("x", 100) + `"`
	for i := range steps {
		w := session.Writes{Ops: []session.Op{{Kind: session.OpAppend, Key: "list", Items: []json.RawMessage{json.RawMessage(item)}}}}
		if _, err := session.Merge(ctx, s, "a", w); err != nil {
			t.Fatal(err)
		}
		if _, err := session.CreateCheckpoint(ctx, s, "a", session.NewCheckpoint{ID: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range steps {
		point, err := s.Checkpoint(ctx, "a", fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(point.State.Get("list")), "x"); n != 100*(i+1) {
			t.Fatalf("checkpoint %d has %d of %d bytes", i, n, 100*(i+1))
		}
	}
	var size int64
	err := b.read(ctx, "measure", func(c lite.Conn) error {
		r, err := c.One("SELECT sum(length(body)) FROM state_log")
		if err == nil {
			size = r.Int64()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if limit := int64(4 * steps * len(item)); size > limit {
		t.Errorf("a state of %d bytes takes %d, more than %d", steps*len(item), size, limit)
	}
}

// TestLogStaysShort keeps readers active all the time, so that SQLite never gets
// the chance to restart its log.
func TestLogStaysShort(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "helix.db")
	b, err := OpenConfig(Config{Path: path, Synchronous: "OFF"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	const limit = 1 << 20
	b.writer.logLimit = limit // nothing is written yet
	create(t, b, "a")
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for ctx.Err() == nil {
				_ = b.read(ctx, "dawdle", func(c lite.Conn) error {
					_, err := c.One("SELECT count(*) FROM locks")
					<-time.After(3 * time.Millisecond) // waits: readers overlap, so that there is always one
					return err
				})
			}
		})
	}
	value := `"` + strings.Repeat("x", 16<<10) + `"`
	// An attempt to empty the log fails if a reader takes too long, which is tried again after some more writes.
	var size int64
	for written, emptied := 0, 0; emptied < 2; written += len(value) {
		if written > 64*limit {
			t.Errorf("after %d MiB the log has %d MiB, and was emptied %d times", written>>20, size>>20, emptied)
			break
		}
		if _, err := session.Merge(t.Context(), b.Sessions(), "a", replace("k", value)); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path + "-wal"); err == nil {
			if info.Size() < size {
				emptied++
			}
			size = info.Size()
		}
	}
	cancel()
	readers.Wait()
}

// TestFairToOthers lets one process write all the time: another still gets its
// turn.
func TestFairToOthers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "helix.db")
	busy, other := openPath(t, path), openPath(t, path)
	create(t, other, "other")
	ctx, cancel := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	var written atomic.Int64 // by the busy process
	for i := range 8 {
		id := fmt.Sprintf("busy-%d", i)
		create(t, busy, id)
		writers.Go(func() {
			for ctx.Err() == nil {
				if _, err := session.Merge(ctx, busy.Sessions(), id, replace("k", `1`)); err == nil {
					written.Add(1)
				}
			}
		})
	}
	// The other one writes until both have: its writes fail once they have waited for the busy timeout.
	for i := 0; i < 30 || written.Load() < 20; i++ {
		if _, err := session.Merge(t.Context(), other.Sessions(), "other", replace("k", fmt.Sprint(i))); err != nil {
			t.Error(err)
			break
		}
	}
	cancel()
	writers.Wait()
}
