package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/internal/testshare"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

func blobCases() []testCase {
	return []testCase{
		{"put", "bytes are returned as they were put, also empty ones and those of several pieces, and by another handle", second, blobsPut},
		{"again", "putting the same bytes again changes nothing and is counted once", 0, blobsAgain},
		{"own", "a session reads only what its own tree has put, although it knows the reference and others have the bytes", 0, blobsOwn},
		{"tenants", "a tenant's blobs do not exist for another tenant", 0, blobsTenants},
		{"tree", "what any session of a tree puts belongs to its root, and all of the tree can read it", 0, blobsTree},
		{"missing", "missing references are those that the session has not put, each once and in order", 0, blobsMissing},
		{"limit", "a blob that would exceed the limit of its session is refused and changes nothing", 0, blobsLimit},
		{"small", "the smallest blobs count as much as their references cost, so that the limit bounds how many there are", 0, blobsSmall},
		{"limit-race", "of concurrent blobs only as many are accepted as the limit allows", second, blobsLimitRace},
		{"invalid", "bad references, ids and sizes are refused before anything is written", 0, blobsInvalid},
		{"unknown", "a session that does not exist has no blobs and gets none", 0, blobsUnknown},
		{"clone", "a clone has all blobs of its source, wherever it begins, and keeps them when the source is deleted", alone, blobsClone},
		{"clone-child", "a clone of a session below another one has the blobs of the root", 0, blobsCloneChild},
		{"rewind", "a rewind drops no blob", 0, blobsRewind},
		{"delete", "a deleted session has no blobs, also not when its id is used again", 0, blobsDelete},
		{"sweep", "bytes are removed once they have had no reference for long enough, and not before", alone | clock, blobsSweep},
		{"sweep-limit", "a sweep removes the bytes of at most so many blobs", alone, blobsSweepLimit},
		{"sweep-race", "a sweep against puts, clones and deletions never leaves a reference without bytes", alone | second, blobsSweepRace},
		{"same", "concurrent puts of the same bytes by several sessions all succeed, and each can read them", second, blobsSame},
		{"delete-race", "a deletion against puts leaves no reference", alone | second, blobsDeleteRace},
		{"damaged", "bytes that were damaged are an error, and putting others still works", corrupt, blobsDamaged},
		{"reopen", "blobs outlive the process", alone | second | persistent, blobsReopen},
		{"cancelled", "a put whose context has ended stores nothing", 0, blobsCancelled},
		{"elsewhere", "a reference to bytes that are kept elsewhere is counted and kept like any other", 0, blobsElsewhere},
	}
}

// putBlob puts bytes, which must succeed.
func (t *bed) putBlob(id string, data []byte) blob.Stored {
	t.Helper()
	out, err := t.blobs().Put(t.Context(), &blob.Put{SessionID: id, Data: data})
	t.ok(err, "put a blob of "+id)
	equal(t, "reference", out.Ref, blob.RefOf(data))
	equal(t, "size", out.Size, int64(len(data)))
	return out
}

// hasBlob checks that a session can read bytes.
func (t *bed) hasBlob(id string, data []byte) {
	t.Helper()
	t.hasBlobAt(t.blobs(), id, data)
}

func (t *bed) hasBlobAt(s blob.Store, id string, data []byte) {
	t.Helper()
	t.hasKnown(s, id, knownBlob{blob.RefOf(data), data})
}

func (t *bed) hasKnown(s blob.Store, id string, known knownBlob) {
	t.Helper()
	got, err := s.Get(t.Context(), id, known.ref)
	t.ok(err, "get a blob of "+id)
	if !bytes.Equal(got, known.data) {
		t.Fatalf("a blob of %s: got %d bytes that are not the %d that were put", id, len(got), len(known.data))
	}
}

