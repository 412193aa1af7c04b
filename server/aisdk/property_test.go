package aisdk_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/helixagents/helix/server/aisdk"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/stream"
)

// anyTurn tells a turn of several steps and runs, of which any attempt may be
// discarded.
func anyTurn(t *rapid.T, s *script) stream.Item {
	s.begin("run_1", user("u1", "go"))
	for n := range rapid.IntRange(1, 4).Draw(t, "steps") {
		if rapid.IntRange(0, 3).Draw(t, "marker") == 0 {
			s.mark()
		}
		attempt := 1
		for ; rapid.IntRange(0, 2).Draw(t, "retried") == 0; attempt++ {
			s.next(attempt)
			anyReply(t, s, n)
			s.discards(stream.ScopeReply)
		}
		s.next(attempt)
		calls := anyReply(t, s, n)
		for _, id := range calls {
			s.start(id, "act", `{"n":1}`)
		}
		for range rapid.IntRange(0, 2).Draw(t, "results shown again") {
			anyResults(t, s, calls, "early")
			s.discards(stream.ScopeResults)
		}
		anyResults(t, s, calls, "result")
	}
	return ended(stream.EndCompleted)
}

func anyReply(t *rapid.T, s *script, n int) (calls []string) {
	for range rapid.IntRange(1, 4).Draw(t, "parts") {
		switch rapid.IntRange(0, 2).Draw(t, "part") {
		case 0:
			s.say(rapid.SampledFrom([]string{"a", "bc", "d e"}).Draw(t, "text"))
		case 1:
			s.think(rapid.SampledFrom([]string{"hm", "so"}).Draw(t, "thought"))
		case 2:
			id := fmt.Sprintf("c%d-%d", n, len(calls))
			calls = append(calls, id)
			s.args(id, "act", `{"n":1}`)
		}
	}
	return calls
}

func anyResults(t *rapid.T, s *script, calls []string, text string) {
	for _, id := range rapid.Permutation(slices.Clone(calls)).Draw(t, "order") {
		if rapid.Bool().Draw(t, "fails") {
			s.fails(id, "act", session.CodeToolFailed, "no "+text)
		} else {
			s.end(id, "act", `"`+text+`"`)
		}
	}
}

// However often steps were tried, a client of version 7, one that comes late at any
// moment, in any version, and history show the same.
func TestEveryoneSeesTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := &script{session: "ses"}
		last := anyTurn(t, s)
		committed := stream.Fold("ses", chunks(s))
		history := aisdk.History(aisdk.Config{Version: aisdk.V7}, &aisdk.Transcript{SessionID: "ses", Messages: committed})
		want := ""
		if len(history) > 1 {
			want = lasting(aisdk.V7, history[1])
		}
		show := func(who string, version aisdk.Version, items []stream.Item) {
			told := &script{session: "ses", run: s.run, items: items}
			m := aisdk.Message{}
			for _, c := range encode(version, told, last) {
				m.Apply(&c)
			}
			if got := lasting(aisdk.V7, m); got != want {
				t.Fatalf("%s sees\n%s\nhistory is\n%s", who, got, want)
			}
		}
		show("a client of version 7", aisdk.V7, s.items)
		cut := rapid.IntRange(0, len(s.items)).Draw(t, "cut")
		late := slices.Concat(aisdk.Prune("ses", s.items[:cut]), s.items[cut:])
		show("a client of version 7 that comes late", aisdk.V7, late)
		for _, version := range []aisdk.Version{aisdk.V5, aisdk.V6, aisdk.V7} {
			show("one that comes last", version, aisdk.Prune("ses", s.items))
		}
	})
}
