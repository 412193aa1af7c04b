package storetest

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/helixagents/helix/blob"
	"github.com/helixagents/helix/lock"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

func TestFaultsPassEverythingElse(t *testing.T) {
	t.Parallel()
	// The wrapper must satisfy the suite like the backend it wraps.
	RunShare(t, 4, func(t testing.TB) Harness {
		h := openMemory(t)
		h.Backend = NewFaults(h.Backend)
		return h
	})
}

func TestFaultsCount(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := NewFaults(openMemory(t).Backend)
	s := f.Sessions()
	must(t, session.Create(ctx, s, blank("a")))
	must(t, session.Create(ctx, s.Tenant("other"), blank("b")))
	if _, err := s.Load(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	must(t, session.PatchMetadata(ctx, s, "a", nil))
	if f.Count() != 3 || f.Count("Edit") != 3 || f.Count("Edit", "Commit") != 3 || f.Count("Commit") != 0 {
		t.Errorf("counts: %d in all, %d edits", f.Count(), f.Count("Edit"))
	}
	want := []Op{
		{N: 1, Nth: 1, Name: "Edit", Tenant: "default", ID: "a"},
		{N: 2, Nth: 2, Name: "Edit", Tenant: "other", ID: "b"},
		{N: 3, Nth: 3, Name: "Edit", Tenant: "default", ID: "a"},
	}
	if got := f.Log(); !slices.Equal(got, want) {
		t.Errorf("log: got %+v, want %+v", got, want)
	}
	f.Reset()
	if f.Count() != 0 || len(f.Log()) != 0 {
		t.Errorf("after a reset %d writes are counted", f.Count())
	}
}

func TestFaultsFailWhereTold(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := NewFaults(openMemory(t).Backend)
	s := f.Sessions()
	f.Fail(At(1, Before))
	err := session.Create(ctx, s, blank("a"))
	if !errors.Is(err, session.ErrUnavailable) || !session.IsRetryable(err) || !strings.Contains(err.Error(), "injected") {
		t.Errorf("a fault before: got %v", err)
	}
	if ok, _ := s.Exists(ctx, "a"); ok {
		t.Error("a write that failed before it was applied was applied")
	}
	f.Fail(On("Edit", 2, After))
	if err := session.Create(ctx, s, blank("a")); !errors.Is(err, session.ErrUnavailable) {
		t.Errorf("a fault after: got %v", err)
	}
	if ok, _ := s.Exists(ctx, "a"); !ok {
		t.Error("a write that failed after it was applied was not applied")
	}
	// A fault after the write does not hide the backend's own refusal.
	f.Fail(func(Op) When { return After })
	if err := session.Create(ctx, s, blank("a")); !errors.Is(err, session.ErrExists) {
		t.Errorf("a refused write with a fault after: got %v", err)
	}
	mine := errors.New("mine")
	f.FailWith(mine)
	if err := session.Create(ctx, s.Tenant("other"), blank("a")); !errors.Is(err, mine) {
		t.Errorf("a fault with an error of one's own: got %v", err)
	}
	f.Fail(nil)
	must(t, session.Create(ctx, s, blank("b")))
}

func TestFaultsCut(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	h := openMemory(t)
	f := NewFaults(h.Backend)
	f.Fail(func(op Op) When {
		if op.N < 2 {
			return Pass
		}
		f.Cut()
		return After
	})
	must(t, session.Create(ctx, f.Sessions(), blank("a")))
	if err := session.Create(ctx, f.Sessions(), blank("b")); !errors.Is(err, session.ErrUnavailable) {
		t.Errorf("the write of the cut: got %v", err)
	}
	if _, err := f.Sessions().Load(ctx, "a"); !errors.Is(err, session.ErrUnavailable) {
		t.Errorf("a read after the cut: got %v", err)
	}
	if err := session.Create(ctx, f.Sessions(), blank("c")); !errors.Is(err, session.ErrUnavailable) {
		t.Errorf("a write after the cut: got %v", err)
	}
	for _, err := range f.Streams().Read(ctx, "a", 0, false) {
		if !errors.Is(err, session.ErrUnavailable) {
			t.Errorf("a reading after the cut: got %v", err)
		}
	}
	for id, want := range map[string]bool{"a": true, "b": true, "c": false} {
		if ok, _ := h.Backend.Sessions().Exists(ctx, id); ok != want {
			t.Errorf("%s exists: %v, want %v", id, ok, want)
		}
	}
	f.Restore()
	f.Fail(nil)
	if _, err := f.Sessions().Load(ctx, "b"); err != nil {
		t.Errorf("after Restore: %v", err)
	}
}

// TestFaultsKnowEveryWrite calls every method of the interfaces and checks
// which count as writes, so that a method added later is not forgotten.
func TestFaultsKnowEveryWrite(t *testing.T) {
	t.Parallel()
	f := NewFaults(openMemory(t).Backend)
	f.Fail(func(Op) When { return Before })
	for _, of := range []struct {
		value any
		as    reflect.Type
	}{
		{f.Sessions(), reflect.TypeFor[session.Store]()},
		{f.Streams(), reflect.TypeFor[stream.Manager]()},
		{f.Blobs(), reflect.TypeFor[blob.Store]()},
		{f.Locks(), reflect.TypeFor[lock.Manager]()},
	} {
		for method := range of.as.Methods() {
			name := method.Name
			if name == "Read" && of.as == reflect.TypeFor[stream.Manager]() {
				continue // an iterator, not a write
			}
			callZero(t, reflect.ValueOf(of.value).MethodByName(name))
		}
	}
	f.RenewLeases(t.Context(), make([]session.Held, 1), time.Hour)
	var got []string
	for _, op := range f.Log() {
		got = append(got, op.Name)
	}
	want := Writes()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("writes made: %v\nwrites listed: %v", got, want)
	}
}

// callZero calls a method with empty arguments.
func callZero(t *testing.T, method reflect.Value) {
	t.Helper()
	var args []reflect.Value
	for in := range method.Type().Ins() {
		switch {
		case in == reflect.TypeFor[context.Context]():
			args = append(args, reflect.ValueOf(t.Context()))
		case in.Kind() == reflect.Pointer:
			args = append(args, reflect.New(in.Elem()))
		default:
			args = append(args, reflect.Zero(in))
		}
	}
	method.Call(args)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestFaultsOnAppend(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	h := openMemory(t)
	f := NewFaults(h.Backend)
	if _, err := f.Streams().Reactivate(ctx, "a", producer("a", 1)); err != nil {
		t.Fatal(err)
	}
	batch := stream.Batch{Producer: producer("a", 1), First: 1, Chunks: numberedTexts(1, 2)}
	f.Fail(On("Append", 1, After))
	if _, err := f.Streams().Append(ctx, "a", batch); !errors.Is(err, session.ErrUnavailable) {
		t.Fatalf("append with a fault after: %v", err)
	}
	out, err := f.Streams().Append(ctx, "a", batch)
	if err != nil {
		t.Fatal(err)
	}
	if last, err := out.Wait(ctx); err != nil || last != 2 {
		t.Fatalf("the repeated batch ends at %d, %v", last, err)
	}
	if _, _, err := f.Locks().TryAcquire(ctx, "l", "o", time.Minute); err != nil {
		t.Fatal(err)
	}
	if f.Count("TryAcquire") != 1 {
		t.Error("acquiring a lock does not count as a write")
	}
}
