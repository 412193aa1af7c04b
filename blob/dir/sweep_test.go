package dir_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/blob/dir"
	"github.com/helixagents/helix/internal/eventually"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
)

// filled returns a directory with a number of blobs of each of two tenants.
func filled(t *testing.T, at string, each int) (d *dir.Dir, refs []string) {
	t.Helper()
	d, err := dir.Open(at)
	if err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []string{"north", "south"} {
		for i := range each {
			data := fmt.Appendf(nil, "%s %d", tenant, i)
			if err := d.Write(t.Context(), tenant, blob.RefOf(data), data); err != nil {
				t.Fatal(err)
			}
			refs = append(refs, tenant+" "+blob.RefOf(data))
		}
	}
	slices.Sort(refs)
	return d, refs
}

// TestEachIsBounded requires that a call looks at few files, that the next one continues,
// also in another process, and that no blob is left out.
func TestEachIsBounded(t *testing.T) {
	t.Parallel()
	at := t.TempDir()
	d, refs := filled(t, at, 30)
	for _, limit := range []int{1, 7, 1000} {
		for range 2 { // round and round
			seen := map[string]int{}
			calls := 0
			for ; len(seen) < len(refs) && calls < 1000; calls++ {
				done := 0
				err := d.Each(t.Context(), 0, limit, func(tenant, ref string) error {
					done++
					seen[tenant+" "+ref]++
					return nil
				})
				if err != nil || done > limit {
					t.Fatalf("a call for %d: %d, %v", limit, done, err)
				}
				if d, err = dir.Open(at); err != nil {
					t.Fatal(err)
				}
			}
			if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, refs) {
				t.Fatalf("with a limit of %d, %d calls saw %d of %d blobs", limit, calls, len(got), len(refs))
			}
			if limit == 1000 && calls > 1 {
				t.Errorf("%d calls for a directory below the limit", calls)
			}
		}
	}
	// A blob that fails does not keep the others from their turn.
	seen := map[string]bool{}
	for range refs {
		_ = d.Each(t.Context(), 0, 1000, func(tenant, ref string) error {
			seen[tenant+" "+ref] = true
			return session.ErrUnavailable
		})
	}
	if len(seen) != len(refs) {
		t.Errorf("%d of %d blobs had their turn although each failed", len(seen), len(refs))
	}
	if err := os.WriteFile(filepath.Join(at, "place"), []byte("~ no place"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := 0
	if err := d.Each(t.Context(), 0, 1000, func(string, string) error { n++; return nil }); err != nil || n != len(refs) {
		t.Errorf("after a damaged place: %d, %v", n, err)
	}
}

// sessions creates sessions that have one blob each.
func sessions(t *testing.T, backend store.Backend, count int) {
	t.Helper()
	for i := range count {
		id := fmt.Sprint("s", i)
		if err := session.Create(t.Context(), backend.Sessions(), &session.State{ID: id, Agent: "x", Status: session.Active, StreamID: id}); err != nil {
			t.Fatal(err)
		}
		if _, err := backend.Blobs().Put(t.Context(), &blob.Put{SessionID: id, Data: []byte(id)}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSweepsTogether requires that of several sweeps at once each removes other files, and
// none those that are referenced.
func TestSweepsTogether(t *testing.T) {
	t.Parallel()
	at, handles := t.TempDir(), make([]store.Backend, 3)
	for i := range handles {
		handles[i] = open(t, at)
	}
	sessions(t, handles[0], 60)
	for i := range 40 {
		if _, err := handles[0].Sessions().Delete(t.Context(), fmt.Sprint("s", i)); err != nil {
			t.Fatal(err)
		}
	}
	var (
		removed atomic.Int64
		working sync.WaitGroup
	)
	for _, backend := range handles {
		working.Go(func() {
			n, err := backend.Blobs().Sweep(t.Context(), 0, 1000)
			if err != nil {
				t.Error(err)
			}
			removed.Add(int64(n))
		})
	}
	working.Wait()
	if n := len(files(t, filepath.Join(at, "blobs", "tenants"))); removed.Load() != 40 || n != 20 {
		t.Errorf("the sweeps removed %d files and left %d", removed.Load(), n)
	}
	for i := 40; i < 60; i++ {
		id := fmt.Sprint("s", i)
		if _, err := handles[1].Blobs().Get(t.Context(), id, blob.RefOf([]byte(id))); err != nil {
			t.Error(err)
		}
	}
}

// TestSweepBesideStuckProcess requires that a process that hangs while it puts a blob keeps
// nobody from removing others, nor from opening the directory.
func TestSweepBesideStuckProcess(t *testing.T) {
	t.Parallel()
	ctx, at := t.Context(), t.TempDir()
	backend := open(t, at)
	sessions(t, backend, 2)
	refs := []string{blob.RefOf([]byte("s0")), blob.RefOf([]byte("s1"))}
	for _, id := range []string{"s0", "s1"} {
		if _, err := backend.Sessions().Delete(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	other, err := dir.Open(filepath.Join(at, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	held := []func(){}
	for _, ref := range []string{refs[0], "sha256:" + strings.Repeat("0", 64)} {
		release, err := other.Hold(ctx, "default", ref)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, release)
	}
	if n, err := open(t, at).Blobs().Sweep(eventually.Context(t), 0, 100); n != 1 || err != nil {
		t.Errorf("swept %d, %v", n, err)
	}
	for _, release := range held {
		release()
	}
	if n, err := backend.Blobs().Sweep(ctx, 0, 100); n != 1 || err != nil {
		t.Errorf("swept %d once the process is gone, %v", n, err)
	}
}

// TestForeignFiles requires that no symbolic link is followed and nothing is removed that
// is not the directory's own, while files of dead processes are.
func TestForeignFiles(t *testing.T) {
	t.Parallel()
	ctx, at := t.Context(), t.TempDir()
	backend := open(t, at)
	sessions(t, backend, 1)
	if _, err := backend.Sessions().Delete(ctx, "s0"); err != nil {
		t.Fatal(err)
	}
	tenants := filepath.Join(at, "blobs", "tenants")
	mine := files(t, tenants)[0]
	shard := filepath.Dir(mine)
	tenant := filepath.Dir(shard)
	digits := func(first string) string { return first + strings.Repeat("0", 64-len(first)) }
	here := filepath.Base(shard)

	outside := t.TempDir()
	old := time.Now().Add(-48 * time.Hour)
	write := func(path string) string {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("foreign"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
		return path
	}
	link := func(target, path string) string {
		t.Helper()
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	stay := []string{
		write(filepath.Join(outside, "file")),
		write(filepath.Join(outside, digits("ee"))),
		write(filepath.Join(outside, "ee", digits("ee"))),
		write(filepath.Join(tenants, "notes.txt")),
		write(filepath.Join(tenants, ".nfs0001")),
		write(filepath.Join(tenants, "lost+found", "#123")),
		write(filepath.Join(tenants, digits("")[:32], here, digits(here))), // of no tenant
		write(filepath.Join(tenant, digits("12"))),
		write(filepath.Join(tenant, "deep", here, digits(here))),
		write(filepath.Join(shard, "README")),
		write(filepath.Join(shard, ".tmp-of-somebody")),
		write(filepath.Join(shard, strings.ToUpper(digits("ab")))),
		write(filepath.Join(shard, digits(here+"1")+".part")),
		link(filepath.Join(outside, "file"), filepath.Join(shard, digits(here+"2"))),
		link(filepath.Join(outside, "file"), filepath.Join(shard, ".tmp-7")),
		link(outside, filepath.Join(tenants, digits("f")[:32])),
	}
	if here != "ee" {
		stay = append(stay, link(filepath.Join(outside, "ee"), filepath.Join(tenant, "ee")))
	}
	if err := os.Mkdir(filepath.Join(shard, digits(here+"3")), 0o700); err != nil {
		t.Fatal(err)
	}
	gone := []string{ // of processes that died
		write(filepath.Join(shard, ".tmp-12")), write(filepath.Join(tenant, ".tmp-34")),
		write(filepath.Join(tenants, digits("a")[:32], ".tmp-56")), // before the tenant's name was written
		mine,
	}
	young := filepath.Join(shard, ".tmp-99") // somebody may be writing it
	if err := os.WriteFile(young, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := backend.Blobs().Sweep(ctx, 0, 1000); n != 1 || err != nil {
		t.Errorf("swept %d, %v", n, err)
	}
	for _, path := range append(stay, young) {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("the sweep has removed what is not its own: %v", err)
		}
	}
	for _, path := range gone {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("the sweep has left %s", path)
		}
	}
}

// TestSymbolicLinks requires that bytes are neither read nor written through a link.
func TestSymbolicLinks(t *testing.T) {
	t.Parallel()
	ctx, at, outside := t.Context(), t.TempDir(), t.TempDir()
	d, err := dir.Open(at)
	if err != nil {
		t.Fatal(err)
	}
	data := []byte("data")
	ref := blob.RefOf(data)
	if err := d.Write(ctx, "a", ref, data); err != nil {
		t.Fatal(err)
	}
	file := files(t, filepath.Join(at, "tenants"))[0]
	shard := filepath.Dir(file)
	if err := os.Rename(shard, filepath.Join(outside, "shard")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(outside, "shard"), shard); err != nil {
		t.Fatal(err)
	}
	if has, err := d.Has(ctx, "a", ref); has || err != nil {
		t.Errorf("through a directory that is a link: %v, %v", has, err)
	}
	if _, err := d.Read(ctx, "a", ref); session.AsError(err).Code != session.CodeNotFound {
		t.Errorf("read through a directory that is a link: %v", err)
	}
	if removed, err := d.Remove(ctx, "a", ref); removed || err != nil {
		t.Errorf("removed through a directory that is a link: %v, %v", removed, err)
	}
	if err := d.Write(ctx, "a", ref, data); session.AsError(err).Code != session.CodeUnavailable || !strings.Contains(fmt.Sprint(err), "not a directory") {
		t.Errorf("write through a directory that is a link: %v", err)
	}
	if err := os.Remove(shard); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(shard, 0o700); err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(outside, "target")
	if err := os.WriteFile(target, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, file); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Read(ctx, "a", ref); session.AsError(err).Code != session.CodeNotFound {
		t.Errorf("read through a link: %v", err)
	}
	if err := d.Write(ctx, "a", ref, data); err != nil { // in the place of the link
		t.Fatal(err)
	}
	if info, err := os.Lstat(file); err != nil || !info.Mode().IsRegular() {
		t.Errorf("the file is %v, %v", info, err)
	}
	if got, err := os.ReadFile(target); err != nil || string(got) != "data" {
		t.Errorf("the target of the link is %q, %v", got, err)
	}
}

// TestEachPastDamage requires that a directory that cannot be read is reported, and keeps
// no blob of another tenant from its turn, wherever it is.
func TestEachPastDamage(t *testing.T) {
	t.Parallel()
	for i, damaged := range []string{"north", "south"} {
		for _, limit := range []int{1, 7, 1000} {
			at := t.TempDir()
			d, refs := filled(t, at, 10)
			names, err := filepath.Glob(filepath.Join(at, "tenants", "*", "name"))
			if err != nil || len(names) != 2 {
				t.Fatal(names, err)
			}
			for _, name := range names {
				tenant, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				if string(tenant) != damaged {
					continue
				}
				if err := os.Remove(name); err != nil {
					t.Fatal(err)
				}
				if err := os.Mkdir(name, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			other := refs[len(refs)/2*(1-i):][:len(refs)/2] // they are sorted by tenant
			seen, reported := map[string]bool{}, false
			for range 200 {
				err := d.Each(t.Context(), 0, limit, func(tenant, ref string) error {
					seen[tenant+" "+ref] = true
					return nil
				})
				reported = reported || errors.Is(err, session.ErrUnavailable)
			}
			if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, other) || !reported {
				t.Errorf("%s damaged, a limit of %d: %d of %d blobs were seen, reported: %v", damaged, limit, len(got), len(other), reported)
			}
		}
	}
}
