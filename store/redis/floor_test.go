package redis_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/helixagents/helix/session"
	"github.com/helixagents/helix/store/redis"
)

// floor writes the rows of a step's commit, with no checks and no logic.
var floor = goredis.NewScript(`#!lua
local call = redis.call
call('RPUSH', KEYS[2], ARGV[1])
call('RPUSH', KEYS[3], ARGV[2])
call('HSET', KEYS[4], 'm' .. ARGV[3], ARGV[4], 'c' .. ARGV[7], ARGV[4])
call('XADD', KEYS[5], ARGV[4] .. '-0', 'b', ARGV[5])
call('RPUSH', KEYS[6], ARGV[6])
call('HSET', KEYS[1], 'v', ARGV[4], 'commit', ARGV[8], 'updated', ARGV[9], 'msgs', ARGV[4], 'steps', ARGV[4], 'rsteps', ARGV[4],
  'cp', ARGV[7], 'cpsrc', 'staging', 'cpat', ARGV[9])
return ARGV[4]`)

// BenchmarkFloor measures commits and the bare writing of the same rows by turns,
// so that both meet the same weather, and reports the median of each.
func BenchmarkFloor(b *testing.B) {
	for _, clients := range []int{1, 16} {
		for _, steps := range []int{10, 10_000} {
			b.Run(fmt.Sprintf("clients=%d/steps=%d", clients, steps), func(b *testing.B) { benchFloor(b, clients, steps) })
		}
	}
}

func benchFloor(b *testing.B, clients, steps int) {
	url := single(b)
	backend := open(b, redis.Config{URL: url, Prefix: newPrefix()})
	bare := connect(b, url)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var commits, floors []time.Duration
	for range clients {
		wg.Go(func() {
			c := newStepper(b, backend, bare)
			for c.n < steps-5 {
				c.commit()
			}
			mine, theirs := make([]time.Duration, 0, b.N), make([]time.Duration, 0, b.N)
			for range b.N {
				mine = append(mine, timed(c.commit))
				theirs = append(theirs, timed(c.floor))
			}
			mu.Lock()
			defer mu.Unlock()
			commits, floors = append(commits, mine...), append(floors, theirs...)
		})
	}
	wg.Wait()
	slices.Sort(commits)
	slices.Sort(floors)
	own, least := commits[len(commits)/2], floors[len(floors)/2]
	b.ReportMetric(float64(own.Microseconds()), "commit-p50-µs")
	b.ReportMetric(float64(least.Microseconds()), "floor-p50-µs")
	b.ReportMetric(float64(own)/float64(least), "ratio")
}

func timed(do func()) time.Duration {
	start := time.Now()
	do()
	return time.Since(start)
}

// stepper is a session in a run.
type stepper struct {
	b       *testing.B
	store   session.Store
	bare    goredis.UniversalClient
	id      string
	prefix  string
	version int64
	fence   session.Fence
	n       int
}

func newStepper(b *testing.B, backend *redis.Backend, bare goredis.UniversalClient) *stepper {
	s := &stepper{b: b, store: backend.Sessions(), bare: bare, id: session.NewID()}
	s.prefix = "floor:{" + s.id + "}:"
	state := session.State{ID: s.id, Agent: "bench", Status: session.Active}
	started, err := s.store.StartRun(context.Background(), &session.StartRun{
		SessionID: s.id, Create: &state, Run: session.Run{ID: "run"}, Owner: "bench", TTL: time.Hour,
	})
	if err != nil {
		b.Error(err)
		return s
	}
	s.version, s.fence = started.Version, started.Lease.Fence()
	return s
}

func (s *stepper) message() session.Message {
	return session.Message{
		ID: fmt.Sprintf("m%d", s.n), Role: session.RoleAssistant, RunID: "run", Step: s.n,
		Parts: []session.Part{session.Text("The quick brown fox jumps over the lazy dog, and then does so again.")},
	}
}

func (s *stepper) commit() {
	s.n++
	value := fmt.Appendf(nil, `{"n":%d}`, s.n)
	out, err := s.store.Commit(context.Background(), &session.Commit{
		SessionID: s.id, RunID: "run", Key: fmt.Sprintf("run/%d/step", s.n), Version: s.version, Fence: s.fence,
		Change: session.Change{
			Messages: []session.Message{s.message()}, StepCount: &s.n,
			Writes:     session.Writes{Ops: []session.Op{{Kind: session.OpReplace, Key: "k", Value: value}}},
			Checkpoint: &session.NewCheckpoint{ID: fmt.Sprintf("cp-%d", s.n), Step: s.n, Source: session.FromStep},
		},
	})
	if err != nil {
		s.b.Error(err)
		return
	}
	s.version = out.Version
}

func (s *stepper) floor() {
	message := s.message()
	body, err := session.Encode(&message)
	if err != nil {
		s.b.Error(err)
		return
	}
	keys := make([]string, 0, 8)
	for _, letter := range "hmxisp" {
		keys = append(keys, s.prefix+string(letter))
	}
	err = floor.Run(context.Background(), s.bare, keys, body, message.ID+"\x00assistant", message.ID, s.n,
		fmt.Sprintf(`{"ops":[{"kind":"replace","key":"k","value":{"n":%d}}]}`, s.n),
		fmt.Sprintf("%d\x00%d\x001700000000000000\x00%d\x00staging\x000\x00cp-%d\x00run\x001\x00active", s.n, s.n, s.n, s.n),
		fmt.Sprintf("cp-%d", s.n), fmt.Sprintf("run/%d/step", s.n), "1700000000000000").Err()
	if err != nil {
		s.b.Error(err)
	}
}