// lacksBlob checks that a session cannot read bytes, nor take over the reference.
func (t *bed) lacksBlob(id string, data []byte) {
	t.Helper()
	ref := blob.RefOf(data)
	_, err := t.blobs().Get(t.Context(), id, ref)
	t.refused(err, session.ErrNotFound, "get a blob of "+id)
	missing, err := t.blobs().Missing(t.Context(), id, []string{ref})
	if errors.Is(err, session.ErrNotFound) {
		return // there is no session
	}
	t.ok(err, "missing blobs of "+id)
	equal(t, "missing", missing, []string{ref})
	_, err = t.blobs().Get(t.Context(), id, ref)
	t.refused(err, session.ErrNotFound, "get a blob of "+id+" after asking for it")
}

// blobSize checks how many bytes the blobs of a session have.
func (t *bed) blobSize(id string, want int64) {
	t.Helper()
	got, err := t.blobs().Size(t.Context(), id)
	t.ok(err, "size of the blobs of "+id)
	equal(t, "size of the blobs of "+id, got, want)
}

// charged is what blobs count together.
func charged(blobs ...[]byte) (sum int64) {
	for _, data := range blobs {
		sum += blob.Charge(int64(len(data)))
	}
	return sum
}

// pattern returns bytes of a size that no piece repeats. The race detector would take
// longer for megabytes of them than most stores do.
//
//go:norace
func pattern(size int, seed byte) []byte {
	out := make([]byte, size)
	for i := range out {
		out[i] = byte(i) ^ byte(i>>8) ^ byte(i>>16)*31 ^ seed
	}
	return out
}

func blobsPut(t *bed) {
	t.create("a")
	largest := 2*blob.PieceBytes + 1
	if testshare.HasTurn(t, 0, 8) {
		largest = blob.MaxBytes
	}
	var total int64
	for _, data := range [][]byte{
		nil,
		{0},
		[]byte("text"), []byte("\x00\xff\xfe'\"\\\r\n"), pattern(blob.PieceBytes-1, 1),
		pattern(blob.PieceBytes, 2), pattern(blob.PieceBytes+1, 3), pattern(largest, 4),
	} {
		total += charged(data)
		equal(t, "total", t.putBlob("a", data).Total, total)
		t.hasBlob("a", data)
		t.hasBlobAt(t.blobsOf(t.second()), "a", data)
	}
	t.blobSize("a", total)
}

func blobsAgain(t *bed) {
	t.create("a")
	data := []byte("the same")
	first := t.putBlob("a", data)
	data2 := bytes.Clone(data)
	equal(t, "the second put", t.putBlob("a", data2), first)
	data2[0] = 'X' // the store shares no memory with its callers
	t.hasBlob("a", data)
	got, err := t.blobs().Get(t.Context(), "a", first.Ref)
	t.ok(err, "get")
	got[0] = 'Y'
	t.hasBlob("a", data)
	t.blobSize("a", charged(data))
}

func blobsOwn(t *bed) {
	t.create("a")
	t.create("b")
	data, other := []byte("of a"), []byte("of b")
	t.putBlob("a", data)
	t.putBlob("b", other)
	t.lacksBlob("b", data)
	t.lacksBlob("a", other)
	t.blobSize("b", charged(other))
	// Who has the bytes may put them, and still shares nothing.
	t.putBlob("b", data)
	t.hasBlob("b", data)
	t.ok(t.delete("a"), "delete")
	t.hasBlob("b", data)
	t.lacksBlob("a", data)
}

func blobsTenants(t *bed) {
	north, south := t.of("north"), t.of("south")
	north.create("a")
	south.create("a")
	data := []byte("of north")
	north.putBlob("a", data)
	south.lacksBlob("a", data)
	used, err := south.blobs().Referenced(t.Context(), blob.RefOf(data))
	t.ok(err, "Referenced")
	equal(t, "referenced by south", used, false)
	south.putBlob("a", data)
	t.ok(north.delete("a"), "delete")
	_, err = t.blobs().Sweep(t.Context(), 0, 1000)
	t.ok(err, "Sweep")
	south.hasBlob("a", data)
	north.create("a")
	north.lacksBlob("a", data)
}

