package runtimetest

import (
	"testing"
	"time"
)

func TestRotate(t *testing.T) {
	t.Parallel()
	const parts = 8
	seen := map[int]bool{}
	day := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	for i := range parts {
		seen[rotate(t, parts, "", day.AddDate(0, 0, i))] = true
	}
	if len(seen) != parts {
		t.Errorf("in %d days the parts %v are played", parts, seen)
	}
	if a, b := rotate(t, parts, "", day), rotate(t, parts, "", day.Add(time.Hour)); a != b {
		t.Errorf("on one day the parts %d and %d are played", a, b)
	}
	if got := rotate(t, parts, "21", day); got != 5 {
		t.Errorf("part %d is played, and 5 was asked for", got)
	}
}
