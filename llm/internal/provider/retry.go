package provider

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// after returns how long the provider asks to wait, or 0.
func (f *Failure) after() time.Duration {
	if f.After > 0 {
		return min(f.After, maxAfter)
	}
	return RetryAfter(f.Header, time.Now())
}

// RetryAfter returns how long to wait before a retry, from the headers: Retry-After in
// seconds or as a date, in milliseconds if a provider sends it, or else the time until an
// exhausted limit is renewed. It returns 0 if the headers do not say.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 {
		return bounded(ms * float64(time.Millisecond))
	}
	if value := h.Get("Retry-After"); value != "" {
		if s, err := strconv.ParseFloat(value, 64); err == nil {
			return bounded(s * float64(time.Second))
		}
		if at, err := http.ParseTime(value); err == nil {
			return min(max(0, at.Sub(now)), maxAfter)
		}
	}
	return renewal(h, now)
}

// maxAfter is the longest wait that is reported. It also keeps a nonsensical number from
// overflowing a duration.
const maxAfter = 24 * time.Hour

func bounded(ns float64) time.Duration {
	if !(ns > 0) { // also not a number
		return 0
	}
	return time.Duration(min(ns, float64(maxAfter)))
}

// renewal is when the last of the limits that have nothing left is renewed. They
// come as x-ratelimit-remaining-tokens with x-ratelimit-reset-tokens: 6m0s, and as
// anthropic-ratelimit-tokens-remaining with …-reset, a time.
func renewal(h http.Header, now time.Time) time.Duration {
	var wait time.Duration
	for name := range h {
		low := strings.ToLower(name)
		if !strings.Contains(low, "ratelimit") || !strings.Contains(low, "remaining") || h.Get(name) != "0" {
			continue
		}
		reset := h.Get(strings.Replace(low, "remaining", "reset", 1))
		if d, err := time.ParseDuration(reset); err == nil {
			wait = max(wait, d)
		} else if at, err := time.Parse(time.RFC3339, reset); err == nil {
			wait = max(wait, at.Sub(now))
		}
	}
	return min(wait, maxAfter)
}