func blobsTree(t *bed) {
	t.create("root")
	t.create("mid", below("root"))
	t.create("leaf", below("mid"))
	t.create("other", below("root"))
	deep, top := []byte("from the leaf"), []byte("from the root")
	t.putBlob("leaf", deep)
	equal(t, "total", t.putBlob("root", top).Total, charged(deep, top))
	for _, id := range []string{"root", "mid", "leaf", "other"} {
		t.hasBlob(id, deep)
		t.hasBlob(id, top)
		t.blobSize(id, charged(deep, top))
	}
	// Another tree sees nothing of it, at any depth, and keeps its own to itself.
	t.create("stranger")
	t.create("stranger-leaf", below("stranger"))
	mine := []byte("from another tree")
	t.putBlob("stranger-leaf", mine)
	for _, id := range []string{"stranger", "stranger-leaf"} {
		t.lacksBlob(id, deep)
		t.lacksBlob(id, top)
	}
	for _, id := range []string{"root", "leaf"} {
		t.lacksBlob(id, mine)
	}
	t.ok(t.delete("mid"), "delete a part of the tree")
	t.hasBlob("root", deep) // messages of others may name it
	t.ok(t.delete("root"), "delete")
	t.lacksBlob("root", deep)
}

// below makes a session a child of another.
func below(parent string) func(*session.State) {
	return func(s *session.State) { s.ParentID = parent }
}

func blobsMissing(t *bed) {
	t.create("a")
	t.create("b")
	have, his := []byte("mine"), []byte("his")
	t.putBlob("a", have)
	t.putBlob("b", his)
	mine, foreign, unknown := blob.RefOf(have), blob.RefOf(his), blob.RefOf([]byte("nobody's"))
	got, err := t.blobs().Missing(t.Context(), "a", []string{unknown, mine, foreign, unknown, mine})
	t.ok(err, "Missing")
	equal(t, "missing", got, []string{unknown, foreign})
	got, err = t.blobs().Missing(t.Context(), "a", []string{mine})
	t.ok(err, "Missing")
	equal(t, "missing", len(got), 0)
	got, err = t.blobs().Missing(t.Context(), "a", nil)
	t.ok(err, "Missing of none")
	equal(t, "missing", len(got), 0)
	t.lacksBlob("a", his)
}

func blobsLimit(t *bed) {
	t.create("a")
	put := func(data []byte, limit int64) error {
		_, err := t.blobs().Put(t.Context(), &blob.Put{SessionID: "a", Data: data, Limit: limit})
		return err
	}
	first, second := pattern(50_000, 1), pattern(20_000, 2)
	t.ok(put(first, 50_000), "a blob that just fits")
	e := t.refusal(put(second, 69_999), session.ErrTooLarge, "a blob too many")
	equal(t, "field", e.Field, "blobs")
	if !strings.Contains(e.Message, "69999") {
		t.Fatalf("the refusal does not name the limit: %v", e)
	}
	t.lacksBlob("a", second)
	t.blobSize("a", 50_000)
	t.ok(put(first, 50_000), "a blob that the session has")
	t.ok(put(first, 1), "a blob that the session has, with a limit that it exceeds")
	t.ok(put(second, 70_000), "a blob below a higher limit")
	t.ok(put(pattern(30_000, 3), 0), "a blob without a limit")
	t.blobSize("a", 100_000)
}

// blobsSmall puts so many of the smallest blobs that only their number exceeds the limit.
func blobsSmall(t *bed) {
	t.create("a")
	const fit = 20
	put := func(i int) error {
		_, err := t.blobs().Put(t.Context(), &blob.Put{SessionID: "a", Data: []byte{byte(i)}[:min(i, 1)], Limit: fit*blob.MinCharge + 1})
		return err
	}
	for i := range fit { // the first one is empty
		t.ok(put(i), "a small blob")
	}
	equal(t, "field", t.refusal(put(fit), session.ErrTooLarge, "a small blob too many").Field, "blobs")
	t.lacksBlob("a", []byte{fit})
	t.blobSize("a", fit*blob.MinCharge)
	t.ok(put(0), "a small blob that the session has")
	_, err := t.store().Clone(t.Context(), &session.Clone{From: "a", To: *blank("copy")})
	t.ok(err, "clone")
	t.blobSize("copy", fit*blob.MinCharge)
}

