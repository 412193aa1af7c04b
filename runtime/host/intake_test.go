package host

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/helixagents/helix/session"
)

func TestIntakeBoundsTakeovers(t *testing.T) {
	t.Parallel()
	in := newIntake()
	var all []*admitted
	for range maxTakeovers {
		a := in.admit(false)
		if a == nil {
			t.Fatalf("only %d takeovers were admitted", len(all))
		}
		all = append(all, a)
	}
	if in.admit(false) != nil || in.admit(true) != nil {
		t.Fatal("more takeovers than the limit were admitted")
	}
	all[0].land()
	select {
	case <-in.again:
	default:
		t.Fatal("there is no signal that another run may be admitted")
	}
	if in.admit(false) == nil {
		t.Fatal("a run that made progress still counts")
	}
	all[1].leave()
	all[1].leave() // once is enough
	if in.admit(false) == nil || in.admit(false) != nil {
		t.Fatal("a run that ended makes room for one other")
	}
}

func TestIntakeAdmitsOneLostBefore(t *testing.T) {
	t.Parallel()
	in := newIntake()
	first := in.admit(true)
	if first == nil || in.admit(true) != nil {
		t.Fatal("not exactly one run that was lost before was admitted")
	}
	if in.admit(false) == nil {
		t.Fatal("a first takeover was held back by a run that was lost before")
	}
	first.land()
	if in.admit(true) != nil {
		t.Fatal("a run that was lost before was admitted beside a first takeover")
	}
}

func TestIntakeQuarantinesLostBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in := newIntake()
		other := in.admit(false)
		other.land() // progress alone is not enough: what it does next may end the process
		if in.admit(true) != nil {
			t.Fatal("a run that was lost before was admitted beside a run that was just taken over")
		}
		_, err := in.await(t.Context(), true)
		if !errors.Is(err, session.ErrUnavailable) {
			t.Fatalf("waiting ended with %v", err)
		}
		time.Sleep(quarantine)
		second := in.admit(true)
		if second == nil {
			t.Fatal("the quarantine does not end")
		}
		second.leave()
		another := in.admit(false)
		go func() {
			time.Sleep(time.Second)
			other.leave()
			another.leave()
		}()
		second, err = in.await(t.Context(), true)
		if err != nil {
			t.Fatalf("a run that was lost before is not admitted after all others have ended: %v", err)
		}
		second.leave()
		close(in.closing)
		held := in.admit(true)
		if _, err := in.await(t.Context(), true); !errors.Is(err, session.ErrClosed) {
			t.Fatalf("waiting in a runtime that closes ended with %v", err)
		}
		held.leave()
	})
}
