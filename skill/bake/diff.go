package bake

import (
	"fmt"
	"slices"
	"strings"
)

const (
	// diffContext is how many unchanged lines surround a change.
	diffContext = 3
	// maxCompared is how many pairs of lines are compared; beyond it a text is shown as
	// replaced.
	maxCompared = 4 << 20
)

// diffLine is a line with ' ', '-' or '+' for one that stays, goes and comes.
type diffLine struct {
	sign byte
	text string
}

// diff returns the changed lines of a text with those around them, or "" if there are none.
func diff(before, after string) string {
	all := compareLines(lines(before), lines(after))
	changed := func(l diffLine) bool { return l.sign != ' ' }
	var out strings.Builder
	old, now := 1, 1 // the numbers of the next lines
	for at := 0; at < len(all); {
		next := slices.IndexFunc(all[at:], changed)
		if next < 0 {
			break
		}
		start := at + max(next-diffContext, 0)
		old, now = old+start-at, now+start-at // the lines in between are in both
		end := at + next
		for rest := 0; end < len(all) && rest <= 2*diffContext; end++ {
			if rest++; changed(all[end]) {
				rest = 0
			}
		}
		for end > start && !changed(all[end-1]) { // all but the context
			end--
		}
		end = min(end+diffContext, len(all))
		fmt.Fprintf(&out, "@@ -%d +%d @@\n", old, now)
		for _, l := range all[start:end] {
			out.WriteByte(l.sign)
			out.WriteString(l.text + "\n")
			if l.sign != '+' {
				old++
			}
			if l.sign != '-' {
				now++
			}
		}
		at = end
	}
	return out.String()
}

func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// compareLines returns the lines of both texts in order, with as many in common as possible.
func compareLines(a, b []string) []diffLine {
	var head, tail []diffLine
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		head = append(head, diffLine{' ', a[0]})
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		tail = append(tail, diffLine{' ', a[len(a)-1]})
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	slices.Reverse(tail)
	return slices.Concat(head, compareMiddle(a, b), tail)
}

func compareMiddle(a, b []string) []diffLine {
	var out []diffLine
	i, j := 0, 0
	if len(a)*len(b) <= maxCompared {
		// common[i][j] is how many lines a[i:] and b[j:] have in common.
		common := make([][]int32, len(a)+1)
		for i := range common {
			common[i] = make([]int32, len(b)+1)
		}
		for i, line := range slices.Backward(a) {
			for j := range slices.Backward(b) {
				if line == b[j] {
					common[i][j] = common[i+1][j+1] + 1
				} else {
					common[i][j] = max(common[i+1][j], common[i][j+1])
				}
			}
		}
		for i < len(a) && j < len(b) {
			switch {
			case a[i] == b[j]:
				out = append(out, diffLine{' ', a[i]})
				i, j = i+1, j+1
			case common[i+1][j] >= common[i][j+1]:
				out = append(out, diffLine{'-', a[i]})
				i++
			default:
				out = append(out, diffLine{'+', b[j]})
				j++
			}
		}
	}
	for ; i < len(a); i++ {
		out = append(out, diffLine{'-', a[i]})
	}
	for ; j < len(b); j++ {
		out = append(out, diffLine{'+', b[j]})
	}
	return out
}