func blobsLimitRace(t *bed) {
	t.create("a")
	handles := []blob.Store{t.blobs(), t.blobsOf(t.second())}
	var accepted atomic.Int64
	together(racers, func(i int) {
		_, err := handles[i%2].Put(t.Context(), &blob.Put{SessionID: "a", Data: fmt.Appendf(nil, "blob %03d", i), Limit: 3*blob.MinCharge + 1})
		switch {
		case err == nil:
			accepted.Add(1)
		case !errors.Is(err, session.ErrTooLarge):
			t.Errorf("racer %d: %v", i, err)
		}
	})
	equal(t, "accepted", accepted.Load(), 3)
	t.blobSize("a", 3*blob.MinCharge)
}

func blobsInvalid(t *bed) {
	ctx := t.Context()
	t.create("a")
	_, err := t.blobs().Put(ctx, &blob.Put{SessionID: "a", Data: make([]byte, blob.MaxBytes+1)})
	equal(t, "field", t.refusal(err, session.ErrTooLarge, "a blob over the limit").Field, "blob")
	_, err = t.blobs().Put(ctx, &blob.Put{SessionID: "../a", Data: []byte("x")})
	t.refused(err, session.ErrInvalid, "a blob of a session with a bad id")
	good := blob.RefOf([]byte("x"))
	for _, ref := range []string{
		"", "sha256:", good[:len(good)-1], good + "0", "sha256:" + strings.Repeat("g", 64), strings.ToUpper(good),
		"sha256:" + strings.ToUpper(good[7:]), "md5:" + good[7:], "sha256:../../" + good[13:], good[7:],
	} {
		_, err := t.blobs().Get(ctx, "a", ref)
		equal(t, "field", t.refusal(err, session.ErrInvalid, "get "+ref).Field, "blob")
		_, err = t.blobs().Missing(ctx, "a", []string{good, ref})
		t.refused(err, session.ErrInvalid, "missing "+ref)
		_, err = t.blobs().Referenced(ctx, ref)
		t.refused(err, session.ErrInvalid, "referenced "+ref)
	}
	_, err = t.blobs().Missing(ctx, "a", make([]string, blob.MaxRefs+1))
	t.refused(err, session.ErrInvalid, "too many references")
	t.blobSize("a", 0)
}

func blobsUnknown(t *bed) {
	ctx := t.Context()
	_, err := t.blobs().Put(ctx, &blob.Put{SessionID: "none", Data: []byte("x")})
	t.refused(err, session.ErrNotFound, "put")
	_, err = t.blobs().Get(ctx, "none", blob.RefOf([]byte("x")))
	t.refused(err, session.ErrNotFound, "get")
	_, err = t.blobs().Missing(ctx, "none", []string{blob.RefOf([]byte("x"))})
	t.refused(err, session.ErrNotFound, "missing")
	_, err = t.blobs().Size(ctx, "none")
	t.refused(err, session.ErrNotFound, "size")
	t.create("none")
	t.lacksBlob("none", []byte("x"))
}

