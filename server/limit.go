package server

import (
	"container/list"
	"sync"
	"time"
)

// maxBuckets limits how many identities are tracked. Beyond it, the least recently used one
// starts over with a full bucket.
const maxBuckets = 10_000

// limiter limits the requests of each identity.
type limiter struct {
	rate  RateLimit
	now   func() time.Time
	mu    sync.Mutex
	by    map[Identity]*list.Element
	order *list.List // of *bucket, most recently used first
}

// bucket holds the remaining requests of an identity.
type bucket struct {
	who    Identity
	tokens float64
	at     time.Time
}

func newLimiter(rate RateLimit) *limiter {
	return &limiter{rate: rate, now: time.Now, by: map[Identity]*list.Element{}, order: list.New()}
}

// take admits a request, or returns how long to wait.
func (l *limiter) take(who Identity) (wait time.Duration, ok bool) {
	if l.rate.PerSecond <= 0 {
		return 0, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b, now := l.bucket(who), l.now()
	b.tokens = min(float64(l.rate.Burst), b.tokens+now.Sub(b.at).Seconds()*l.rate.PerSecond)
	b.at = now
	if b.tokens < 1 {
		return time.Duration((1 - b.tokens) / l.rate.PerSecond * float64(time.Second)), false
	}
	b.tokens--
	return 0, true
}

func (l *limiter) bucket(who Identity) *bucket {
	if e, ok := l.by[who]; ok {
		l.order.MoveToFront(e)
		return e.Value.(*bucket)
	}
	if len(l.by) >= maxBuckets {
		last := l.order.Back()
		delete(l.by, l.order.Remove(last).(*bucket).who)
	}
	b := &bucket{who: who, tokens: float64(l.rate.Burst), at: l.now()}
	l.by[who] = l.order.PushFront(b)
	return b
}
