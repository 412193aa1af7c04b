package runtimetest

import "testing"

func TestRotate(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]int{"": 0, "0": 0, "7": 7, "8": 0, "21": 5, "268435455": 7} {
		if got := rotate(t, 8, given); got != want {
			t.Errorf("%q selects part %d of 8, want %d", given, got, want)
		}
	}
}
