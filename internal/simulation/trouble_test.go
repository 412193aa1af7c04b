package simulation

import (
	"math/rand/v2"
	"sync"
	"time"
)

// weather is what the store does to everybody.
type weather struct {
	away bool          // nothing is written
	dark bool          // nothing is read
	slow time.Duration // a write takes up to so long
	lost float64       // the share of writes whose reply is lost; as many are not made
}

// trouble makes faults until its time is over, and then lets all be well.
func (w *world) trouble() {
	r := w.random("trouble", 0)
	var repairs sync.WaitGroup
	for end := w.length; w.now() < end; {
		time.Sleep(upTo(r, 40*time.Second))
		if w.now() >= end {
			break
		}
		w.disturb(r, &repairs)
	}
	repairs.Wait()
	w.quiet.Store(true)
	w.setWeather(weather{})
	w.note("the faults are over")
}

// disturb makes one fault. Its repair takes place later.
func (w *world) disturb(r *rand.Rand, repairs *sync.WaitGroup) {
	p := w.anybody(r)
	wait := upTo(r, 20*time.Second)
	later := func(repair func()) {
		repairs.Go(func() {
			time.Sleep(wait)
			repair()
		})
	}
	kinds := 12
	if w.calm {
		kinds = 5
	}
	kind := r.IntN(kinds)
	if w.steady && kind >= 5 && kind < 7 {
		kind += 2
	}
	switch {
	case p == nil:
	case kind < 4: // killed
		w.count("kills")
		p.kill()
		later(func() { w.start(p.place, p.life+1) })
	case kind < 5: // replaced
		w.count("deployments")
		repairs.Go(func() {
			p.replace(wait)
			w.start(p.place, p.life+1)
		})
	case kind < 7: // stopped
		w.count("halts")
		w.note("%s is stopped for %s", p, wait)
		p.halt()
		later(func() {
			w.note("%s goes on", p)
			p.goOn()
		})
	case kind < 9:
		w.count("outages")
		dark := r.IntN(2) == 0
		w.setWeather(weather{away: true, dark: dark})
		w.note("the store is away for %s, also for reads: %t", wait, dark)
		later(func() { w.setWeather(weather{}) })
	case kind < 10:
		w.count("slow times")
		w.setWeather(weather{slow: upTo(r, 3*time.Second)})
		later(func() { w.setWeather(weather{}) })
	case kind < 11:
		w.count("lossy times")
		w.setWeather(weather{lost: 0.02 + 0.1*r.Float64()})
		later(func() { w.setWeather(weather{}) })
	default:
		w.count("jumps of the clock")
		jump := upTo(r, 6*time.Minute) - 3*time.Minute
		w.note("the clock jumps by %s", jump)
		w.clock.Add(int64(jump))
		w.setBack.Add(int64(max(-jump, 0)))
	}
}

func (w *world) setWeather(now weather) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.weather = now
}
