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

// floor writes the rows of a step's commit, without checks and logic.
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

// BenchmarkFloor measures commits and the bare writes of the same rows
// alternately, so that both run under the same conditions, and reports the median
// of each.
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
	options, err := goredis.ParseURL(url)
	if err != nil {
		b.Fatal(err)
	}
	bare := goredis.NewClient(redis.OwnOptions(options))
	b.Cleanup(func() { _ = bare.Close() })
	steppers := make([]*stepper, clients)
	together(steppers, func(i int) {
		steppers[i] = newStepper(b, backend, bare)
		for steppers[i].n < steps-5 {
			steppers[i].commit()
		}
	})
	const block = 50 // of each kind, before the other's turn
	commits, floors := make([][]time.Duration, clients), make([][]time.Duration, clients)
	for range max(b.N/block, 1) {
		together(steppers, func(i int) {
			for range block {
				commits[i] = append(commits[i], timed(steppers[i].commit))
			}
		})
		together(steppers, func(i int) {
			for range block {
				floors[i] = append(floors[i], timed(steppers[i].floor))
			}
		})
	}
	own, least := median(commits), median(floors)
	b.ReportMetric(float64(own.Microseconds()), "commit-p50-µs")
	b.ReportMetric(float64(least.Microseconds()), "floor-p50-µs")
	b.ReportMetric(float64(own)/float64(least), "ratio")
}

// together calls do for each of the steppers concurrently.
func together(steppers []*stepper, do func(i int)) {
	var wg sync.WaitGroup
	for i := range steppers {
		wg.Go(func() { do(i) })
	}
	wg.Wait()
}

func median(times [][]time.Duration) time.Duration {
	all := slices.Concat(times...)
	slices.Sort(all)
	return all[len(all)/2]
}

func timed(do func()) time.Duration {
	start := time.Now()
	do()
	return time.Since(start) // waits: a measurement of a benchmark
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
	bareN   int // how often the bare rows were written
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

func message(n int) session.Message {
	return session.Message{
		ID: fmt.Sprintf("m%d", n), Role: session.RoleAssistant, RunID: "run", Step: n,
		Parts: []session.Part{session.Text("The quick brown fox jumps over the lazy dog, and then does so again.")},
	}
}

func (s *stepper) commit() {
	s.n++
	value := fmt.Appendf(nil, `{"n":%d}`, s.n)
	out, err := s.store.Commit(context.Background(), &session.Commit{
		SessionID: s.id, RunID: "run", Key: fmt.Sprintf("run/%d/step", s.n), Version: s.version, Fence: s.fence,
		Change: session.Change{
			Messages: []session.Message{message(s.n)}, StepCount: &s.n,
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
	s.bareN++
	message := message(s.bareN)
	body, err := session.Encode(&message)
	if err != nil {
		s.b.Error(err)
		return
	}
	keys := make([]string, 0, 8)
	for _, letter := range "hmxisp" {
		keys = append(keys, s.prefix+string(letter))
	}
	err = floor.Run(context.Background(), s.bare, keys, body, message.ID+"\x00assistant", message.ID, s.bareN,
		fmt.Sprintf(`{"ops":[{"kind":"replace","key":"k","value":{"n":%d}}]}`, s.bareN),
		fmt.Sprintf("%d\x00%d\x001700000000000000\x00%d\x00staging\x000\x00cp-%d\x00run\x001\x00active", s.bareN, s.bareN, s.bareN, s.bareN),
		fmt.Sprintf("cp-%d", s.bareN), fmt.Sprintf("run/%d/step", s.bareN), "1700000000000000").Err()
	if err != nil {
		s.b.Error(err)
	}
}
