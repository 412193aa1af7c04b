package dir_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store"
	"github.com/helixagents/helix/store/storetest"
)

// unreliable is a directory of which one operation fails, before or after it is done.
type unreliable struct {
	blob.Bytes
	op   string
	when storetest.When
}

var errInjected = session.ErrUnavailable.WithMessage("injected")

func (u *unreliable) fail(op string, do func() error) error {
	if u.op != op {
		return do()
	}
	if u.when == storetest.Before {
		return errInjected
	}
	return errors.Join(do(), errInjected)
}

func (u *unreliable) Hold(ctx context.Context, tenant, ref string) (release func(), err error) {
	err = u.fail("hold", func() error { release, err = u.Bytes.Hold(ctx, tenant, ref); return err })
	if err != nil && release != nil {
		release() // as the end of the process does
	}
	return release, err
}

func (u *unreliable) Write(ctx context.Context, tenant, ref string, data []byte) error {
	return u.fail("write", func() error { return u.Bytes.Write(ctx, tenant, ref, data) })
}

func (u *unreliable) Remove(ctx context.Context, tenant, ref string) (removed bool, err error) {
	err = u.fail("remove", func() error { removed, err = u.Bytes.Remove(ctx, tenant, ref); return err })
	return removed, err
}

// TestFaults has each part of a put and of a sweep fail, before and after it is done, and
// requires that a session never counts a blob as present that it cannot read, and that
// trying again leads to the same state as if nothing had failed.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"reference", "hold", "write", "remove"} {
		for _, when := range []storetest.When{storetest.Before, storetest.After} {
			t.Run(fmt.Sprint(op, " ", when), func(t *testing.T) {
				t.Parallel()
				testFault(t, op, when)
			})
		}
	}
}

func testFault(t *testing.T, op string, when storetest.When) {
	ctx, at := t.Context(), t.TempDir()
	whole := open(t, at).(store.Mix)
	faults := storetest.NewFaults(whole.SessionsOf)
	if op == "reference" {
		faults.Fail(storetest.On("PutBlob", 1, when))
	}
	broken := store.Mix{SessionsOf: faults, StreamsOf: faults, LocksOf: faults, BlobBytes: &unreliable{whole.BlobBytes, op, when}}
	for _, id := range []string{"a", "b"} {
		if err := session.Create(ctx, whole.Sessions(), &session.State{ID: id, Agent: "x", Status: session.Active, StreamID: id}); err != nil {
			t.Fatal(err)
		}
	}
	put := &blob.Put{SessionID: "a", Data: []byte("some bytes")}
	ref := blob.RefOf(put.Data)
	consistent := func() (has bool) {
		t.Helper()
		missing, err := whole.Blobs().Missing(ctx, "a", []string{ref})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := whole.Blobs().Get(ctx, "a", ref); len(missing) == 0 && (err != nil || !bytes.Equal(got, put.Data)) {
			t.Errorf("a blob that is not missing: %q, %v", got, err)
		}
		if _, err := whole.Blobs().Get(ctx, "b", ref); !errors.Is(err, session.ErrNotFound) {
			t.Errorf("another session: %v", err)
		}
		return len(missing) == 0
	}
	_, err := broken.Blobs().Put(ctx, put)
	if failed := op != "remove"; failed != errors.Is(err, session.ErrUnavailable) {
		t.Fatalf("put: %v", err)
	}
	consistent()
	if _, err := whole.Blobs().Sweep(ctx, 0, 100); err != nil {
		t.Fatal(err)
	}
	stored, err := whole.Blobs().Put(ctx, put)
	if err != nil || stored.Total != blob.MinCharge {
		t.Fatalf("put again: %+v, %v", stored, err)
	}
	if !consistent() {
		t.Error("the blob is missing after it was put again")
	}
	if _, err := whole.Sessions().Delete(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	_, err = broken.Blobs().Sweep(ctx, 0, 100)
	if failed := op == "remove" || op == "hold"; failed != errors.Is(err, session.ErrUnavailable) {
		t.Errorf("sweep: %v", err)
	}
	if _, err := whole.Blobs().Sweep(ctx, 0, 100); err != nil {
		t.Fatal(err)
	}
	if left := files(t, filepath.Join(at, "blobs", "tenants")); len(left) > 0 {
		t.Errorf("%q are left", left)
	}
}
