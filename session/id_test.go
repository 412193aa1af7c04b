package session_test

import (
	"encoding/base32"
	"errors"
	"math/big"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/helixagents/helix/session"
)

func TestNewIDsAreSortedUniqueAndValid(t *testing.T) {
	t.Parallel()
	const minters, each = 8, 2000
	minted := make([][]string, minters)
	var wg sync.WaitGroup
	for i := range minted {
		wg.Go(func() {
			for range each {
				minted[i] = append(minted[i], session.NewID())
			}
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for _, ids := range minted {
		if !slices.IsSorted(ids) {
			t.Error("ids of one goroutine are not in order")
		}
		for _, id := range ids {
			if seen[id] {
				t.Fatalf("id %s was generated twice", id)
			}
			seen[id] = true
			if err := session.CheckID(id); err != nil || !strings.HasPrefix(id, "ses_") || len(id) != 36 {
				t.Fatalf("%q: %v", id, err)
			}
		}
	}
	for prefix, id := range map[string]string{
		"run_": session.NewRunID(), "msg_": session.NewMessageID(), "local:": session.NewOwner("local"),
	} {
		if !strings.HasPrefix(id, prefix) || session.CheckKeyID("id", id) != nil {
			t.Errorf("%q does not begin with %q", id, prefix)
		}
	}
}

func TestCheckID(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{ // part of the message; empty when it is fine
		"s-1":                    "",
		"a":                      "",
		"A.b_c:d@e/f-9":          "",
		"a.b/.c":                 "",
		strings.Repeat("x", 256): "",
		"":                       "empty",
		strings.Repeat("x", 257): "257 bytes",
		"a..b":                   `".."`,
		"..":                     `".."`,
		"/a":                     `"/"`,
		".a":                     `"."`,
		"a b":                    "only",
		"a\n":                    "only",
		"a\x00":                  "only",
		"é":                      "only",
		"a\\b":                   "only",
		"a%2f":                   "only",
		"a?b":                    "only",
		"a*":                     "only",
		"{a}":                    "only",
	} {
		err := session.CheckID(id)
		if want == "" {
			if err != nil {
				t.Errorf("%.20q: refused: %v", id, err)
			}
			continue
		}
		var e *session.Error
		if !errors.As(err, &e) || e.Code != session.CodeInvalid || e.Field != "session id" || !strings.Contains(e.Message, want) {
			t.Errorf("%.20q: got %v, want it to say %s", id, err, want)
		}
	}
}

func TestCheckKeyID(t *testing.T) {
	t.Parallel()
	for id, ok := range map[string]bool{
		"x": true, "any thing é": true, strings.Repeat("x", 256): true,
		"": false, strings.Repeat("x", 257): false, "a\nb": false, "a\x00": false, "\x7f": false, "\xff": false,
	} {
		if err := session.CheckKeyID("request id", id); (err == nil) != ok {
			t.Errorf("%.20q: %v", id, err)
		} else if err != nil && !strings.HasPrefix(err.Error(), "request id") {
			t.Errorf("%.20q: %v does not name the field", id, err)
		}
	}
}

func TestDerivedMessageIDs(t *testing.T) {
	t.Parallel()
	run := session.NewRunID()
	call := session.CallID("s-1", session.ReplyID(run, 1), 0)
	child := session.ChildRunID(run, call, 1)
	for _, id := range []string{
		session.ReplyID(run, 3), run + "/in/0", session.ReplyID(child, 1), child + "/in/2", call, session.ResultID(call), "inbox/" + call,
	} {
		if !session.IsDerivedMessageID(id) {
			t.Errorf("a client may choose %q", id)
		}
	}
	for _, id := range []string{session.NewMessageID(), "msg-1", "running", "run_1", "KzI3fPq0vXJ2sYd8", "a/b", "u1.reply", "in/0", ""} {
		if session.IsDerivedMessageID(id) {
			t.Errorf("a client may not choose %q", id)
		}
	}
}

func TestChildIDsAreValidAndShort(t *testing.T) {
	t.Parallel()
	parents := rapid.StringMatching(`[A-Za-z0-9_:@-][A-Za-z0-9_:@/.-]{0,255}`).Filter(func(id string) bool { return session.CheckID(id) == nil })
	names := rapid.StringMatching(`[A-Za-z0-9_-]{1,120}`)
	kinds := rapid.SampledFrom([]string{"sub", "agent", "remote"})
	rapid.Check(t, func(t *rapid.T) {
		parent, kind, name := parents.Draw(t, "parent"), kinds.Draw(t, "kind"), names.Draw(t, "name")
		id := session.NewChildID(parent, kind, name)
		if err := session.CheckID(id); err != nil || len(id) > 200 {
			t.Fatalf("%q has %d bytes: %v", id, len(id), err)
		}
		if id == session.NewChildID(parent, kind, name) {
			t.Fatal("it is the same the second time")
		}
		if plain := parent + "-" + kind + "-" + name; len(plain) <= 183 && !strings.HasPrefix(id, plain+".") {
			t.Fatalf("%q does not begin with %q", id, plain)
		}
		// Children of children, at any depth, stay within the limit.
		for range 5 {
			if session.CheckChosenID(id) == nil {
				t.Fatalf("%q can be chosen", id)
			}
			id = session.NewChildID(id, kind, name)
			if err := session.CheckID(id); err != nil || len(id) > 200 {
				t.Fatalf("%q has %d bytes: %v", id, len(id), err)
			}
		}
	})
}

func TestCheckChosenID(t *testing.T) {
	t.Parallel()
	for id, ok := range map[string]bool{
		"s-1": true, "support-agent-42": true, "my-agent-bot.v2": true, "a-sub-b": true, "x-sub-call_1": true,
		"s-1-remote-call_7ddd8c9b1079ce0c166b25d0.0123456789abcdef@peer": true, // another server's, for its own call
		"s-1-sub-call_7ddd8c9b1079ce0c166b25d0":                          false,
		"s-1-remote-call_7ddd8c9b1079ce0c166b25d0":                       false,
		"s-1-sub-call_7ddd8c9b1079ce0c166b25d0.0123456789abcdef":         false,
		"s-1-agent-wendy.0123456789abcdef":                               false,
		"s-1@peer-sub-call_7ddd8c9b1079ce0c166b25d0.0123456789abcdef":    false,
		strings.Repeat("s", 175) + "-7ddd8c9b1079ce0c166b25d0":           false, // as ids of children were once cut
		strings.Repeat("s", 150) + "-7ddd8c9b1079ce0c166b25d0":           false,
		"s-7ddd8c9b1079ce0c166b25d0":                                     true,
		"":                                                               false, "a b": false,
	} {
		err := session.CheckChosenID(id)
		if (err == nil) != ok {
			t.Errorf("%q: %v", id, err)
		} else if err != nil && !strings.HasPrefix(err.Error(), "session id") {
			t.Errorf("%q: %v does not name the field", id, err)
		}
	}
}

// Knowing some ids of a second does not help to guess others, because each has its
// own random part.
func TestMintedIDsAreFarApart(t *testing.T) {
	t.Parallel()
	const each = 10_000
	for name, mint := range map[string]func() string{
		"session": session.NewID, "run": session.NewRunID, "message": session.NewMessageID, "approval": session.NewApprovalID,
		"owner": func() string { return session.NewOwner("local") },
	} {
		minted := make([][]string, 2) // by two users
		var wg sync.WaitGroup
		for user := range minted {
			wg.Go(func() {
				for range each {
					minted[user] = append(minted[user], mint())
				}
			})
		}
		wg.Wait()
		var all []*big.Int
		for _, id := range slices.Concat(minted...) {
			at := max(strings.LastIndexByte(id, '_'), strings.LastIndexByte(id, ':')) + 1
			raw, err := base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding).DecodeString(id[at:])
			if err != nil {
				t.Fatalf("%s: %v", id, err)
			}
			all = append(all, new(big.Int).SetBytes(raw))
		}
		slices.SortFunc(all, (*big.Int).Cmp)
		near := new(big.Int).Lsh(big.NewInt(1), 64)
		for i := 1; i < len(all); i++ {
			if new(big.Int).Sub(all[i], all[i-1]).Cmp(near) <= 0 {
				t.Fatalf("%s: %x and %x are within 2^64", name, all[i-1], all[i])
			}
		}
	}
}

// Derived ids are stored by stores and engines, so they must never change.
func TestDerivedIDsAreFrozen(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	for got, want := range map[string]string{
		session.CallID("s-1", "run_1/2", 0):                  "call_7ddd8c9b1079ce0c166b25d0",
		session.CallID("s-1", "run_1/2", 1):                  "call_95c06688c457d0a35cf3f978",
		session.ReplyID("run_1", 2):                          "run_1/2",
		session.ResultID("call_x"):                           "call_x.r",
		session.CheckpointID("s-1", 2, at, "run_1/2/commit"): "cpv1-s-1-s2-t1767323045006-a5dd83",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if session.CallID("a", "bc", 1) == session.CallID("ab", "c", 1) {
		t.Error("call ids do not tell apart where one part ends and the next begins")
	}
}