func blobsClone(t *bed) {
	ctx := t.Context()
	r := t.running("a")
	early, late, after := []byte("early"), pattern(blob.PieceBytes+5, 7), []byte("after")
	t.putBlob("a", early)
	r.commit(step(1, "cp1", user("u1", "x")))
	t.putBlob("a", late)
	r.commit(step(2, "cp2", user("u2", "x")))
	for name, clone := range map[string]*session.Clone{
		"whole":      {From: "a", To: *blank("whole")},
		"checkpoint": {From: "a", To: *blank("checkpoint"), CheckpointID: "cp1"},
		"count":      {From: "a", To: *blank("count"), MessageCount: new(0)},
	} {
		_, err := t.store().Clone(ctx, clone)
		t.ok(err, "clone "+name)
		t.blobSize(name, charged(early, late))
	}
	_, err := t.store().Clone(ctx, &session.Clone{From: "a", To: *blank("whole")})
	t.refused(err, session.ErrExists, "clone again")
	t.blobSize("whole", charged(early, late))
	// From now on they are apart.
	t.putBlob("a", after)
	t.lacksBlob("whole", after)
	t.putBlob("whole", []byte("of the clone"))
	t.lacksBlob("a", []byte("of the clone"))
	t.ok(t.delete("a"), "delete the source")
	_, err = t.blobs().Sweep(ctx, 0, 1000)
	t.ok(err, "Sweep")
	for _, id := range []string{"whole", "checkpoint", "count"} {
		t.hasBlob(id, early)
		t.hasBlob(id, late)
	}
}

func blobsCloneChild(t *bed) {
	t.create("root")
	t.create("child", below("root"))
	data := []byte("of the tree")
	t.putBlob("child", data)
	_, err := t.store().Clone(t.Context(), &session.Clone{From: "child", To: *blank("copy")})
	t.ok(err, "clone")
	t.ok(t.delete("root"), "delete")
	t.hasBlob("copy", data)
	t.blobSize("copy", charged(data))
}

func blobsRewind(t *bed) {
	r := t.running("a")
	r.commit(step(1, "cp1", user("u1", "x")))
	data := []byte("named behind the checkpoint")
	t.putBlob("a", data)
	r.commit(step(2, "cp2", user("u2", blob.RefOf(data))))
	r.finish(session.RunCompleted)
	start := t.startOf("a", "run-2")
	start.KeepMessages = new(1)
	t.begin(start)
	equal(t, "messages", t.load("a").MessageCount, 1)
	t.hasBlob("a", data)
	t.create("b")
	t.lacksBlob("b", data)
	// A branch from before the blob was put has it, too, and nobody else has.
	_, err := t.store().Clone(t.Context(), &session.Clone{From: "a", To: *blank("branch"), MessageCount: new(0)})
	t.ok(err, "clone")
	t.hasBlob("branch", data)
	t.lacksBlob("b", data)
}

func blobsDelete(t *bed) {
	t.create("a")
	t.create("b")
	data := pattern(100, 1)
	t.putBlob("a", data)
	t.ok(t.delete("a"), "delete")
	t.lacksBlob("a", data)
	used, err := t.blobs().Referenced(t.Context(), blob.RefOf(data))
	t.ok(err, "Referenced")
	equal(t, "referenced", used, false)
	t.create("a")
	t.lacksBlob("a", data)
	t.blobSize("a", 0)
	t.lacksBlob("b", data)
	t.putBlob("a", data)
	t.hasBlob("a", data)
}

// sweep removes unreferenced bytes and returns of how many blobs.
func (t *bed) sweep(age time.Duration, limit int) int {
	t.Helper()
	n, err := t.blobs().Sweep(t.Context(), age, limit)
	t.ok(err, "Sweep")
	return n
}

func blobsSweep(t *bed) {
	age := t.ttl()
	t.create("a")
	t.create("b")
	both, only := []byte("of both"), pattern(2*blob.PieceBytes, 3)
	t.putBlob("a", both)
	t.putBlob("b", both)
	t.putBlob("a", only)
	equal(t, "swept while all is referenced", t.sweep(0, 100), 0)
	t.ok(t.delete("a"), "delete")
	equal(t, "swept at once", t.sweep(time.Hour, 100), 0)
	t.pass(age + time.Millisecond)
	equal(t, "swept", t.sweep(age, 100), 1)
	equal(t, "swept again", t.sweep(age, 100), 0)
	t.hasBlob("b", both)
	t.create("a")
	t.lacksBlob("a", only)
	t.putBlob("a", only) // its bytes are written again
	t.hasBlob("a", only)
	// A reference that comes back in time saves the bytes.
	t.ok(t.delete("a"), "delete")
	t.putBlob("b", only)
	t.pass(age + time.Millisecond)
	equal(t, "swept after all", t.sweep(age, 100), 0)
	t.hasBlob("b", only)
	t.ok(t.delete("b"), "delete")
	t.pass(age + time.Millisecond)
	equal(t, "swept at the end", t.sweep(age, 100), 2)
}

