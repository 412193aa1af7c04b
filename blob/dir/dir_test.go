package dir_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/blob/dir"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/sqlite"
	"github.com/helixagents/helix/store/storetest"
)

// TestBackend runs the store suite on sessions in SQLite with bytes in a directory.
func TestBackend(t *testing.T) {
	t.Parallel()
	storetest.RunShare(t, 8, func(t testing.TB) storetest.Harness {
		at := t.TempDir()
		connect := func(t testing.TB) store.Backend { return open(t, at) }
		return storetest.Harness{
			Backend: connect(t), Reopen: connect, Persistent: true,
			Corrupt: func(t testing.TB, what, _, _ string) {
				if what != storetest.RowBlob {
					t.Skip("the tests of SQLite damage the others")
				}
				for _, file := range files(t, filepath.Join(at, "blobs", "tenants")) {
					if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			},
		}
	}, "blobs", "crash", "lifecycle")
}

func open(t testing.TB, at string) store.Backend {
	t.Helper()
	db, err := sqlite.Open(filepath.Join(at, "helix.db"))
	if err != nil {
		t.Fatal(err)
	}
	kept, err := dir.Open(filepath.Join(at, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return store.Mix{SessionsOf: db, StreamsOf: db, LocksOf: db, BlobBytes: kept}
}

// files lists the files with bytes below a directory.
func files(t testing.TB, at string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(at, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && entry.Name() != "name" {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestFiles requires that bytes are in files and not in the store, that no name of a
// tenant becomes a path, and that a sweep removes the files of deleted sessions.
func TestFiles(t *testing.T) {
	t.Parallel()
	ctx, at := t.Context(), t.TempDir()
	backend := open(t, at)
	data := bytes.Repeat([]byte("not in the database "), 1<<16)
	for _, tenant := range []string{"plain", "../../up", "a/b", "", strings.Repeat("long", 60), "CON", "é\n"} {
		sessions := backend.Sessions().Tenant(tenant)
		if err := session.Create(ctx, sessions, &session.State{ID: "a", Agent: "x", Status: session.Active, StreamID: "a"}); err != nil {
			t.Fatal(err)
		}
		blobs := backend.Blobs().Tenant(tenant)
		put, err := blobs.Put(ctx, &blob.Put{SessionID: "a", Data: data})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := blobs.Get(ctx, "a", put.Ref); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("tenant %q: got %d bytes, %v", tenant, len(got), err)
		}
	}
	kept := filepath.Join(at, "blobs", "tenants")
	if n := len(files(t, kept)); n != 7 {
		t.Errorf("7 tenants have %d files", n)
	}
	if info, err := os.Stat(filepath.Join(at, "helix.db")); err != nil || info.Size() > int64(len(data)) {
		t.Errorf("the database has %d bytes, %v", info.Size(), err)
	}
	if _, err := os.Stat(filepath.Join(at, "up")); err == nil {
		t.Error("a tenant's name became a path")
	}
	if _, err := backend.Sessions().Tenant("plain").Delete(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if n, err := backend.Blobs().Sweep(ctx, time.Hour, 100); n != 0 || err != nil {
		t.Errorf("swept too early: %d, %v", n, err)
	}
	// What a process left that died while it wrote.
	left := filepath.Join(filepath.Dir(files(t, kept)[0]), ".tmp-1")
	if err := os.WriteFile(left, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(left, time.Time{}, time.Now().Add(-2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if n, err := backend.Blobs().Sweep(ctx, 0, 100); n != 1 || err != nil {
		t.Errorf("swept %d, %v", n, err)
	}
	if n := len(files(t, kept)); n != 6 {
		t.Errorf("%d files are left", n)
	}
}

// TestLostFile requires that a reference without its file is reported, and that putting
// the bytes again repairs it.
func TestLostFile(t *testing.T) {
	t.Parallel()
	ctx, at := t.Context(), t.TempDir()
	backend := open(t, at)
	if err := session.Create(ctx, backend.Sessions(), &session.State{ID: "a", Agent: "x", Status: session.Active, StreamID: "a"}); err != nil {
		t.Fatal(err)
	}
	put := &blob.Put{SessionID: "a", Data: []byte("lost")}
	stored, err := backend.Blobs().Put(ctx, put)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(files(t, filepath.Join(at, "blobs", "tenants"))[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := backend.Blobs().Get(ctx, "a", stored.Ref); session.AsError(err).Code != session.CodeCorrupt {
		t.Errorf("get: %v", err)
	}
	missing, err := backend.Blobs().Missing(ctx, "a", []string{stored.Ref})
	if err != nil || len(missing) != 1 {
		t.Errorf("missing: %v, %v", missing, err)
	}
	if _, err := backend.Blobs().Put(ctx, put); err != nil {
		t.Fatal(err)
	}
	if got, err := backend.Blobs().Get(ctx, "a", stored.Ref); err != nil || string(got) != "lost" {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestBlobsOfBefore requires that blobs stay readable that the store itself has kept
// before a directory was configured.
func TestBlobsOfBefore(t *testing.T) {
	t.Parallel()
	ctx, at := t.Context(), t.TempDir()
	backend := open(t, at).(store.Mix)
	if err := session.Create(ctx, backend.Sessions(), &session.State{ID: "a", Agent: "x", Status: session.Active, StreamID: "a"}); err != nil {
		t.Fatal(err)
	}
	stored, err := backend.SessionsOf.Blobs().Put(ctx, &blob.Put{SessionID: "a", Data: []byte("of before")})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := backend.Blobs().Get(ctx, "a", stored.Ref); err != nil || string(got) != "of before" {
		t.Errorf("got %q, %v", got, err)
	}
	if missing, err := backend.Blobs().Missing(ctx, "a", []string{stored.Ref}); err != nil || len(missing) != 0 {
		t.Errorf("missing: %v, %v", missing, err)
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	if _, err := dir.Open(""); session.AsError(err).Code != session.CodeInvalid {
		t.Errorf("an empty path: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := dir.Open(file); session.AsError(err).Code != session.CodeUnavailable {
		t.Errorf("a path that is a file: %v", err)
	}
}
