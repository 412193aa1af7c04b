package skills_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/extension/skills"
	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/skill"
)

// preserve asks what stays of messages that are dropped of a view.
func preserve(t *testing.T, x *skills.Extension, view []session.Message, dropped int) string {
	t.Helper()
	return preserveWithin(t, x, view, dropped, 128<<10)
}

func preserveWithin(t *testing.T, x *skills.Extension, view []session.Message, dropped, room int) string {
	t.Helper()
	text, tasks, err := x.Preserve(t.Context(), turnOf(view...), view[:dropped], room)
	if err != nil || len(tasks) != 0 {
		t.Fatal(tasks, err)
	}
	if len(text) > room {
		t.Fatalf("%d bytes were kept, but there is room for %d", len(text), room)
	}
	return text
}

func TestPreserve(t *testing.T) {
	t.Parallel()
	var list []skill.Skill
	for i := range 10 {
		list = append(list, one(fmt.Sprintf("s-%d", i), fmt.Sprintf("Do number %d.", i)))
	}
	list = append(list, one("long", strings.Repeat("These are many words. ", 2000)))
	for i := range 8 {
		list = append(list, one(fmt.Sprintf("big-%d", i), strings.Repeat("words ", 2500)))
	}
	x := skills.New(skills.Config{Provider: skill.Static(list...)})
	loads := func(names ...string) []session.Message {
		out := []session.Message{session.UserText("Hi!")}
		out[0].ID = "0"
		for i, name := range names {
			out = append(out, result(fmt.Sprint(i+1), skills.LoadTool, load(t, x, name)))
		}
		return out
	}

	if got := preserve(t, x, loads(), 1); got != "" {
		t.Errorf("nothing was loaded, but %q is kept", got)
	}

	view := loads("s-1", "s-2", "s-1", "s-3")
	got := preserve(t, x, view, 4)
	if strings.Count(got, "<skill_content") != 2 || strings.Contains(got, "number 3") || strings.Index(got, "number 1") > strings.Index(got, "number 2") {
		t.Errorf("not each skill that was dropped is kept once, the newest first:\n%s", got)
	}

	// What a summary keeps is known, and kept by the next one, in the same order.
	marker := summary("They spoke.", session.Text(got))
	if again := load(t, x, "s-2", marker); !strings.Contains(again, "loaded already") {
		t.Errorf("%s", again)
	}
	got = strings.ReplaceAll(got, ` current="true"`, "")
	if next := preserve(t, x, []session.Message{marker, view[0], view[4]}, 1); next != got {
		t.Errorf("the next summary keeps\n%s\nnot\n%s", next, got)
	}
	if next := preserve(t, x, []session.Message{marker, view[0]}, 0); next != got {
		t.Errorf("the earlier summary is lost:\n%s", next)
	}

	// A body that is too long is cut, and can be loaded again.
	got = preserve(t, x, loads("long"), 2)
	if len(got) > 5000*4 || len(got) < 5000*3 || !strings.Contains(got, ` cut="true"`) || !strings.Contains(got, "call load_skill") || !strings.HasSuffix(got, "</skill_content>") {
		t.Errorf("%d bytes: %.300s", len(got), got)
	}
	marker = summary("They spoke.", session.Text(got))
	if again := load(t, x, "long", marker); !strings.HasPrefix(again, "<skill_content") {
		t.Errorf("%.300s", again)
	}

	// All together are bounded, and the oldest are named.
	more := session.UserText("More!")
	more.ID = "more"
	got = preserve(t, x, append(loads("big-0", "big-1", "big-2", "big-3", "big-4", "big-5", "big-6", "big-7"), more), 9)
	if n := strings.Count(got, "<skill_content"); n < 5 || n > 6 || len(got) > 25000*4 {
		t.Errorf("%d skills in %d bytes", n, len(got))
	}
	if !strings.Contains(got, `name="big-7"`) || strings.Contains(got, `name="big-0"`) || !strings.Contains(got, "no longer shown") || !strings.Contains(got[strings.LastIndex(got, ":"):], "big-0") {
		t.Errorf("%s", got[max(0, len(got)-300):])
	}
	if !slices.Equal(skills.LoadedNames(loads("big-0", "s-1")), []string{"big-0", "s-1"}) {
		t.Error("the names are wrong")
	}
}