func blobsSweepLimit(t *bed) {
	t.create("a")
	for i := range 5 {
		t.putBlob("a", fmt.Appendf(nil, "blob %d", i))
	}
	t.ok(t.delete("a"), "delete")
	equal(t, "swept with a limit of 0", t.sweep(0, 0), 0)
	equal(t, "swept first", t.sweep(0, 3), 3)
	equal(t, "swept then", t.sweep(0, 3), 2)
	equal(t, "swept at last", t.sweep(0, 3), 0)
}

// blobRaces is how often a blob is put and dropped against sweeps in soak; "make test"
// does a share.
const blobRaces = 1000

// blobsSweepRace lets several sessions refer to the same bytes and drop them, each at its
// own pace: so some put what the last of the others drops and a sweep removes.
func blobsSweepRace(t *bed) {
	ctx := t.Context()
	in := testshare.Has(t, 40)
	handles := []store.Backend{t.Backend, t.second()}
	var (
		stop     atomic.Bool
		sweeping sync.WaitGroup
		next     atomic.Int64
	)
	for _, b := range handles {
		sweeping.Go(func() {
			for !stop.Load() {
				if _, err := t.blobsOf(b).Sweep(ctx, 0, 1000); err != nil {
					t.Errorf("Sweep: %v", err)
					return
				}
			}
		})
	}
	data := [][]byte{[]byte("small"), pattern(blob.PieceBytes+1, 9)}
	together(2*len(handles), func(i int) {
		for n := next.Add(1); n <= blobRaces && !t.Failed(); n = next.Add(1) {
			if !in(int(n)) {
				continue
			}
			if err := t.referAndDrop(handles[i%len(handles)], fmt.Sprint("race-", n), data[i/len(handles)]); err != nil {
				t.Errorf("round %d: %v", n, err)
			}
		}
	})
	stop.Store(true)
	sweeping.Wait()
}

// referAndDrop puts a blob, passes it to a copy, and deletes the source and then the copy.
// Each must be able to read it.
func (t *bed) referAndDrop(b store.Backend, id string, data []byte) error {
	ctx, sessions, blobs := t.Context(), t.sessionsOf(b), t.blobsOf(b)
	if err := session.Create(ctx, sessions, blank(id)); err != nil {
		return err
	}
	put, err := blobs.Put(ctx, &blob.Put{SessionID: id, Data: data})
	if err != nil {
		return err
	}
	if _, err := blobs.Get(ctx, id, put.Ref); err != nil {
		return err
	}
	copied := id + "-copy"
	if _, err := sessions.Clone(ctx, &session.Clone{From: id, To: *blank(copied)}); err != nil {
		return err
	}
	if _, err := sessions.Delete(ctx, id); err != nil {
		return err
	}
	missing, err := blobs.Missing(ctx, copied, []string{put.Ref})
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("%s misses the blob of its source", copied)
	}
	if err != nil {
		return err
	}
	if _, err := blobs.Get(ctx, copied, put.Ref); err != nil {
		return err
	}
	_, err = sessions.Delete(ctx, copied)
	return err
}

func blobsSame(t *bed) {
	handles := []blob.Store{t.blobs(), t.blobsOf(t.second())}
	data := pattern(blob.PieceBytes+3, 5)
	for i := range racers / 2 {
		t.create(fmt.Sprint("s", i))
	}
	together(racers, func(i int) {
		_, err := handles[i%2].Put(t.Context(), &blob.Put{SessionID: fmt.Sprint("s", i/2), Data: data})
		if err != nil {
			t.Errorf("put %d: %v", i, err)
		}
	})
	for i := range racers / 2 {
		t.hasBlob(fmt.Sprint("s", i), data)
		t.blobSize(fmt.Sprint("s", i), charged(data))
	}
}

