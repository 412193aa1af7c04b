package testshare

import (
	"slices"
	"testing"
)

func TestPart(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]int{"": 0, "0": 0, "7": 7, "8": 0, "21": 5, "268435455": 7} {
		if got := part(t, 8, given); got != want {
			t.Errorf("%q selects part %d of 8, want %d", given, got, want)
		}
	}
}

func TestHas(t *testing.T) {
	for name, c := range map[string]struct {
		soak, given string
		want        []int
	}{
		"a share": {"", "5", []int{1, 5}},
		"all":     {"1", "5", []int{0, 1, 2, 3, 4, 5}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("HELIX_SOAK", c.soak)
			t.Setenv(variable, c.given)
			has := Has(t, 4)
			var got []int
			for i := range 6 {
				if has(i) {
					got = append(got, i)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("the repetitions are %v, want %v", got, c.want)
			}
		})
	}
}