// Whatever room there is, each skill is kept as a whole, or is known to be cut, or is named.
func TestPreserveFits(t *testing.T) {
	t.Parallel()
	long := one("long", strings.Repeat("These are many wörds.\n", 1000))
	long.AllowedTools = []string{"read"}
	list := []skill.Skill{one("s-1", strings.Repeat("One. ", 400)), one("s-2", strings.Repeat("Two. ", 800)), long, one("s-3", "Three.")}
	x := skills.New(skills.Config{Provider: skill.Static(list...)})
	var early, late []session.Message
	for i := range list {
		early = append(early, result(fmt.Sprint(i), skills.LoadTool, load(t, x, list[i].Name)))
	}
	hi := session.UserText("Hi!")
	hi.ID = "hi"
	early, late = append(early, hi), append([]session.Message{hi}, early...)
	for _, room := range []int{0, 1, 60, 100, 150, 200, 300, 400, 600, 1000, 1500, 2000, 3000, 5000, 8000, 12_000, 20_000, 40_000, 128 << 10} {
		for _, view := range [][]session.Message{early, late} {
			text := preserveWithin(t, x, view, len(view), room)
			marker := summary("They spoke.")
			if text != "" {
				marker = summary("They spoke.", session.Text(text))
			}
			if n := strings.Count(text, "</skill_content>"); n != strings.Count(text, "<skill_content ") || n != len(skills.LoadedNames([]session.Message{marker})) {
				t.Errorf("%d bytes: a block is damaged:\n%s", room, text)
			}
			for i := range list {
				name := list[i].Name
				again := load(t, x, name, marker)
				whole := strings.Contains(text, list[i].Body)
				if whole != strings.Contains(again, "loaded already") {
					t.Errorf("%d bytes: %s is whole: %v, but it is answered %.100s", room, name, whole, again)
				}
				if room >= 1000 && !strings.Contains(text, name) {
					t.Errorf("%d bytes: %s is not named:\n%s", room, name, text)
				}
			}
		}
	}
	if text := preserveWithin(t, x, early, len(early), 3000); !strings.Contains(text, "Three.") || strings.Contains(text, `current=`) {
		t.Errorf("%s", text)
	}
	// One in force, which is older than others, keeps its tools although those need all the room.
	again := result("again", skills.LoadTool, load(t, x, "long", early...))
	call := session.Message{ID: "call", Role: session.RoleAssistant, Parts: []session.Part{{Kind: session.PartToolCall, CallID: again.Parts[0].CallID, Tool: skills.LoadTool, Input: []byte(`{"name":"long"}`)}}}
	for _, room := range []int{1000, 3000, 4400} {
		view := append(slices.Clone(early), call, again)
		if text := preserveWithin(t, x, view, len(view), room); !strings.Contains(text, `allowed-tools="read"`) || strings.Count(text, ` current="true">`) != 1 || len(text) > room {
			t.Errorf("%d bytes: the skill in force is not known any more:\n%s", room, text)
		}
	}
	if text := preserveWithin(t, x, late, len(late), 1000); strings.Count(text, ` current="true">`) < 3 || !strings.Contains(text, `allowed-tools="read"`) {
		t.Errorf("the skills that are in force are not known any more:\n%s", text)
	}
}

// A skill that a summary of the run has cut is not loaded again for the same message, or the
// next summary would cut it again. A later message loads it.
func TestChosenAndCut(t *testing.T) {
	t.Parallel()
	x := skills.New(skills.Config{Provider: skill.Static(one("long", strings.Repeat("These are many words. ", 2000)))})
	view := []session.Message{skills.Activate(session.UserText("Hi!"), "long")}
	view[0].ID = "0"
	prepare := func(view ...session.Message) []session.Message {
		turn := turnOf(view...)
		turn.Input = []session.Message{skills.Activate(session.UserText("Hi!"), "long")}
		out, err := x.Prepare(t.Context(), turn)
		if err != nil || len(out) != 1 {
			t.Fatal(out, err)
		}
		return out
	}
	chosen := helix.Hidden(prepare(view...)[0])
	chosen.ID = "1"
	if n := len(chosen.Content()); n < 40_000 {
		t.Fatalf("the skill has %d bytes", n)
	}
	view = append(view, chosen)
	for _, room := range []int{500, 128 << 10} {
		marker := summary("They spoke.", session.Text(preserveWithin(t, x, view, 2, room)))
		if got := prepare(marker)[0].Content(); len(got) > 300 || !strings.Contains(got, "Call load_skill") {
			t.Errorf("%.300s", got)
		}
		marker.RunID = "earlier"
		if got := prepare(marker)[0].Content(); len(got) < 40_000 {
			t.Errorf("%.300s", got)
		}
		if got := load(t, x, "long", marker); len(got) < 40_000 {
			t.Errorf("%.300s", got)
		}
	}
}