func blobsDeleteRace(t *bed) {
	for n := range 10 {
		id := fmt.Sprint("a", n)
		t.create(id)
		together(4, func(i int) {
			if i == 0 {
				if err := t.delete(id); err != nil {
					t.Errorf("delete: %v", err)
				}
				return
			}
			_, err := t.blobsOf(t.second()).Put(t.Context(), &blob.Put{SessionID: id, Data: []byte{byte(i), byte(n)}})
			if err != nil && !errors.Is(err, session.ErrNotFound) {
				t.Errorf("put: %v", err)
			}
		})
		for i := 1; i < 4; i++ {
			data := []byte{byte(i), byte(n)}
			used, err := t.blobs().Referenced(t.Context(), blob.RefOf(data))
			t.ok(err, "Referenced")
			equal(t, "referenced after the deletion", used, false)
		}
	}
}

func blobsDamaged(t *bed) {
	t.create("a")
	data := pattern(blob.PieceBytes+10, 6)
	ref := t.putBlob("a", data).Ref
	t.Corrupt(t, RowBlob, t.tenant, "a")
	for _, s := range []blob.Store{t.blobs(), t.blobsOf(t.reopened())} {
		_, err := s.Get(t.Context(), "a", ref)
		t.refused(err, session.ErrCorrupt, "get damaged bytes")
	}
	t.putBlob("a", []byte("others"))
	t.hasBlob("a", []byte("others"))
	t.ok(t.delete("a"), "delete")
}

func blobsReopen(t *bed) {
	t.create("a")
	data := pattern(3*blob.PieceBytes+1, 8)
	t.putBlob("a", data)
	t.ok(t.Backend.Close(), "Close")
	_, err := t.blobs().Get(t.Context(), "a", blob.RefOf(data))
	t.refused(err, session.ErrClosed, "get from a closed store")
	_, err = t.blobs().Put(t.Context(), &blob.Put{SessionID: "a", Data: data})
	t.refused(err, session.ErrClosed, "put into a closed store")
	t.hasBlobAt(t.blobsOf(t.second()), "a", data)
}

func blobsCancelled(t *bed) {
	t.create("a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := t.blobs().Put(ctx, &blob.Put{SessionID: "a", Data: []byte("x")}); !errors.Is(err, context.Canceled) {
		t.Fatalf("put with a context that has ended: %v", err)
	}
	t.lacksBlob("a", []byte("x"))
	t.blobSize("a", 0)
}

func blobsElsewhere(t *bed) {
	t.create("a")
	t.create("b")
	data := []byte("kept elsewhere")
	ref := blob.RefOf(data)
	out, err := t.blobs().Put(t.Context(), &blob.Put{SessionID: "a", Data: data, Elsewhere: true})
	t.ok(err, "put")
	equal(t, "stored", out, blob.Stored{Ref: ref, Size: int64(len(data)), Total: charged(data)})
	missing, err := t.blobs().Missing(t.Context(), "a", []string{ref})
	t.ok(err, "Missing")
	equal(t, "missing", len(missing), 0)
	if _, err = t.blobs().Get(t.Context(), "a", ref); err != nil { // a store that keeps all bytes apart has them
		t.refused(err, session.ErrCorrupt, "get bytes that are not here")
	}
	used, err := t.blobs().Referenced(t.Context(), ref)
	t.ok(err, "Referenced")
	equal(t, "referenced", used, true)
	// A store that has the bytes gives them to all that have the reference.
	t.putBlob("b", data)
	t.hasBlob("a", data)
	t.blobSize("a", charged(data))
	t.ok(t.delete("a"), "delete")
	t.ok(t.delete("b"), "delete")
	used, err = t.blobs().Referenced(t.Context(), ref)
	t.ok(err, "Referenced")
	equal(t, "referenced once all are deleted", used, false)
}
