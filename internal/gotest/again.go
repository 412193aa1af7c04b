package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// try is a second try of a test.
type try struct {
	test    test
	times   int // that it had to pass
	took    time.Duration
	failure string // empty if it passed each time
}

// tryAgain runs tests of a tier again, one by one.
func (r *runner) tryAgain(from *tier, tests []test) []try {
	ends := time.Now().Add(r.within)
	var tries []try
	for _, t := range tests {
		began := time.Now()
		result := try{test: t, times: r.times}
		if left := time.Until(ends); left > 0 {
			fmt.Fprintf(r.out, "\nsecond try of %s\n", t)
			result.failure = r.tryOnce(from, t, left)
		} else {
			result.failure = fmt.Sprintf("not tried: all second tries together may take %s", r.within)
		}
		result.took = time.Since(began)
		tries = append(tries, result)
	}
	return tries
}

// tryOnce runs one test alone as often as it must pass, and returns why it failed, if it did.
func (r *runner) tryOnce(from *tier, t test, left time.Duration) (failure string) {
	// Where a flag is given twice, go test takes the second.
	args := slices.Concat(r.flagsFor(t.pkg), []string{
		"-p=1", "-count=" + strconv.Itoa(r.times), "-timeout=" + left.String(), "-run=" + patternOf(t.name), t.pkg,
	})
	again, _, err := r.goTest(silent{}, args...)
	if again == nil {
		return err.Error()
	}
	leaves, final := again.judge(from.most)
	for _, other := range leaves {
		final = append(final, other.name+" failed again")
	}
	if passed := again.passes[t]; passed != r.times && len(final) == 0 {
		final = append(final, fmt.Sprintf("it was seen to pass %d times, not %d", passed, r.times))
	}
	if err != nil && len(final) == 0 {
		final = append(final, err.Error())
	}
	if len(final) > 0 {
		again.printFailures(r.out)
	}
	return strings.Join(final, "; ")
}

// patternOf returns the pattern of go test -run for one test.
func patternOf(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

// silent is a watcher that prints nothing.
type silent struct{}

func (silent) endPackage(event) {}
func (silent) printLine(string) {}
