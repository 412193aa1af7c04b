package skills

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/internal/tokens"
	"github.com/helixagents/helix/session"
)

// What of the skills in a part of the conversation is kept when a summary replaces it.
const (
	keepTokens    = 5_000
	keepTokensAll = 25_000
)

// What is preserved begins with one of these.
const (
	keptIntro  = "These skills were loaded before. Follow them where they apply.\n\n"
	namedIntro = "These skills were loaded before and are no longer shown. Call " + LoadTool + " again for those that are needed: "
)

// Preserve implements [helix.Preserver]: the instructions of the skills that were loaded in
// what is dropped stay with the model, those that were loaded last first. What is too much
// is named, so that the model can load it again.
func (x *Extension) Preserve(_ context.Context, turn *helix.Turn, dropped []session.Message, room int) (string, []session.Task, error) {
	gone := make(map[string]bool, len(dropped))
	for i := range dropped {
		gone[dropped[i].ID] = true
	}
	// A new marker speaks for the earlier one, so what that kept is dropped as well.
	var kept, lost []session.Message
	for i := range turn.View {
		switch m := &turn.View[i]; {
		case gone[m.ID]:
		case m.Compaction() != nil:
			lost = append(lost, *m)
		default:
			kept = append(kept, *m)
		}
	}
	blocks := newestBlocks(append(lost, dropped...), kept)
	current := inForce(turn.View)
	for i := range blocks {
		blocks[i].current = slices.Contains(current, blocks[i].name)
	}
	return preserved(blocks, room), nil, nil
}

// preserved returns a text of at most room bytes with as many blocks as fit, and the names of
// the others.
func preserved(blocks []block, room int) string {
	left := room - len(keptIntro)
	texts, named := fit(blocks, left)
	if len(named) > 0 { // they need room, too
		all := len(namedIntro)
		for i := range blocks {
			all += len(blocks[i].name) + len(", ")
		}
		texts, named = fit(blocks, left-min(all, room/4))
	}
	var out string
	if len(texts) > 0 {
		out = keptIntro + strings.Join(texts, gap)
		room -= len(out) + len(gap)
	}
	if sentence := naming(named, room); sentence != "" {
		if out != "" {
			out += gap
		}
		out += sentence
	}
	return out
}

// gap is between two blocks.
const gap = "\n\n"

// naming returns a sentence of at most room bytes that names skills, as many as fit. It is
// empty if none does.
func naming(names []string, room int) string {
	list := ""
	for i, name := range names {
		more := name
		if i > 0 {
			more = list + ", " + name
		}
		end := "."
		if n := len(names) - i - 1; n > 0 {
			end = fmt.Sprintf(" and %d more.", n)
		}
		if len(namedIntro)+len(more)+len(end) > room {
			if i == 0 {
				return ""
			}
			return fmt.Sprintf("%s%s and %d more.", namedIntro, list, len(names)-i)
		}
		list = more
	}
	if list == "" {
		return ""
	}
	return namedIntro + list + "."
}

// newestBlocks returns the last content of each skill, those that were loaded last first,
// without the skills that the kept messages have.
func newestBlocks(dropped, kept []session.Message) []block {
	var out []block
	seen := map[string]bool{}
	for i := range kept {
		for _, b := range blocksIn(&kept[i]) {
			seen[b.name] = true
		}
	}
	for i := range slices.Backward(dropped) {
		// A summary that kept skills has those that were loaded last first.
		blocks := blocksIn(&dropped[i])
		if dropped[i].Compaction() == nil {
			slices.Reverse(blocks)
		}
		for _, b := range blocks {
			if !seen[b.name] {
				seen[b.name] = true
				out = append(out, b)
			}
		}
	}
	return out
}

// fit returns the texts of blocks, shortened where they are too long, that have at most room
// bytes with the gaps between them, and the names of those for which there is no room. Of
// a skill that is in force at least the opening tag stays.
func fit(blocks []block, room int) (texts, named []string) {
	bytes, left := room+len(gap), keepTokensAll
	// What those in force need at least is not given to others.
	least := func(b *block) (size, n int) {
		if !b.current {
			return 0, 0
		}
		return len(emptied(b)) + len(gap), count(emptied(b))
	}
	for i := range blocks {
		size, n := least(&blocks[i])
		bytes, left = bytes-size, left-n
	}
	add := func(text string) bool {
		size, n := len(text)+len(gap), count(text)
		if text == "" || size > bytes || n > left {
			return false
		}
		texts, bytes, left = append(texts, text), bytes-size, left-n
		return true
	}
	for i := range blocks {
		b := &blocks[i]
		size, n := least(b)
		bytes, left = bytes+size, left+n
		if !add(fitting(b, bytes-len(gap))) && (!b.current || !add(emptied(b))) {
			named = append(named, b.name)
		}
	}
	return texts, named
}

// minKept is how many bytes of a skill's instructions are worth keeping.
const minKept = 1_000

// fitting returns a block, or the beginning of one that has more than room bytes or too many
// tokens. It is empty if there is nothing to keep. The model can load the skill again,
// because the block says that it is cut.
func fitting(b *block, room int) string {
	if b.body == "" {
		return ""
	}
	if text := b.String(); len(text) <= room && count(text) <= keepTokens {
		return text
	}
	foot := fmt.Sprintf("\n\n[The instructions are cut here. To read all of them, call %s with name %q again.]\n", LoadTool, b.name)
	out := *b
	out.cut, out.body = true, foot
	frame := out.String()
	limit := room - len(frame) - len("1000000") // the length of the body has more digits than that of foot
	if limit < min(minKept, len(b.body)) {
		return ""
	}
	most := keepTokens - count(frame) - 50  // so that it is not cut again when the tag changes
	low, high := 0, min(len(b.body), limit) // the longest beginning that fits
	for low < high {
		mid := (low + high + 1) / 2
		if count(b.body[:mid]) <= most {
			low = mid
		} else {
			high = mid - 1
		}
	}
	body, _ := cutText(b.body, low)
	out.body = body + foot
	return out.String()
}

// emptied returns a block without its instructions.
func emptied(b *block) string {
	out := *b
	out.cut, out.body = true, fmt.Sprintf("[The instructions are left out. To read them, call %s with name %q again.]\n", LoadTool, b.name)
	return out.String()
}

// count estimates how many tokens a text has.
func count(text string) int { return int(tokens.Text(text)) + 1 }
