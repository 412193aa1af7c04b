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

func TestIntakeAdmitsOneSuspect(t *testing.T) {
	t.Parallel()
	in := newIntake()
	first := in.admit(true)
	if first == nil || in.admit(true) != nil {
		t.Fatal("not exactly one suspect was admitted")
	}
	if in.admit(false) == nil {
		t.Fatal("a first takeover was held back by a suspect")
	}
	first.land()
	if in.admit(true) != nil {
		t.Fatal("a suspect was admitted beside a first takeover")
	}
}

func TestIntakeQuarantinesSuspects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in := newIntake()
		other := in.admit(false)
		other.land() // progress alone is not enough: what it does next may end the process
		if in.admit(true) != nil {
			t.Fatal("a suspect was admitted beside a run that was just taken over")
		}
		_, err := in.await(t.Context(), true)
		if !errors.Is(err, session.ErrUnavailable) {
			t.Fatalf("waiting ended with %v", err)
		}
		time.Sleep(quarantine)
		suspect := in.admit(true)
		if suspect == nil {
			t.Fatal("the quarantine does not end")
		}
		suspect.leave()
		another := in.admit(false)
		go func() {
			time.Sleep(time.Second)
			other.leave()
			another.leave()
		}()
		suspect, err = in.await(t.Context(), true)
		if err != nil {
			t.Fatalf("a suspect is not admitted after all others have ended: %v", err)
		}
		suspect.leave()
		close(in.closing)
		held := in.admit(true)
		if _, err := in.await(t.Context(), true); !errors.Is(err, session.ErrClosed) {
			t.Fatalf("waiting in a runtime that closes ended with %v", err)
		}
		held.leave()
	})
}
